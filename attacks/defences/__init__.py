"""Defences of other authors, as baselines that the same attacks are run against; none of them ships to a hospital.

They mask, prune or perturb without a bound on what one image can change, and claim no epsilon. Read `defence` first,
then one file per defence; `registry` names the settings that are compared.
"""
