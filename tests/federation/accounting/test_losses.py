"""Sampled steps' loss distributions, found at once: the same as dp-accounting finds point by point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from federation.accounting.composition import SampledKind
from federation.accounting.losses import step_loss


def masses(distribution: Any) -> list[tuple[int, Any, float]]:
    """The grid's lower end, the masses and the mass at infinity, when a unit is removed and when one is added."""
    dense = [distribution._pmf_remove.to_dense_pmf(), distribution._pmf_add.to_dense_pmf()]
    return [(item._lower_loss, item._probs, item._infinity_mass) for item in dense]


@pytest.mark.parametrize(
    ("noise_multiplier", "probability"),
    [
        (1.1, 0.0123),
        (5.0, 0.5),
        (30.0, 0.999),
        (50.0, 1e-4),
        (4.0, 1e-9),
        pytest.param(0.3, 1e-5, marks=pytest.mark.slow),
        pytest.param(0.7, 0.3, marks=pytest.mark.slow),
        pytest.param(1.0, 0.95, marks=pytest.mark.slow),
    ],
)
def test_step_has_the_distribution_that_dp_accounting_finds(noise_multiplier: float, probability: float) -> None:
    found = masses(step_loss(SampledKind(noise_multiplier, probability)))

    expected = masses(from_gaussian_mechanism(noise_multiplier, sampling_prob=probability))
    for (low, mass, infinite), (expected_low, expected_mass, expected_infinite) in zip(found, expected, strict=True):
        assert low == expected_low
        # A rounding error of delta, 1e-16, is divided by the grid's interval, 1e-4.
        np.testing.assert_allclose(mass, expected_mass, atol=2e-11, rtol=0)
        assert infinite == pytest.approx(expected_infinite, abs=1e-20)
        assert np.sum(mass) == pytest.approx(np.sum(expected_mass), abs=1e-13)
