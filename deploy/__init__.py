"""The `aegis` command and what stands around a federation: local Flower runs, experiments, later containers.

It may import any package; nothing imports it. Read next: `deploy.cli`.
"""
