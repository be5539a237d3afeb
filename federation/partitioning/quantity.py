"""Quantity skew: hospitals of very different sizes that all see the same mix of classes."""

from __future__ import annotations

import numpy as np

from federation.partitioning.shares import Shares


def share_by_rank(sites: int, exponent: float) -> Shares:
    """Return shares of the whole split that fall as a power law, shape (sites, 1).

    Args:
        sites: number of hospitals.
        exponent: hospital k gets a share proportional to 1/(k+1)^exponent; 0 makes all equal.
    """
    weights = np.arange(1, sites + 1, dtype=np.float64) ** -exponent
    return Shares(values=(weights / weights.sum())[:, None])
