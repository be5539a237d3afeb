"""Experiments whose results are committed: every number in docs/results is written by a command that lives here."""
