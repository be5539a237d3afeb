"""Linear leakage: a planted layer whose rows tell images apart, so that differences of its gradients are images.

Read `bins` first, then `planted_network` and `read_out`, then the attacks, one file each.
"""
