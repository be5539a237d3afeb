"""The sum is by name, a missing name counts as zero, and no update is changed."""

from __future__ import annotations

import pytest
import torch

from attacks.defences.secure_aggregation import sum_updates
from federation.errors import DataError, ModelError


def test_sum_is_by_name_and_a_missing_name_counts_as_zero() -> None:
    first = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[5.0]])}
    second = {"c": torch.tensor(7.0), "a": torch.tensor([10.0, 20.0])}

    total = sum_updates([first, second, {"b": torch.tensor([[1.0]])}])

    assert {name: value.tolist() for name, value in total.items()} == {"a": [11, 22], "b": [[6]], "c": 7}
    assert list(total) == ["a", "b", "c"]


def test_updates_stay_as_they_were() -> None:
    only, other = {"a": torch.ones(2)}, {"a": torch.ones(2)}

    sum_updates([only, other])["a"].zero_()
    sum_updates([only])["a"].zero_()

    assert only["a"].tolist() == other["a"].tolist() == [1, 1]


def test_different_shapes_are_refused_even_where_they_would_broadcast() -> None:
    with pytest.raises(ModelError, match=r"Expected a of shape \(2,\), found \(1,\)"):
        sum_updates([{"a": torch.ones(2)}, {"a": torch.ones(1)}])


def test_no_update_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="at least one"):
        sum_updates([])
