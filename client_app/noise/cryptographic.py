"""Noise for production: every draw comes from an AES-256 keystream under the operating system's keys; no seed."""

from __future__ import annotations

import itertools
from typing import NoReturn, SupportsIndex, final

import torch
from torch import Tensor

from client_app.noise.box_muller import BoxMullerBlock
from client_app.noise.draw_bounds import count_normals, require_count
from client_app.noise.keystream import Keystream

# Samples made at a time: enough to hide the cost of a call, few enough for the caches (2.4 MB).
_CHUNK = 1 << 15
_UNIFORM_BITS = 53


@final
class CryptographicNoise:
    """The noise source of a deployed hospital. Threads may share it.

    Guarantee:
        Bounded quantity: the advantage of an observer who knows everything else in the program, all seeds and the
        state of all global generators included, in telling the draws from independent ideal ones rounded in the same
        way; it is that of `Keystream`. No draw repeats after a fork or a restart, and none can be repeated on purpose:
        there is no seed, and the source can be neither pickled nor copied. Unit: one draw. Each Gaussian sample is a
        sum of four normals, which makes inverting it a search of 2^234 cases (see `BoxMullerBlock`).

    Not guaranteed:
        A Gaussian distribution on the real numbers: samples are float32, hence discrete, and end at 18.8 standard
        deviations. Adding them to a float32 value rounds once more, on a grid that depends on that value; the sum of
        normals hides which uniforms were drawn, it does not make the addition exact. The time of a draw depends on
        its size alone as far as this code goes, but processor and library may differ. A compromised generator of the
        operating system, or a machine resumed twice from one snapshot, voids all of it.
    """

    __slots__ = ("_keystream",)

    def __init__(self) -> None:
        """Take no argument: there is nothing a caller could set that would not weaken the noise."""
        self._keystream = Keystream()

    def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> Tensor:
        """Return float32 Gaussian noise of mean 0 on `device`. Memory beyond the result is bounded.

        Args:
            shape: of the result.
            stddev: standard deviation: 0 for none, otherwise within the bounds of `draw_bounds`.
            device: where the result goes; the draws are made on the CPU.

        Raises:
            PrivacyError: `stddev` or a size is impossible; nothing was drawn.
        """
        count = count_normals(shape, stddev)
        if count == 0 or stddev == 0:
            return torch.zeros(shape, dtype=torch.float32, device=device)
        samples = torch.empty(count, dtype=torch.float32, device="cpu")
        chunks = -(-count // _CHUNK)
        columns = -(-count // (2 * chunks))
        block = BoxMullerBlock(columns)
        halves = samples.split(columns)
        for cosines, sines in itertools.zip_longest(halves[::2], halves[1::2], fillvalue=samples[:0]):
            self._keystream.fill(block.words)
            made = block.combine(float(stddev))
            cosines.copy_(made[0, : len(cosines)])
            sines.copy_(made[1, : len(sines)])
        return samples.view(shape).to(device)

    def uniform(self, count: int) -> Tensor:
        """Return `count` float64 numbers on the CPU: multiples of 2^-53 in [0, 1), each equally likely.

        Raises:
            PrivacyError: `count` is negative.
        """
        words = torch.empty(require_count(count), dtype=torch.int64, device="cpu")
        self._keystream.fill(words.view(torch.uint8).numpy().data)
        kept = words.bitwise_and_((1 << _UNIFORM_BITS) - 1)
        return kept.to(torch.float64).mul_(2.0**-_UNIFORM_BITS)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "Cannot copy or pickle a noise source: the copy would repeat its noise. Build one where it is used."
        )
