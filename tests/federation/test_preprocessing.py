"""Stored bytes become the numbers that a network sees."""

from __future__ import annotations

import torch

from federation.preprocessing import to_unit_interval


def test_every_byte_becomes_its_share_of_255() -> None:
    stored = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)

    seen = to_unit_interval(stored)

    torch.testing.assert_close(seen.double().flatten(), torch.arange(256).double() / 255, rtol=1e-7, atol=0)
    assert seen.dtype == torch.float32
    assert (seen.min().item(), seen.max().item()) == (0.0, 1.0)


def test_stored_images_stay_as_they_are() -> None:
    stored = torch.full((2, 3, 4, 4), 200, dtype=torch.uint8)

    to_unit_interval(stored)

    assert torch.equal(stored, torch.full((2, 3, 4, 4), 200, dtype=torch.uint8))
