"""Scores that leave are privacy events, too: exact ones are booked as unprotected, noised ones at their epsilon."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import torch

from client_app.device import pick_device
from client_app.noise.source import NoiseSource
from client_app.policy import SitePolicy
from client_app.releasing import Bill, unprotected
from client_app.site import DeployedHospital, Site
from client_app.updating import load_model
from federation.accounting.accounts import account_of
from federation.accounting.events import Event, GaussianRelease, Relation, Unit
from federation.accounting.inversion import smallest_noise_multiplier
from federation.accounting.mechanism import Mechanism
from federation.config import Configuration
from federation.datasets.image_set import Dataset, ImageSet
from federation.errors import SiteError, SiteErrorCode
from federation.metrics import Scores
from federation.metrics import evaluate as evaluate_model
from federation.records.tasks import EvaluationTask

METRICS = Mechanism(name="metrics", relation=Relation.ADD_REMOVE, unit=Unit.RECORD, clip_norm=1.0)

_ACCOUNT = "pld"


def plan_scoring(site: Site, configuration: Configuration, dataset: Dataset, split: str) -> Bill:
    """Return what scores on `split` cost.

    Each split is a data set of its own in the ledger: one image lies in one split only, so that what it loses is the
    largest of the splits' epsilons and not their sum. That holds where the split belongs to the data. A split drawn
    over all files moves other images when one is added; scores on such a split stay at home under a mechanism.

    Raises:
        SiteError: the hospital's files bring no split of their own.
        PrivacyError: no noise is enough for the number of evaluations.
    """
    privacy, data_set = configuration.privacy, f"{site.data_set}:{split}"
    if privacy.mechanism == "none":
        return unprotected(data_set)
    if isinstance(site, DeployedHospital) and not dataset.given_split:
        raise SiteError(
            SiteErrorCode.POLICY_METRICS,
            "Expected files with a train, validation and test split of their own, found a pool: scores stay at home.",
        )
    policy = site.policy
    budget = min(privacy.epsilon, policy.privacy.max_epsilon) if policy else privacy.epsilon
    delta = min(privacy.delta, policy.privacy.max_delta) if policy else privacy.delta
    multiplier = privacy.evaluation_noise_multiplier or _smallest(evaluations(configuration, split), budget, delta)
    return Bill(
        data_set=data_set,
        mechanism=METRICS,
        event=GaussianRelease(noise_multiplier=max(multiplier, _least(policy))),
        delta=delta,
        cap=policy.privacy.max_epsilon if policy else budget,
        budget=budget,
        account=_ACCOUNT,
    )


def evaluations(configuration: Configuration, split: str) -> int:
    """Return how often a run scores `split`: once at its end, or the first version and every n-th."""
    if split == "test":
        return 1
    rounds, every = configuration.aggregation.rounds, configuration.run.evaluate_every
    return 2 + (rounds // every if every else 0)


def score(task: EvaluationTask, configuration: Configuration, dataset: Dataset, images: ImageSet) -> Scores:
    """Return the exact scores of the received model on `images`; they must not leave like this under a mechanism."""
    device = pick_device(configuration.training.device)
    model = load_model(configuration, dataset, task.parameters).to(device)
    return evaluate_model(model, images, dataset.info, device)


def blur(scores: Scores, event: Event, noise: NoiseSource) -> Scores:
    """Return `scores` as they may leave: accuracy with noise, no AUROC, no loss.

    Guarantee: bounded quantity, the number of correct answers, which one image changes by at most 1; Gaussian noise of
    the event's multiplier. Neighbouring relation: add/remove. Unit: one image. For several labels per image, the share
    of correct labels takes the place of a correct answer.
    Not guaranteed: that the number of images is hidden; it is told as it is.
    """
    drawn = noise.normal((1,), event.noise_multiplier, device=torch.device("cpu"))
    correct = scores.accuracy * scores.examples + float(drawn[0])
    accuracy = min(1.0, max(0.0, correct / scores.examples))
    return replace(scores, accuracy=accuracy if math.isfinite(accuracy) else 0.0, auroc=None, loss=None)


def _least(policy: SitePolicy | None) -> float:
    if policy is None:
        return 0.0
    return max(policy.privacy.min_noise_multiplier, policy.evaluation.min_noise_multiplier)


@lru_cache(maxsize=64)
def _smallest(releases: int, epsilon: float, delta: float) -> float:
    return smallest_noise_multiplier(
        lambda multiplier: GaussianRelease(noise_multiplier=multiplier),
        releases=releases,
        epsilon=epsilon,
        delta=delta,
        account=account_of(_ACCOUNT),
    )
