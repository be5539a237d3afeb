"""The malicious server: gradient-inversion attacks on recorded updates, run against the shipped client, never a copy.

So far its measures stand, `metrics`; the attacks do not. Nothing imports this package and it never ships to a hospital.
"""
