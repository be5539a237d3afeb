"""Gaussian samples from random words, protected against inversion: sums of Box-Muller normals, in bulk."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Normals in one sample. 2n = 4 is n = 2 of Holohan and Braghin, and what Opacus' secure mode adds up.
TERMS = 4
_RADIUS_BYTES = 8
_ANGLE_BYTES = 4
_RADIUS_SCALE = 2.0**-126  # of a squared 64-bit word: (2^-63)^2
_ANGLE_SCALE = math.pi * 2.0**-31  # of a 32-bit word
_LEAST = torch.tensor(2.0**-128, dtype=torch.float64, device="cpu")  # keeps the logarithm of a zero word finite


class BoxMullerBlock:
    """Memory for making 2 * `columns` Gaussian samples at a time, and the arithmetic that makes them.

    A column holds four Box-Muller pairs (Box and Muller 1958): for uniform u in (0, 1] and a in [-pi, pi],
    sqrt(-2 ln u) cos a and sqrt(-2 ln u) sin a are two independent standard normals. The four cosine normals of a
    column, added and halved, are one sample; the four sine normals are another, independent of the first.

    Why four: a single Box-Muller normal in floating point can be inverted to the few (u, a) that produce it, and the
    gaps between reachable values then tell which of two inputs was released. Of a sum of 2n normals an attacker has to
    search 2n - 1 uniforms, 2^(53 (2n - 1)) = 2^159 cases for n = 2 (arXiv 2107.10138, section 5.1). All arithmetic is
    float64 and is rounded once, to float32.

    Deviation: in the paper and in Opacus the normals of one sample may be both outputs of one pair, which add up to one
    normal only, as cos a + sin a = sqrt(2) cos(a - pi/4). Here the four come from four pairs, and both outputs are
    used, in different samples. One sample depends on eight uniforms, and both samples of a column together leave 2^234
    cases to search: 4 (53 + 32) = 340 bits went in, and two known sums settle at most two radii of 53 bits each.

    Deviation: a radius takes a signed 64-bit word w as u = |w| / 2^63, rounded to 53 significant bits and never 0
    (at least 2^-64), so a normal reaches sqrt(128 ln 2) = 9.41 and a sample 18.8 standard deviations. An angle takes 32
    bits. 2^32 evenly spaced angles give every moment below the 2^32nd of r cos a exactly, and its characteristic
    function at t up to a Bessel function of order 2^32, which is 0 in float64 for |t| r < 10^9.
    """

    def __init__(self, columns: int) -> None:
        """Reserve memory for `columns` (>= 1) columns: 144 bytes each."""
        radius_bytes, angle_bytes = columns * TERMS * _RADIUS_BYTES, columns * TERMS * _ANGLE_BYTES
        words = torch.empty(radius_bytes + angle_bytes, dtype=torch.uint8, device="cpu")
        self.words = words.numpy().data
        self._radius_words = words[:radius_bytes].view(torch.int64).view(TERMS, columns)
        self._angle_words = words[radius_bytes:].view(torch.int32).view(TERMS, columns)
        self._radii = torch.empty(TERMS, columns, dtype=torch.float64, device="cpu")
        self._normals = torch.empty(2, TERMS, columns, dtype=torch.float64, device="cpu")
        self._cosines, self._sines = self._normals
        self._lower, self._upper = self._normals.chunk(2, dim=1)
        self._lower_radii, self._upper_radii = self._radii.chunk(2)
        self._sums, self._other_sums = self._normals[:, :2].unbind(dim=1)

    def combine(self, stddev: float) -> Tensor:
        """Return the samples that `words` holds now: those of the cosines, then those of the sines.

        `words` holds, for each of the four terms, one native int64 radius word a column; then, for each term, one
        native int32 angle word a column. The caller fills it before every call.

        Args:
            stddev: standard deviation of the samples.

        Returns:
            float64, shape (2, columns), overwritten by the next call.
        """
        # stddev / sqrt(TERMS) * sqrt(-2 ln u) = sqrt(-stddev^2 / TERMS * ln u^2): the square needs no absolute value,
        # and the scale stands in place of the sign.
        radii = self._radii.copy_(self._radius_words)
        torch.addcmul(_LEAST, radii, radii, value=_RADIUS_SCALE, out=radii)
        radii.log_().mul_(-(stddev**2) / TERMS).sqrt_()
        angles = self._sines.copy_(self._angle_words).mul_(_ANGLE_SCALE)
        torch.cos(angles, out=self._cosines)
        angles.sin_()
        self._lower.mul_(self._lower_radii).addcmul_(self._upper, self._upper_radii)
        return self._sums.add_(self._other_sums)
