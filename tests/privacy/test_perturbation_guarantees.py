"""What `perturb_update` guarantees, restated: bound, relation and unit, and one price however it is divided."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from client_app.noise.simulated import SimulatedNoise
from client_app.perturbation import perturb_update
from client_app.perturbation.schedule import plan_noise_multiplier
from federation.accounting.accounts import ACCOUNTS
from federation.accounting.events import GaussianRelease, History
from federation.accounting.gaussian import gaussian_delta
from federation.config import PrivacyConfig
from federation.parameters import Parameters

DELTA = 1e-5
TRIALS = 2500


def settings_of(**privacy: Any) -> PrivacyConfig:
    return PrivacyConfig.model_validate({"mechanism": "update-gaussian", **privacy})


class NoNoise:
    """Remembers the standard deviations that were asked for and draws zeros."""

    def __init__(self) -> None:
        self.stddevs: list[float] = []

    def normal(self, shape: Any, stddev: float, *, device: torch.device) -> torch.Tensor:
        self.stddevs.append(stddev)
        return torch.zeros(shape, device=device)

    def uniform(self, count: int) -> torch.Tensor:
        raise NotImplementedError


def whitened_distance(left: Parameters, right: Parameters, privacy: PrivacyConfig, multiplier: float) -> float:
    """Return the distance of two releases' means in standard deviations: the only thing privacy depends on."""
    total = 0.0
    order = [["b"], ["a", "c"]] if privacy.layer_shares.startswith("b") else [["a", "b", "c"]]
    means, noises = [], []
    for update in (left, right):
        noise = NoNoise()
        means.append(perturb_update(update, privacy=privacy, noise_multiplier=multiplier, noise=noise))
        noises.append(noise.stddevs)
    assert noises[0] == noises[1]
    names = [name for group in order for name in group]
    for name, stddev in zip(names, noises[0], strict=True):
        total += float(((means[0][name].double() - means[1][name].double()) / stddev).square().sum())
    return math.sqrt(total)


def updates() -> st.SearchStrategy[Parameters]:
    values = st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=2).map(torch.tensor)
    return st.fixed_dictionaries({"a": values, "b": values, "c": values})


@settings(deadline=None)
@given(
    updates(), updates(), st.sampled_from(["", "b=0.8,*=0.2", "b=1/3,*=2/3"]), st.floats(0.1, 30), st.floats(0.01, 10)
)
def test_neighbours_differ_by_at_most_one_over_the_multiplier(
    mine: Parameters, other: Parameters, shares: str, multiplier: float, clip_norm: float
) -> None:
    nothing = {name: torch.zeros_like(value) for name, value in mine.items()}
    zero_out = settings_of(layer_shares=shares, clip_norm=clip_norm, relation="zero-out")
    replace_one = settings_of(layer_shares=shares, clip_norm=clip_norm, relation="replace-one")

    assert whitened_distance(mine, nothing, zero_out, multiplier) <= 1 / multiplier * (1 + 1e-7)
    assert whitened_distance(mine, other, replace_one, multiplier) <= 1 / multiplier * (1 + 1e-7)


@pytest.mark.parametrize("shares", ["", "b=0.8,*=0.2"])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_bound_is_reached_so_no_noise_is_wasted(shares: str, relation: str) -> None:
    mine = {name: torch.tensor([50.0, -20.0]) for name in "abc"}
    other = {name: -value if relation == "replace-one" else value * 0 for name, value in mine.items()}

    distance = whitened_distance(mine, other, settings_of(layer_shares=shares, relation=relation), 3.0)

    assert distance == pytest.approx(1 / 3, rel=1e-5)


@pytest.mark.parametrize("shares", ["", "b=0.8,*=0.2"])
def test_best_attack_on_real_releases_wins_no_more_than_the_guarantee_allows(shares: str) -> None:
    privacy, multiplier = settings_of(layer_shares=shares), 0.8
    noise = SimulatedNoise(11)
    mine = {name: torch.tensor([3.0, -2.0]) for name in "abc"}
    worlds = {"in": mine, "out": {name: torch.zeros(2) for name in "abc"}}
    silent = NoNoise()
    mean = perturb_update(mine, privacy=privacy, noise_multiplier=multiplier, noise=silent)
    order = ["b", "a", "c"] if shares else ["a", "b", "c"]
    weights = {name: mean[name].double() / stddev**2 for name, stddev in zip(order, silent.stddevs, strict=True)}

    scores = {
        world: np.array(
            [
                sum(float(weights[name].dot(value.double())) for name, value in released.items())
                for released in (
                    perturb_update(update, privacy=privacy, noise_multiplier=multiplier, noise=noise)
                    for _ in range(TRIALS)
                )
            ]
        )
        for world, update in worlds.items()
    }

    # The likelihood ratio of neighbours separates them by 1 / multiplier standard deviations, no more and no less.
    separation = (scores["in"].mean() - scores["out"].mean()) / scores["out"].std()
    assert separation == pytest.approx(1 / multiplier, abs=5 / math.sqrt(TRIALS))
    for epsilon in (0.0, 0.5, 1.0):
        for threshold in np.quantile(scores["out"], np.linspace(0.02, 0.98, 25)):
            caught, false_alarms = ((scores[world] > threshold).mean() for world in ("in", "out"))
            slack = 4 * math.exp(epsilon) / math.sqrt(TRIALS)
            assert caught - math.exp(epsilon) * false_alarms <= gaussian_delta(multiplier, epsilon) + slack


@pytest.mark.parametrize("parts", [(0.8, 0.2), (1 / 3, 1 / 3, 1 / 3), (0.05, 0.15, 0.3, 0.5)])
@pytest.mark.parametrize("multiplier", [0.6, 3.0, 24.22])
def test_groups_accounted_one_by_one_cost_what_the_one_release_costs(
    parts: tuple[float, ...], multiplier: float
) -> None:
    groups = History.of(GaussianRelease(noise_multiplier=multiplier / math.sqrt(share)) for share in parts)
    whole = History.of([GaussianRelease(noise_multiplier=multiplier)])

    for account in (ACCOUNTS["rdp"], ACCOUNTS["pld"]):
        for count in (1, 30):
            apart = account.epsilon(History({event: count * times for event, times in groups.counts.items()}), DELTA)
            together = account.epsilon(History(dict.fromkeys(whole.counts, count)), DELTA)
            assert apart == pytest.approx(together, rel=1e-5)


def test_planned_updates_stay_within_the_cap_as_one_gaussian_release() -> None:
    privacy = settings_of(layer_shares="b=0.8,*=0.2")

    multiplier = plan_noise_multiplier(
        privacy,
        lambda noise_multiplier: GaussianRelease(noise_multiplier=noise_multiplier),
        spent=History(), released=0, planned=30, cap=4.0, delta=DELTA, account=ACCOUNTS["pld"],
    )  # fmt: skip

    assert gaussian_delta(multiplier / math.sqrt(30), 4.0) <= DELTA
