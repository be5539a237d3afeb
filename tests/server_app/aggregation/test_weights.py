"""Size factors: the number of images, its square root, or one for all."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.config import AggregationConfig
from server_app.aggregation.weights import size_factor


@given(st.integers(1, 10**9))
def test_factor_is_the_number_of_images_its_root_or_one(examples: int) -> None:
    assert size_factor(examples, "examples") == examples
    assert size_factor(examples, "sqrt") == math.sqrt(examples)
    assert size_factor(examples, "uniform") == 1.0


@pytest.mark.parametrize("weighting", get_args(AggregationConfig.model_fields["weighting"].annotation))
def test_every_weighting_that_can_be_configured_has_a_factor(weighting: str) -> None:
    assert size_factor(4, weighting) > 0


@pytest.mark.parametrize(("weighting", "share"), [("examples", 0.0079), ("sqrt", 0.0821), ("uniform", 0.5)])
def test_share_of_800_images_beside_100_000(weighting: str, share: float) -> None:
    small, large = size_factor(800, weighting), size_factor(100_000, weighting)

    assert small / (small + large) == pytest.approx(share, abs=5e-5)
