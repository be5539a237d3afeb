"""What DP-SGD and its norm survey promise, restated: who counts how much, how much noise falls, what an audit finds.

One step releases a noised sum. It is a sampled Gaussian release with the event's multiplier if one unit more moves the
sum by at most C, if the noise on it has a standard deviation of multiplier times C, and if units enter by Poisson
sampling with the event's probability.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from client_app.dp_sgd import survey_gradient_norms
from client_app.dp_sgd.clipping import clip_factors
from client_app.noise.cryptographic import CryptographicNoise
from client_app.noise.simulated import SimulatedNoise
from client_app.noise.source import NoiseSource
from federation.accounting.events import GaussianRelease
from federation.config import ModelConfig, PrivacyConfig, TrainingConfig
from federation.datasets.image_set import ImageSet
from federation.models import build_model
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.streams import CPU, Linear, Silent, describe, flat, train

_FLOAT_SLACK = 1 + 1e-5


def without(images: ImageSet, chosen: Any) -> ImageSet:
    """Return `images` without those that `chosen` marks."""
    return images.take(np.flatnonzero(~np.asarray(chosen)))


def summed(images: ImageSet, *, expected: int, scale: float = 1.0, **privacy: Any) -> Tensor:
    """Return the sum of clipped gradients of one step that samples everybody, taken from how a model moved."""
    model = Linear()
    with torch.no_grad():
        model.output.weight.mul_(scale)
    before = flat(model).double()
    event = train(model, images, Silent(), plan={"batch_size": expected}, **privacy)
    assert event.steps == 1
    return (before - flat(model).double()) * expected


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    removed=st.integers(0, 7),
    bright=st.booleans(),
    clip_norm=st.floats(0.01, 20),
    scale=st.sampled_from([0.0, 1.0, 30.0]),
    mode=st.sampled_from(["hooks", "ghost"]),
)
def test_one_image_more_moves_the_sum_by_at_most_the_clip_norm(
    seed: int, removed: int, bright: bool, clip_norm: float, scale: float, mode: str
) -> None:
    images = make_images(8, seed=seed)
    if bright:
        images.images[removed] = 255
    fewer = without(images, np.arange(8) == removed)
    privacy: dict[str, Any] = {"clip_norm": clip_norm, "grad_sample": mode}

    more, less = (summed(some, expected=6, scale=scale, **privacy) for some in (images, fewer))

    resolution = 6 * 2e-6 * scale  # parameters are float32
    assert float((more - less).norm()) <= clip_norm * _FLOAT_SLACK + resolution


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    patients=st.lists(st.integers(0, 5), min_size=6, max_size=14).filter(lambda found: len(set(found)) > 3),
    images_per_patient=st.integers(1, 5),
    clip_norm=st.floats(0.01, 5),
)
def test_one_patient_more_moves_the_sum_by_at_most_the_clip_norm(
    seed: int, patients: list[int], images_per_patient: int, clip_norm: float
) -> None:
    pictures = make_images(len(patients), seed=seed)
    images = ImageSet(images=pictures.images, labels=pictures.labels, patients=np.array(patients))
    fewer = without(images, np.array(patients) == patients[0])
    expected = len(set(patients)) - 1
    privacy: dict[str, Any] = {"unit": "patient", "images_per_patient": images_per_patient, "clip_norm": clip_norm}

    more, less = (summed(some, expected=expected, **privacy) for some in (images, fewer))

    assert float((more - less).norm()) <= clip_norm * _FLOAT_SLACK + 1e-5


@given(norms=st.lists(st.floats(0, 2.0**60, width=32), min_size=1, max_size=9), clip_norm=st.floats(1e-3, 1e3))
def test_scaled_gradient_is_never_longer_than_the_clip_norm(norms: list[float], clip_norm: float) -> None:
    found = torch.tensor(norms)

    factors = clip_factors([found], clip_norm)

    assert bool((factors.double() * found.double() <= clip_norm * _FLOAT_SLACK).all())
    short = found < clip_norm * 0.99 - 1e-6
    assert bool((factors[short] == 1).all())


@pytest.mark.parametrize("source", [CryptographicNoise, lambda: SimulatedNoise(0)])
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("everybody", [True, False])
def test_noise_on_the_sum_is_the_multiplier_times_the_clip_norm_whoever_was_sampled(
    everybody: bool, mode: str, source: Any
) -> None:
    images = make_images(10, size=28)
    noise = source()
    start, quiet, loud = (build_model(ModelConfig(name="mlp"), describe(images), seed=0) for _ in range(3))

    class Chosen:
        """Samples as told and draws real noise."""

        def uniform(self, count: int) -> Tensor:
            return torch.full((count,), 0.0 if everybody else 0.9, dtype=torch.float64)

        def normal(self, shape: Any, stddev: float, *, device: torch.device) -> Tensor:
            drawn: Tensor = noise.normal(shape, stddev, device=device)
            return drawn

    chosen: NoiseSource = Chosen()
    options: dict[str, Any] = {"plan": {"batch_size": 8}, "clip_norm": 0.5, "grad_sample": mode}
    event = train(loud, images, chosen, noise_multiplier=4.0, **options)
    train(quiet, images, Silent(0.0 if everybody else 0.9), noise_multiplier=4.0, **options)

    noises = (flat(quiet) - flat(loud)) * 8
    assert event.noise_multiplier == 4.0
    assert float(noises.std()) == pytest.approx(4.0 * 0.5, rel=0.015)
    assert stats.kstest(noises[::25].numpy() / 2.0, "norm").pvalue > 1e-4
    assert torch.equal(flat(quiet), flat(start)) is not everybody


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**20), removed=st.integers(0, 9), mode=st.sampled_from(["hooks", "ghost"]))
def test_one_image_more_adds_one_to_one_bin_of_the_norm_survey(seed: int, removed: int, mode: Any) -> None:
    images = make_images(10, seed=seed)
    both = []
    for some in (images, without(images, np.arange(10) == removed)):
        counts, event = survey_gradient_norms(
            Linear(),
            some,
            describe(images),
            TrainingConfig(),
            PrivacyConfig(mechanism="dp-sgd", grad_sample=mode),
            edges=[0.5, 1.0, 1.5, 2.0],
            noise_multiplier=3.0,
            noise=Silent(),
            generator=torch.Generator(),
            device=CPU,
        )
        both.append(counts)

    assert sorted(both[0] - both[1]) == [0, 0, 0, 0, 1]
    assert event == GaussianRelease(noise_multiplier=3.0)


class Unbiased(nn.Module):
    """A linear model without a bias, to which a black image contributes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(36, 3, bias=False)
        nn.init.zeros_(self.output.weight)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(images.flatten(1))
        return logits


