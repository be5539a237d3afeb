"""Where a hospital computes: the device, and the number of CPU threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from federation.errors import SiteError, SiteErrorCode


def pick_device(name: str) -> torch.device:
    """Return the device called `name`; "auto" takes CUDA, then MPS, then the CPU.

    Raises:
        SiteError: the named device is not there.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, present in available.items() if present))
    if not available[name]:
        raise SiteError(SiteErrorCode.CONFIGURATION, f"Expected training.device={name!r} to be present; it is not.")
    return torch.device(name)


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Run the block with `count` torch threads (0: as many as before), then restore the number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
