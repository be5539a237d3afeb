"""Independent random streams derived from one seed and a path of names, so that no draw depends on the order of others.

Both engines, a resumed run and a single hospital re-run alone must draw the same numbers; a shared generator that
everyone advances cannot promise that. Never used for privacy noise: that is drawn from the operating system.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive_seed(seed: int, *path: str | int) -> int:
    """Return a 63-bit seed that depends on `seed` and on every element of `path`, in order.

    Args:
        seed: the run's seed, any integer.
        *path: names of the stream, for example `"training", 12, "hospital-3"`.
    """
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in path)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_stream(seed: int, *path: str | int) -> np.random.Generator:
    """Return the NumPy generator of the stream named by `path`."""
    return np.random.default_rng(derive_seed(seed, *path))
