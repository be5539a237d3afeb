"""The analytic Gaussian mechanism against high-precision arithmetic and published numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.accounting.gaussian import (
    analytic_noise_multiplier,
    classic_noise_multiplier,
    gaussian_delta,
    gaussian_epsilon,
)
from federation.errors import PrivacyError

mpmath = pytest.importorskip("mpmath")

NAN, INF = math.nan, math.inf


def exact_delta(noise_multiplier: float, epsilon: float) -> float:
    """Theorem 8 of arXiv 1805.06530 with 60 digits."""
    with mpmath.workdps(60):
        mu, bound = 1 / mpmath.mpf(noise_multiplier), mpmath.mpf(epsilon)
        first = mpmath.ncdf(mu / 2 - bound / mu)
        return float(first - mpmath.exp(bound) * mpmath.ncdf(-mu / 2 - bound / mu))


@settings(max_examples=150, deadline=None)
@given(
    logarithm=st.floats(-3, 14),
    deviations=st.floats(-6, 30),
)
def test_delta_agrees_with_sixty_digits(logarithm: float, deviations: float) -> None:
    noise_multiplier = 10**logarithm
    mu = 1 / noise_multiplier
    epsilon = max(0.0, mu * mu / 2 + mu * deviations)

    assert gaussian_delta(noise_multiplier, epsilon) == pytest.approx(
        exact_delta(noise_multiplier, epsilon), rel=1e-8, abs=1e-290
    )


@settings(max_examples=60, deadline=None)
@given(logarithm=st.floats(-3, 5), exponent=st.floats(-250, -0.01))
def test_epsilon_is_the_least_at_which_delta_holds(logarithm: float, exponent: float) -> None:
    noise_multiplier, delta = 10**logarithm, 10**exponent

    epsilon = gaussian_epsilon(noise_multiplier, delta)

    assert exact_delta(noise_multiplier, epsilon) <= delta
    if epsilon > 0:
        assert exact_delta(noise_multiplier, epsilon * (1 - 1e-7)) > delta


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(1e-4, 100), exponent=st.floats(-30, -0.01))
def test_analytic_noise_is_the_least_that_suffices(epsilon: float, exponent: float) -> None:
    delta = 10**exponent

    noise_multiplier = analytic_noise_multiplier(epsilon, delta)

    assert gaussian_epsilon(noise_multiplier, delta) <= epsilon
    assert exact_delta(noise_multiplier, epsilon) <= delta
    assert exact_delta(noise_multiplier * (1 - 1e-7), epsilon) > delta


def test_analytic_noise_for_a_fifth_of_epsilon_is_the_measured_one() -> None:
    assert analytic_noise_multiplier(0.2, 1e-5) == pytest.approx(16.30, abs=0.005)
    assert classic_noise_multiplier(0.2, 1e-5) == pytest.approx(24.22, abs=0.005)


@pytest.mark.parametrize(
    ("epsilon", "delta", "true_delta"),
    [(8, 1e-5, 7.97e-6), (10, 1e-5, 2.27e-5), (8, 1e-3, 1.31e-3), (8, 1e-2, 1.8e-2)],
)
def test_classic_noise_above_one_is_refused_because_its_true_delta_may_be_larger(
    epsilon: float, delta: float, true_delta: float
) -> None:
    classic = math.sqrt(2 * math.log(1.25 / delta)) / epsilon

    assert gaussian_delta(classic, epsilon) == pytest.approx(true_delta, rel=0.02)
    with pytest.raises(PrivacyError, match=r"epsilon=.* <= 1 for the classic formula"):
        classic_noise_multiplier(epsilon, delta)


@given(epsilon=st.floats(1e-6, 1, exclude_min=True), exponent=st.floats(-30, -0.001))
def test_classic_noise_holds_up_to_one(epsilon: float, exponent: float) -> None:
    delta = 10**exponent

    assert gaussian_delta(classic_noise_multiplier(epsilon, delta), epsilon) <= delta


@pytest.mark.parametrize(
    ("noise_multiplier", "delta", "epsilon"),
    [
        (1e300, 1e-5, 0.0),
        (5, 1 - 1e-16, 0.0),
        (1e-310, 1e-5, INF),
        (1e-160, 0.5, INF),
        (1e-150, 1e-5, 5e299),
        (1e6, 1e-300, 3.657e-5),
    ],
)
def test_epsilon_survives_arguments_at_the_ends_of_the_doubles(
    noise_multiplier: float, delta: float, epsilon: float
) -> None:
    assert gaussian_epsilon(noise_multiplier, delta) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize(
    ("noise_multiplier", "epsilon", "delta"), [(1e-310, 1, 1.0), (1e305, 1e10, 0.0), (1e-310, 0, 1.0)]
)
def test_delta_survives_arguments_at_the_ends_of_the_doubles(
    noise_multiplier: float, epsilon: float, delta: float
) -> None:
    assert gaussian_delta(noise_multiplier, epsilon) == delta


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.5, NAN, INF])
@pytest.mark.parametrize(
    "ask",
    [
        lambda delta: gaussian_epsilon(1.0, delta),
        lambda delta: analytic_noise_multiplier(1.0, delta),
        lambda delta: classic_noise_multiplier(1.0, delta),
    ],
)
def test_impossible_delta_is_refused(ask: Callable[[float], float], delta: float) -> None:
    with pytest.raises(PrivacyError, match=r"Expected 0 < delta=.* < 1\."):
        ask(delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, NAN, INF])
@pytest.mark.parametrize("ask", [analytic_noise_multiplier, classic_noise_multiplier])
def test_impossible_epsilon_is_refused(ask: Callable[[float, float], float], epsilon: float) -> None:
    with pytest.raises(PrivacyError, match=r"Expected a finite epsilon=.* > 0\."):
        ask(epsilon, 1e-5)


@pytest.mark.parametrize("epsilon", [-1e-9, NAN, INF])
def test_delta_of_an_impossible_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(PrivacyError, match=r"Expected a finite epsilon=.* >= 0\."):
        gaussian_delta(1.0, epsilon)


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, NAN, INF])
@pytest.mark.parametrize("ask", [gaussian_delta, gaussian_epsilon])
def test_impossible_noise_is_refused(ask: Callable[[float, float], float], noise_multiplier: float) -> None:
    with pytest.raises(PrivacyError, match=r"Expected a finite noise_multiplier=.* > 0\."):
        ask(noise_multiplier, 0.5)
