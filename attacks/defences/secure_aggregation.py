"""Secure aggregation as the server sees it: the sum of all updates and no single one.

The sum is formed in the clear: what counts here is what it tells, not how it comes about (Bonawitz et al., CCS 2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from federation.errors import DataError, ModelError
from federation.parameters import Parameters


def sum_updates(updates: Sequence[Mapping[str, Tensor]]) -> Parameters:
    """Return the sum of `updates` by name, in new tensors; a name that an update lacks counts as zero there.

    Raises:
        DataError: there is no update.
        ModelError: a name has different shapes.
    """
    if not updates:
        raise DataError("Expected at least one update to sum, found none.")
    total: Parameters = {}
    for update in updates:
        for name, value in update.items():
            if name not in total:
                total[name] = value.detach().clone()
            elif total[name].shape != value.shape:
                expected, found = tuple(total[name].shape), tuple(value.shape)
                raise ModelError(f"Expected {name} of shape {expected}, found {found} in another update.")
            else:
                total[name] += value.detach()
    return total
