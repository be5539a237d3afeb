"""How many images a malicious server is expected to read out of one update, by counting alone.

A server that plants a linear layer of k units whose thresholds divide the images into k equally likely bins reads an
image verbatim when no other image of the update lies in its bin (Fowl et al., Robbing the Fed, arXiv 2110.13057,
section 4.2). Of n real and M synthetic images that are alike, a real one is alone with probability (1 - 1/k)^(n+M-1).

Not guaranteed: that a server is bound to k, to one update, to equally likely bins, or to all n + M images. More bins,
several updates from the same images, or synthetic images that differ from real ones leave more; where there are more
images than bins, so do k - 2 bins as narrow as one image in n + M and two wide ones beside them
(`crowded_verbatim_share`). A server that lets only one class, or only the first optimizer step, move its bins has to
do with the images of that class, or of that step: the same counts hold for these, which are fewer. Nothing here is a
bound.
"""

from __future__ import annotations

import math


def expected_verbatim_share(real: int, synthetic: int, capacity: int) -> float:
    """Return the expected share of real images that lie alone in their bin, in [0, 1].

    Args:
        real: n, images whose gradients are summed; at least 1.
        synthetic: M, at least 0.
        capacity: k, at least 2.

    Raises:
        ValueError: a number is out of bounds.
    """
    _require(real, synthetic, capacity)
    return math.exp((real + synthetic - 1) * math.log1p(-1 / capacity))


def crowded_verbatim_share(real: int, synthetic: int, capacity: int) -> float:
    """Return the expected share of real images alone in their bin where a server gives up the images in wide bins.

    With N = n + M images, k - 2 bins of mass 1/N hold an image alone with probability (1 - 1/N)^(N-1), near 1/e, each:
    (k - 2) / N * (1 - 1/N)^(N-1) in all. Equal bins are as good for the server while N is about k, and worse beyond.

    Args:
        real: n, at least 1.
        synthetic: M, at least 0.
        capacity: k, at least 2 and at most N.

    Raises:
        ValueError: a number is out of bounds.
    """
    _require(real, synthetic, capacity)
    images = real + synthetic
    if capacity > images:
        raise ValueError(f"Expected capacity={capacity} <= {images} images.")
    return (capacity - 2) / images * math.exp((images - 1) * math.log1p(-1 / images))


def largest_verbatim_share(real: int, synthetic: int, capacity: int) -> float:
    """Return the larger of both counts, for equal bins and for those of a server that gives up wide ones, in [0, 1].

    Args:
        real: n, at least 1.
        synthetic: M, at least 0.
        capacity: k, at least 2.

    Raises:
        ValueError: a number is out of bounds.
    """
    equal = expected_verbatim_share(real, synthetic, capacity)
    return equal if capacity > real + synthetic else max(equal, crowded_verbatim_share(real, synthetic, capacity))


def automatic_size(real: int, capacity: int, target: float, *, steps: int) -> int:
    """Return M under `masking.size = auto`: that of `smallest_size`, and an image for every one of `steps` at least.

    Args:
        real: n, at least 1.
        capacity: k, at least 2.
        target: in (0, 1).
        steps: optimizer steps of an epoch among which synthetic images are divided; 1 where they are not.

    Raises:
        ValueError: a number is out of bounds.
    """
    return max(smallest_size(real, capacity, target), steps)


def smallest_size(real: int, capacity: int, target: float) -> int:
    """Return the smallest M >= 1 with `expected_verbatim_share(real, M, capacity) <= target`.

    Args:
        real: n, at least 1.
        capacity: k, at least 2.
        target: in (0, 1).

    Raises:
        ValueError: a number is out of bounds.
    """
    _require(real, 1, capacity)
    if not 0 < target < 1:
        raise ValueError(f"Expected 0 < target={target} < 1.")
    size = max(1, math.ceil(math.log(target) / math.log1p(-1 / capacity)) + 1 - real)
    while expected_verbatim_share(real, size, capacity) > target:
        size += 1
    while size > 1 and expected_verbatim_share(real, size - 1, capacity) <= target:
        size -= 1
    return size


def _require(real: int, synthetic: int, capacity: int) -> None:
    if real < 1 or synthetic < 0 or capacity < 2:
        raise ValueError(f"Expected real={real} >= 1, synthetic={synthetic} >= 0 and capacity={capacity} >= 2.")