_TRIALS = 1200
_FAILURE = 1e-3


def scores(canary: int, *, seed: int, noise_multiplier: float, batch_size: int, epochs: int) -> np.ndarray:
    """Return how far models moved along the canary's gradient, over many trainings with it or with a black image."""
    others = make_images(3, seed=1)
    images = ImageSet(
        images=np.concatenate([others.images, np.full((1, 1, 6, 6), canary, np.uint8)]),
        labels=np.concatenate([others.labels, [0]]),
    )
    direction = torch.tensor([2.0, -1.0, -1.0])[:, None] * torch.ones(36)
    found = np.empty(_TRIALS)
    plan = {"batch_size": batch_size, "local_epochs": epochs, "learning_rate": 1e-3}
    for trial in range(_TRIALS):
        model = Unbiased()
        train(model, images, SimulatedNoise(seed + trial), plan=plan, noise_multiplier=noise_multiplier, clip_norm=0.1)
        found[trial] = float((model.output.weight.detach() * direction).sum())
    return found


def error_rates(absent: np.ndarray, present: np.ndarray, threshold: float) -> tuple[float, float]:
    """Return upper Clopper-Pearson bounds on the rates of false positives and false negatives."""

    def upper(count: int) -> float:
        return float(stats.beta.ppf(1 - _FAILURE, count + 1, len(absent) - count)) if count < len(absent) else 1.0

    return upper(int((absent >= threshold).sum())), upper(int((present < threshold).sum()))


@pytest.mark.slow
def test_audit_of_one_step_finds_the_claimed_noise_and_would_find_less() -> None:
    options = {"batch_size": 4, "epochs": 1}
    absent = scores(0, seed=0, noise_multiplier=1.0, **options)
    present = scores(255, seed=10_000, noise_multiplier=1.0, **options)
    halved = [scores(value, seed=20_000 + value, noise_multiplier=0.5, **options) for value in (0, 255)]

    def shift_at_least(without_canary: np.ndarray, with_canary: np.ndarray) -> float:
        threshold = (float(np.mean(without_canary)) + float(np.mean(with_canary))) / 2
        false_positives, false_negatives = error_rates(without_canary, with_canary, threshold)
        return float(stats.norm.isf(false_positives) - stats.norm.ppf(false_negatives))

    # A Gaussian release of multiplier s is a test of N(0, 1) against N(1 / s, 1) (arXiv 1905.02383, theorem 2.7).
    assert 0.6 < shift_at_least(absent, present) <= 1.0
    assert shift_at_least(*halved) > 1.0


@pytest.mark.slow
def test_audit_of_sampled_steps_stays_below_the_claimed_epsilon() -> None:
    options: dict[str, Any] = {"batch_size": 2, "epochs": 3, "noise_multiplier": 0.7}
    delta = 1e-5
    absent, present = scores(0, seed=0, **options), scores(255, seed=50_000, **options)
    step = dp_event.PoissonSampledDpEvent(0.5, dp_event.GaussianDpEvent(0.7))
    claimed = PLDAccountant().compose(step, 6).get_epsilon(delta)

    bounds = []
    for threshold in np.quantile(np.concatenate([absent, present]), np.linspace(0.05, 0.95, 10)):
        false_positives, false_negatives = error_rates(absent, present, float(threshold))
        bounds.append(math.log(max(1 - false_negatives - delta, 1e-9) / false_positives))
        bounds.append(math.log(max(1 - false_positives - delta, 1e-9) / false_negatives))

    assert 0.5 < max(bounds) <= claimed
