"""Scores are releases: noise on the number of correct answers, planned over all evaluations of a run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from client_app.noise.simulated import SimulatedNoise
from client_app.policy import SitePolicy, read_policy
from client_app.releasing import Bill
from client_app.scoring import blur, evaluations, plan_scoring
from client_app.site import DeployedHospital, SimulatedSite, Site
from federation.accounting.accounts import account_of
from federation.accounting.events import GaussianRelease, History, Relation, Unit
from federation.config import Configuration, DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo, Task
from federation.errors import BudgetExhaustedError, SiteError, SiteErrorCode
from federation.metrics import Scores
from tests.client_app.calls import deployed_node, make_images
from tests.client_app.test_protection import exact_delta

INFO = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("a", "b", "c"), channels=1, height=6, width=6)
SCORES = Scores(accuracy=0.5, auroc=0.9, loss=1.5, examples=1000)
DELTA = 1e-5


class FixedNoise:
    """A source whose every draw is `value` standard deviations, so that what is added can be read off."""

    def __init__(self, value: float) -> None:
        self.value = value

    def normal(self, shape: tuple[int, ...], stddev: float, *, device: torch.device) -> Tensor:
        return torch.full(shape, self.value * stddev, device=device)

    def uniform(self, count: int) -> Tensor:
        raise AssertionError(count)


def dataset(*, given_split: bool = True) -> Dataset:
    images = make_images(30)
    return Dataset(info=INFO, train=images, validation=images, test=images, given_split=given_split)


def configuration(**privacy: Any) -> Configuration:
    table = {"mechanism": "dp-sgd", "epsilon": 8.0, "delta": DELTA} | privacy
    evaluated = table.get("unit") != "patient"
    return Configuration.model_validate(
        {"privacy": table, "aggregation": {"rounds": 5}, "run": {"hospital-evaluation": evaluated}}
    )


def hospital(folder: Path, **tables: Any) -> DeployedHospital:
    policy = read_policy(Path(deployed_node(folder, **tables)["site_policy"]))
    return DeployedHospital(hospital_id="north", data=DataConfig(), policy=policy)


def simulated(policy: SitePolicy | None = None) -> SimulatedSite:
    return SimulatedSite(
        hospital_id="north", data=DataConfig(), partition=0, partitions=1, seed=0, run="run", run_seed=0,
        seeded_noise=True, state_dir=Path("/nowhere"), policy=policy,
    )  # fmt: skip


def plan(
    site: Site,
    settings: Configuration,
    split: str = "validation",
    *,
    given_split: bool = True,
    before: History | None = None,
) -> Bill:
    data = dataset(given_split=given_split)
    return plan_scoring(site, settings, data, data.validation, split, before=before or History())


def multiplier_of(site: Site, settings: Configuration, split: str = "validation") -> float:
    event = plan(site, settings, split).event
    assert isinstance(event, GaussianRelease)
    return event.noise_multiplier


@pytest.mark.parametrize("noise_multiplier", [2.0, 20.0])
def test_noise_on_accuracy_has_the_multiplier_over_the_number_of_images_as_its_deviation(
    noise_multiplier: float,
) -> None:
    noise, event = SimulatedNoise(7), GaussianRelease(noise_multiplier=noise_multiplier)

    accuracies = np.array([blur(SCORES, event, noise).accuracy for _ in range(4000)])

    # Of 4000 draws, the deviation's own standard error is 1/sqrt(8000) of it, and the mean's 1/sqrt(4000).
    expected = noise_multiplier / SCORES.examples
    assert accuracies.std() == pytest.approx(expected, rel=5 / math.sqrt(8000))
    assert accuracies.mean() == pytest.approx(0.5, abs=5 * expected / math.sqrt(4000))


def test_one_image_moves_the_count_by_at_most_one_and_so_less_than_the_noise() -> None:
    event = GaussianRelease(noise_multiplier=3.0)

    blurred = blur(replace(SCORES, accuracy=0.25), event, FixedNoise(2.0))

    assert blurred.accuracy == pytest.approx((250 + 2 * 3.0) / 1000, abs=1e-12)


def test_auroc_and_loss_stay_at_home_and_the_number_of_images_is_told() -> None:
    blurred = blur(SCORES, GaussianRelease(noise_multiplier=1.0), SimulatedNoise(1))

    assert (blurred.auroc, blurred.loss, blurred.examples) == (None, None, 1000)


@pytest.mark.parametrize(("value", "expected"), [(1e6, 1.0), (-1e6, 0.0), (0.0, 0.5)])
def test_accuracy_stays_a_share(value: float, expected: float) -> None:
    assert blur(SCORES, GaussianRelease(noise_multiplier=1.0), FixedNoise(value)).accuracy == expected


@pytest.mark.parametrize(("rounds", "every"), [(1, 1), (5, 1), (5, 2), (6, 3), (5, 0), (1, 7), (20, 7)])
def test_plan_counts_at_least_the_evaluations_that_a_run_makes(rounds: int, every: int) -> None:
    settings = Configuration.model_validate({"aggregation": {"rounds": rounds}, "run": {"evaluate-every": every}})
    scored = {version for version in range(rounds + 1) if version == rounds or (every and version % every == 0)}

    assert len(scored) <= evaluations(settings, "validation") <= len(scored) + 1
    assert evaluations(settings, "test") == 1


@pytest.mark.parametrize("split", ["validation", "test"])
def test_all_planned_evaluations_together_stay_within_the_budget_and_waste_little(split: str) -> None:
    settings = configuration(epsilon=1.0)

    multiplier = multiplier_of(simulated(), settings, split)

    # Several Gaussian releases are one whose multiplier is smaller by the root of their number.
    together = multiplier / math.sqrt(evaluations(settings, split))
    assert exact_delta(together, 1.0) <= DELTA
    assert exact_delta(together * 0.97, 1.0) > DELTA


@pytest.mark.parametrize(
    ("asked", "privacy", "evaluation", "expected"),
    [(5.0, 0.0, 0.0, 5.0), (5.0, 7.0, 0.0, 7.0), (5.0, 0.0, 9.0, 9.0), (5.0, 9.0, 7.0, 9.0), (5.0, 1.0, 1.0, 5.0)],
)
def test_more_noise_of_policy_and_request_wins(
    tmp_path: Path, asked: float, privacy: float, evaluation: float, expected: float
) -> None:
    site = hospital(
        tmp_path, privacy={"min-noise-multiplier": privacy}, evaluation={"min-noise-multiplier": evaluation}
    )  # fmt: skip

    assert multiplier_of(site, configuration(**{"evaluation-noise-multiplier": asked})) == expected


def test_smaller_budget_and_delta_of_policy_and_request_win(tmp_path: Path) -> None:
    site = hospital(tmp_path, privacy={"max-epsilon": 2.0, "max-delta": DELTA / 10})

    bill = plan(site, configuration(), "test")

    assert (bill.cap, bill.budget, bill.delta) == (2.0, 2.0, DELTA / 10)
    assert plan(site, configuration(epsilon=1.0), "test").budget == 1.0
    multiplier = multiplier_of(site, configuration(), "test")
    assert exact_delta(multiplier, 2.0) <= DELTA / 10 < exact_delta(multiplier * 0.97, 2.0)


def test_every_split_is_data_of_its_own_and_protects_one_image(tmp_path: Path) -> None:
    bills = [plan(hospital(tmp_path), configuration(), name) for name in ("validation", "test")]

    assert [bill.data_set for bill in bills] == ["scans:validation", "scans:test"]
    assert {(bill.mechanism.name, bill.mechanism.relation, bill.mechanism.unit) for bill in bills} == {
        ("metrics", Relation.ADD_REMOVE, Unit.RECORD)
    }
    assert {bill.mechanism.sensitivity for bill in bills} == {1.0}


def test_split_that_was_drawn_over_the_hospitals_files_is_not_scored_under_a_mechanism(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="a pool") as refused:
        plan(hospital(tmp_path), configuration(), given_split=False)

    assert refused.value.code is SiteErrorCode.POLICY_METRICS
    assert plan(simulated(), configuration(), given_split=False).event is not None
    assert plan(hospital(tmp_path), configuration(mechanism="none"), given_split=False).event is None


def test_scores_are_refused_where_patients_are_to_be_protected() -> None:
    with pytest.raises(SiteError, match="single images only") as refused:
        plan(simulated(), configuration(unit="patient"))

    assert refused.value.code is SiteErrorCode.PLAN_REFUSED


def test_bound_per_release_and_account_of_the_policy_hold_for_scores(tmp_path: Path) -> None:
    bounded = hospital(tmp_path, privacy={"max-epsilon-per-release": 0.5})
    linear = hospital(tmp_path, privacy={"account": "linear"})
    noisy = configuration(**{"evaluation-noise-multiplier": 1.0})

    found = multiplier_of(bounded, noisy)

    assert exact_delta(found, 0.5) <= DELTA < exact_delta(found * 0.97, 0.5)
    assert plan(linear, noisy).account == "linear"
    assert plan(bounded, noisy).account == "pld"


def test_budget_that_no_noise_can_meet_is_an_exhausted_one() -> None:
    with pytest.raises(BudgetExhaustedError, match="room for 7 releases"):
        plan(simulated(), configuration(epsilon=1e-9))


def test_last_bits_of_a_noised_accuracy_tell_nothing_of_the_number_of_correct_answers() -> None:
    """Sums of a number and noise in floats differ in which floats they can be; whole numbers do not."""
    event = GaussianRelease(noise_multiplier=3.0)

    shares = [
        blur(replace(SCORES, accuracy=correct / 1000), event, FixedNoise(drawn)).accuracy * 1000
        for correct in (250, 250.4, 251)
        for drawn in (0.1, 1.77, -2.345)
    ]

    assert [share - round(share) for share in shares] == pytest.approx([0.0] * 9, abs=1e-9)


def test_exact_scores_are_a_release_without_protection(tmp_path: Path) -> None:
    bill = plan(hospital(tmp_path), configuration(mechanism="none"), "test")

    assert (bill.data_set, bill.mechanism.name, bill.event) == ("scans:test", "none", None)


def test_scores_of_a_second_run_fit_beside_those_of_the_first(tmp_path: Path) -> None:
    site, settings = hospital(tmp_path), configuration(epsilon=2.0)
    first = plan(site, settings)
    assert first.event is not None
    before = History.of([first.event]).plus(first.event, 6)
    cost = account_of(first.account).epsilon(before, first.delta)

    second = plan(hospital(tmp_path, privacy={"max-epsilon": cost * 1.3}), settings, before=before)

    assert second.event is not None
    assert second.event.noise_multiplier > first.event.noise_multiplier
    together = account_of(second.account).epsilon(before.plus(second.event, 7), second.delta)
    assert cost < together <= second.cap
