"""The malicious server: gradient-inversion attacks on recorded updates, run against the shipped client, never a copy.

No code yet. Nothing imports this package and it never ships to a hospital.
"""
