"""What can be measured alone, by experiment: stands apart so that `aegis` starts without their libraries."""

from __future__ import annotations

FEDAVG_PARTS = ("pneumonia", "organa", "s1", "partitions", "engines", "overhead", "commands")
PRIVACY_PARTS = ("accounting", "noise", "ledger", "dp-sgd", "adult", "pneumonia")
STRAGGLER_PARTS = ("pneumonia", "organa", "field", "tuning")
LADDER_PARTS = ("ladder",)
SWEEP_PARTS = ("sweep",)
SERVER_PARTS = ("apply", "memory", "rate", "kills")
MASKING_PARTS = ("pools", "exactness", "accuracy", "sweep", "costs")
CACHE_PARTS = ("diffusion", "others", "builds", "crashes")
DEPLOYMENT_PARTS = ("doctor", "first-update", "footprint", "security", "faults")
LEAKAGE_PARTS = ("pools", "known", "tables", "labels", "delta", "adaptive", "defences", "sums", "guard")
