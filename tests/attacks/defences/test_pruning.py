"""Exactly the named share of each tensor is gone, and it is the share of smallest magnitude."""

from __future__ import annotations

import pytest
import torch

from attacks.defences.defence import Defence
from attacks.defences.pruning import Pruning, prune_smallest
from federation.errors import DataError
from tests.attacks.defences.made_up_steps import gradient_of, make_network, make_step


@pytest.mark.parametrize(
    ("share", "size", "kept"),
    [(0.8, 10, 2), (0.9, 10, 1), (0.29, 100, 71), (0.8, 11, 3), (0.8, 1, 1), (0.0, 7, 7), (0.999, 3, 1)],
)
def test_number_kept_is_size_minus_floor_of_share(share: float, size: int, kept: int) -> None:
    values = 1 + torch.rand(size, generator=torch.Generator().manual_seed(size))

    assert int((prune_smallest(values, share) != 0).sum()) == kept


def test_largest_magnitudes_are_kept_as_they_are_whatever_their_sign() -> None:
    values = torch.tensor([[0.1, -5.0, 0.0], [4.0, -0.2, 0.3]])

    assert prune_smallest(values, 0.5).tolist() == [[0, -5, 0], [4, 0, pytest.approx(0.3)]]


def test_equal_magnitudes_are_not_all_kept() -> None:
    assert int((prune_smallest(torch.ones(10), 0.8) != 0).sum()) == 2


def test_every_tensor_is_pruned_on_its_own_and_the_gradient_stays() -> None:
    step = make_step(make_network())
    gradient = {"large": torch.arange(1.0, 11.0), "small": torch.arange(1.0, 11.0) / 1000}

    protected = Pruning(share=0.8).protect(gradient, step)

    for name, value in gradient.items():
        assert protected[name].nonzero().flatten().tolist() == [8, 9]
        assert int((value != 0).sum()) == 10


def test_share_of_zero_changes_nothing() -> None:
    step = make_step(make_network())
    gradient = gradient_of(step, Defence())

    protected = Pruning(share=0.0).protect(gradient, step)

    assert all(torch.equal(protected[name], value) for name, value in gradient.items())


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(DataError, match="at least 0 and below 1"):
        Pruning(share=share)
