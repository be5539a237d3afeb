"""Starts a run on the coordinator's own SuperLink and keeps it going to its end, through crashes of everything else."""
