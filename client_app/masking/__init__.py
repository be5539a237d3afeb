"""Aegis masking: gradients of synthetic images join those of real ones, so that a server finds both in an update.

An empirical defence (arXiv 2609.38339), never differential privacy. `preparation` decides whether and with what a task
is masked, `schedule` which image weighs what in which step, `logical_batch` computes a step's gradient exactly in
pieces, `training` puts them together.
"""
