"""A history taken apart: what belongs together is counted together."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from federation.accounting.composition import SampledKind, compose
from federation.accounting.events import History
from tests.federation.accounting.account_contract import gaussian, sampled


def test_gaussian_releases_and_unsampled_steps_are_one_release() -> None:
    found = compose(History.of([gaussian(2), gaussian(2), gaussian(4), sampled(5, 1, 25)]))

    assert found.precision == 0.25 + 0.25 + 0.0625 + 1
    assert (found.gaussians, found.sampled) == (28, ())


def test_steps_of_one_kind_are_counted_together_whatever_release_they_belong_to() -> None:
    found = compose(History.of([sampled(4, 0.1, 20), sampled(4, 0.1, 5), sampled(4, 0.1, 20), sampled(3, 0.1, 1)]))

    assert found.sampled == ((SampledKind(3, 0.1), 1), (SampledKind(4, 0.1), 45))
    assert (found.precision, found.gaussians) == (0.0, 0)


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=30))
def test_no_order_of_releases_changes_the_last_digit(noises: list[float]) -> None:
    one = compose(History.of(gaussian(noise) for noise in noises))
    other = compose(History.of(gaussian(noise) for noise in reversed(noises)))

    assert one == other


def test_noise_too_small_for_a_double_is_infinitely_precise() -> None:
    assert compose(History.of([gaussian(1e-154), gaussian(2e-154)])).precision == math.inf
