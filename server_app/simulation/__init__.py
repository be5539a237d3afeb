"""Flower's grid in one process on a virtual clock, for experiments and tests; never part of a deployment."""
