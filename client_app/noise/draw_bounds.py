"""What may be asked of a noise source: checked by every source before its first draw."""

from __future__ import annotations

import math
from collections.abc import Sequence

from federation.errors import PrivacyError

# Outside these a float32 holds the noise no longer: it would round to zero, or to infinity, without a word.
SMALLEST_STDDEV = 1e-30
LARGEST_STDDEV = 1e30


def count_normals(shape: Sequence[int], stddev: float) -> int:
    """Return how many draws fill `shape`, once shape and standard deviation are found possible.

    Args:
        shape: sizes of the wanted tensor, each >= 0.
        stddev: 0, or between `SMALLEST_STDDEV` and `LARGEST_STDDEV`, in the unit of the values to be protected.

    Raises:
        PrivacyError: a size is negative, or the noise would be negative, not a number, or lost in float32.
    """
    if stddev != 0 and not SMALLEST_STDDEV <= stddev <= LARGEST_STDDEV:
        raise PrivacyError(
            f"Expected noise_stddev={stddev} to be 0 or within [{SMALLEST_STDDEV}, {LARGEST_STDDEV}], where float32 "
            "holds the noise; rescale what is to be protected."
        )
    return math.prod(require_count(size) for size in shape)


def require_count(count: int) -> int:
    """Return `count` unchanged.

    Raises:
        PrivacyError: it is negative.
    """
    if count < 0:
        raise PrivacyError(f"Expected count={count} >= 0.")
    return count
