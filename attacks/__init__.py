"""The malicious server: gradient-inversion attacks on recorded updates, run against the shipped client, never a copy.

Nothing of the app imports this package, and it never ships to a hospital. Read `threat_model` and `attack` first, then
`linear_leakage`, then `evaluation`, which holds every attack against nulls. `defences` are of other papers, to compare.
"""
