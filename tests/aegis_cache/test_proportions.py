"""How often each class occurs among synthetic images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis_cache.proportions import SMOOTHED, class_proportions

COUNTS = st.lists(st.integers(0, 10_000), min_size=1, max_size=30).filter(any)


@given(COUNTS)
def test_shares_sum_to_one_and_smoothed_ones_lie_between_the_others(counts: list[int]) -> None:
    own = np.array(counts)

    as_train, smoothed, balanced = (
        class_proportions(labels, own, len(counts)) for labels in ("as-train", "smoothed", "balanced")
    )

    for shares in (as_train, smoothed, balanced):
        assert shares.sum() == pytest.approx(1)
    assert as_train == pytest.approx(own / own.sum())
    assert balanced == pytest.approx(np.full(len(counts), 1 / len(counts)))
    assert (smoothed >= np.minimum(as_train, balanced) - 1e-12).all()
    assert (smoothed <= np.maximum(as_train, balanced) + 1e-12).all()


def test_lacking_class_has_its_part_of_an_eighth() -> None:
    shares = class_proportions("smoothed", np.array([30, 10, 0, 0]), 4)

    assert shares == pytest.approx([0.875 * 0.75 + 0.03125, 0.875 * 0.25 + 0.03125, 0.03125, 0.03125])
    assert SMOOTHED == 0.125


def test_balanced_needs_no_private_label() -> None:
    assert class_proportions("balanced", None, 4).tolist() == [0.25] * 4


@pytest.mark.parametrize("labels", ["as-train", "smoothed"])
@pytest.mark.parametrize("own", [None, np.zeros(4, dtype=np.int64)])
def test_others_need_images_of_the_hospital(labels: str, own: np.ndarray | None) -> None:
    with pytest.raises(ValueError, match="own for labels"):
        class_proportions(labels, own, 4)  # type: ignore[arg-type]
