"""Updates as files: what left a hospital, the model it started from, and what is known of both.

A run's folder and a hospital's outbox hold the same kind of folder, so that one reader serves both. `metadata` says
what is written beside the tensors, `folder` writes; `attacks.records` reads.
"""
