"""What the accounting guarantees, restated with arithmetic of its own: true probabilities of what is released."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from federation.accounting.accounts import ACCOUNTS, Account
from federation.accounting.events import Event, GaussianRelease, History, Relation, SampledGaussianRelease, Unit
from federation.accounting.gaussian import (
    analytic_noise_multiplier,
    classic_noise_multiplier,
    gaussian_delta,
    gaussian_epsilon,
)
from federation.accounting.inversion import smallest_noise_multiplier
from federation.accounting.mechanism import Mechanism

Masses = NDArray[np.float64]

_CELLS = 4_000


def normal_masses(noise: float, mean: float, cells: int = _CELLS) -> Masses:
    """Probabilities of the cells into which the outcomes are cut: merging outcomes can only lower delta."""
    edges = np.linspace(-12 * noise - 2, 12 * noise + 2, cells + 1)
    scaled = (edges - mean) / (noise * math.sqrt(2))
    below, above = (np.array([math.erfc(value) / 2 for value in values]) for values in (-scaled, scaled))
    # Each tail by its own function, or rounding errors near 1 would be multiplied by exp(epsilon).
    return np.where(scaled[:-1] < 0, np.diff(below), -np.diff(above))


def true_delta(one: Masses, other: Masses, epsilon: float) -> float:
    """The largest difference P(S) - exp(epsilon) P'(S) over all sets of outcomes, either way round."""
    bound = math.exp(epsilon)
    return float(max(np.maximum(one - bound * other, 0).sum(), np.maximum(other - bound * one, 0).sum()))


def sampled_pair(noise: float, probability: float, cells: int = _CELLS) -> tuple[Masses, Masses]:
    """Outcomes without the unit, and with it, when it enters with `probability`."""
    without, inside = normal_masses(noise, 0.0, cells), normal_masses(noise, 1.0, cells)
    return without, (1 - probability) * without + probability * inside


@settings(max_examples=30, deadline=None)
@given(noise=st.floats(0.3, 20), delta=st.floats(1e-5, 0.3))
def test_one_gaussian_release_is_private_at_the_epsilon_and_delta_it_is_said_to_cost(
    noise: float, delta: float
) -> None:
    pair = normal_masses(noise, 0.0), normal_masses(noise, 1.0)

    epsilon = gaussian_epsilon(noise, delta)

    assert true_delta(*pair, epsilon) <= delta
    assert true_delta(*pair, epsilon) == pytest.approx(gaussian_delta(noise, epsilon), abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(epsilon=st.floats(0.05, 1), delta=st.floats(1e-5, 0.1))
def test_calibrated_noise_makes_one_release_private(epsilon: float, delta: float) -> None:
    for calibrate in (analytic_noise_multiplier, classic_noise_multiplier):
        noise = calibrate(epsilon, delta)

        assert true_delta(normal_masses(noise, 0.0), normal_masses(noise, 1.0), epsilon) <= delta


@pytest.mark.parametrize("account", ACCOUNTS.values(), ids=list(ACCOUNTS))
@settings(max_examples=25, deadline=None)
@given(noises=st.lists(st.floats(1, 60), min_size=1, max_size=60), delta=st.floats(1e-4, 0.1))
def test_history_of_gaussian_releases_is_private_at_the_epsilon_of_every_account(
    account: Account, noises: list[float], delta: float
) -> None:
    """The likelihood ratio of independent normal outcomes is that of their sum weighted by 1 / noise^2."""
    history = History.of(GaussianRelease(noise_multiplier=noise) for noise in noises)
    joint = sum(1 / noise**2 for noise in noises) ** -0.5

    epsilon = account.epsilon(history, delta)

    assert true_delta(normal_masses(joint, 0.0), normal_masses(joint, 1.0), epsilon) <= delta


@pytest.mark.parametrize("account", ACCOUNTS.values(), ids=list(ACCOUNTS))
@pytest.mark.parametrize(("noise", "probability"), [(4.0, 0.1), (3.0, 0.5), (10.0, 0.02)])
def test_one_step_of_dp_sgd_is_private_whether_a_unit_is_added_or_removed(
    account: Account, noise: float, probability: float
) -> None:
    step = SampledGaussianRelease(noise_multiplier=noise, sampling_probability=probability, steps=1)

    for delta in (1e-4, 1e-3, 1e-2):
        epsilon = account.epsilon(History.of([step]), delta)

        assert true_delta(*sampled_pair(noise, probability), epsilon) <= delta


@pytest.mark.parametrize("account", ACCOUNTS.values(), ids=list(ACCOUNTS))
def test_steps_of_dp_sgd_beside_a_release_are_private_together(account: Account) -> None:
    """Three outcomes at once on a coarser grid, because nothing simpler stands for them together."""
    noise, probability, beside = 3.0, 0.3, 5.0
    events: list[Event] = [
        SampledGaussianRelease(noise_multiplier=noise, sampling_probability=probability, steps=2),
        GaussianRelease(noise_multiplier=beside),
    ]
    without, inside = sampled_pair(noise, probability, 100)
    away, near = normal_masses(beside, 0.0, 100), normal_masses(beside, 1.0, 100)
    one = np.einsum("a,b,c->abc", without, without, away)
    other = np.einsum("a,b,c->abc", inside, inside, near)

    for delta in (1e-3, 1e-2):
        epsilon = account.epsilon(History.of(events), delta)

        assert 0 < true_delta(one, other, epsilon) <= delta


@pytest.mark.parametrize("account", ACCOUNTS.values(), ids=list(ACCOUNTS))
def test_noise_found_for_a_plan_keeps_its_epsilon(account: Account) -> None:
    noise = smallest_noise_multiplier(
        lambda multiplier: GaussianRelease(noise_multiplier=multiplier),
        releases=9, epsilon=1.5, delta=1e-3, account=account,
    )  # fmt: skip

    joint = noise / 3
    assert true_delta(normal_masses(joint, 0.0), normal_masses(joint, 1.0), 1.5) <= 1e-3


@given(
    clip_norm=st.floats(0.01, 100),
    contributions=st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=6),
    other=st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3),
)
def test_no_two_neighbours_move_a_clipped_sum_further_than_the_sensitivity(
    clip_norm: float, contributions: list[list[float]], other: list[float]
) -> None:
    def clipped(vector: list[float]) -> NDArray[np.float64]:
        values = np.array(vector)
        return values * min(1.0, clip_norm / max(float(np.linalg.norm(values)), 1e-300))

    total = sum(clipped(vector) for vector in contributions)
    neighbours = {
        Relation.ADD_REMOVE: total - clipped(contributions[0]),
        Relation.ZERO_OUT: total - clipped(contributions[0]),
        Relation.REPLACE_ONE: total - clipped(contributions[0]) + clipped(other),
    }

    for relation, neighbour in neighbours.items():
        mechanism = Mechanism(name="update-gaussian", relation=relation, unit=Unit.UPDATE, clip_norm=clip_norm)
        assert np.linalg.norm(total - neighbour) <= mechanism.sensitivity * (1 + 1e-9)
