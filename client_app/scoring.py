"""Scores that leave are privacy events, too: exact ones are booked as unprotected, noised ones at their epsilon."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from client_app.device import pick_device
from client_app.granting import grant_scores
from client_app.noise.source import NoiseSource
from client_app.protection import least_noise_multiplier, warn_of_large_delta
from client_app.releasing import Bill, unprotected
from client_app.site import DeployedHospital, Site
from client_app.updating import load_model
from federation.accounting.events import Event, GaussianRelease, History
from federation.accounting.mechanism import METRICS
from federation.config import Configuration
from federation.datasets.image_set import Dataset, ImageSet
from federation.errors import SiteError, SiteErrorCode
from federation.metrics import Scores
from federation.metrics import evaluate as evaluate_model
from federation.records.tasks import EvaluationTask

_MARGIN = 1e-6
_SCORES = GaussianRelease(noise_multiplier=1.0)


def plan_scoring(
    site: Site, configuration: Configuration, dataset: Dataset, images: ImageSet, split: str, *, before: History
) -> Bill:
    """Return what scores on `split`, which `images` are, cost; earlier runs released `before` of it.

    Each split is a data set of its own in the ledger: one image lies in one split only, so that what it loses is the
    largest of the splits' epsilons and not their sum. That holds where the split belongs to the data. A split that we
    draw moves images when the hospital changes its fractions; scores on such a split stay at home under a mechanism.

    Raises:
        SiteError: the hospital's files bring no split of their own, or patients are to be protected.
        BudgetExhaustedError: no noise is enough for the number of evaluations.
    """
    privacy, data_set = configuration.privacy, name_split(site, split)
    if privacy.mechanism == "none":
        return unprotected(data_set)
    if isinstance(site, DeployedHospital) and not dataset.given_split:
        raise SiteError(
            SiteErrorCode.POLICY_METRICS,
            "Expected files with a train, validation and test split of their own, found a pool: scores stay at home.",
        )
    if privacy.unit == "patient" and privacy.mechanism == "dp-sgd":
        raise SiteError(
            SiteErrorCode.PLAN_REFUSED,
            "Expected run.hospital-evaluation=false with privacy.unit='patient': scores protect single images only.",
        )
    grant = grant_scores(site.policy, privacy)
    warn_of_large_delta(grant.delta, len(images))
    planned = evaluations(configuration, split)
    bounds = [grant.min_noise_multiplier, privacy.evaluation_noise_multiplier]
    if not privacy.evaluation_noise_multiplier:
        spent = frozenset(before.counts.items())
        bounds.append(least_noise_multiplier(_SCORES, planned, grant.budget, grant, frozenset()))
        bounds.append(least_noise_multiplier(_SCORES, planned, grant.cap, grant, spent))
    if grant.max_epsilon_per_release:
        bounds.append(least_noise_multiplier(_SCORES, 1, grant.max_epsilon_per_release, grant, frozenset()))
    return Bill(
        data_set=data_set,
        mechanism=METRICS,
        event=GaussianRelease(noise_multiplier=max(bounds)),
        delta=grant.delta,
        cap=grant.cap,
        budget=grant.budget,
        account=grant.account,
    )


def name_split(site: Site, split: str) -> str:
    """Return the name under which `split` stands in the ledger."""
    return f"{site.data_set}:{split}"


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
    of correct labels takes the place of a correct answer. Number and noise are rounded before they are added: a float
    sum of a whole number and noise would show by its last bits which whole numbers it cannot come from.
    Not guaranteed: that the number of images is hidden; it is told as it is. That a prediction between two equal logits
    stays the same when another image joins its batch: arithmetic may differ there in the last bit.
    """
    drawn = noise.normal((1,), event.noise_multiplier, device=torch.device("cpu"))
    correct = _round(scores.accuracy * scores.examples) + _round(float(drawn[0]))
    return replace(scores, accuracy=min(1.0, max(0.0, correct / scores.examples)), auroc=None, loss=None)


def _round(value: float) -> int:
    """Return the whole number nearest to `value`, halves up: values at most 1 apart stay at most 1 apart.

    The margin lifts a half that came out of a division a little too low; shares of labels lie further apart than that.
    """
    return math.floor(value + 0.5 + _MARGIN)
