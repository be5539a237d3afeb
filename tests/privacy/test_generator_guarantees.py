"""What private training of a cache's generator promises, restated for its own network: who counts how much, what falls.

A step is a sampled Gaussian release with the event's multiplier if one unit more moves the noised sum by at most C, if
the noise on it has a standard deviation of multiplier times C, and if there are as many steps as the event says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from aegis_cache.generation.diffusion.training import DiffusionTraining, TrainingPlan
from client_app.dp_sgd.units import group_units
from client_app.noise.cryptographic import CryptographicNoise
from client_app.noise.simulated import SimulatedNoise
from client_app.noise.source import NoiseSource
from deploy.cache.private_descent import train_privately
from federation.accounting.events import SampledGaussianRelease
from federation.config import PrivacyConfig
from federation.datasets.image_set import ImageSet
from tests.client_app.dp_sgd.streams import Silent

_FLOAT_SLACK = 1 + 1e-4
_EXPECTED = 4.0


class Sums:
    """The noised sums that AdamW was given, a row for each step: its gradients times the expected number of units."""

    def __init__(self) -> None:
        self.rows: list[Tensor] = []

    def note(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        slopes = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]
        self.rows.append(torch.cat([slope.double().flatten() for slope in slopes if slope is not None]) * _EXPECTED)


@pytest.fixture
def sums() -> Iterator[Sums]:
    noted = Sums()
    handle = register_optimizer_step_pre_hook(noted.note)
    yield noted
    handle.remove()


@pytest.fixture
def same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same for every image, so that who else is in a batch does not move what is drawn for an image."""
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.full(torch.Size(shape), 0.5))
    monkeypatch.setattr(torch, "randint", lambda _, shape, **__: torch.full(shape, 300))
    monkeypatch.setattr(torch, "randn", lambda shape, **_: torch.linspace(-1, 1, 64).view(8, 8).expand(shape))


def make_images(count: int, *, extreme: bool = False, patients: list[int] | None = None) -> ImageSet:
    images = np.random.default_rng(0).integers(0, 256, size=(count, 1, 8, 8), dtype=np.uint8)
    if extreme:
        images[-1] = np.where(np.indices((8, 8)).sum(axis=0) % 2, 255, 0)
    numbers = None if patients is None else np.array(patients)
    return ImageSet(images=images, labels=np.arange(count) % 2, patients=numbers)


def prepare(images: ImageSet, *, scale: float = 1.0) -> DiffusionTraining:
    prepared = DiffusionTraining(images, 2, TrainingPlan())
    with torch.no_grad():
        for parameter in prepared.network.parameters():
            parameter.mul_(scale)
    return prepared


def train(
    prepared: DiffusionTraining, images: ImageSet, noise: NoiseSource, *, steps: int = 1, **options: Any
) -> SampledGaussianRelease:
    """Train with an expected sample of `_EXPECTED` units."""
    given: dict[str, Any] = {"clip_norm": 0.5, "noise_multiplier": 3.0, "unit": "record"} | options
    units = group_units(images, PrivacyConfig(mechanism="dp-sgd", unit=given["unit"]))
    event = SampledGaussianRelease(
        noise_multiplier=given["noise_multiplier"], sampling_probability=_EXPECTED / units.count, steps=steps
    )
    draws = torch.Generator().manual_seed(0)
    train_privately(prepared, images, units, event, clip_norm=given["clip_norm"], noise=noise, draws=draws)
    return event


@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("clip_norm", [1e-3, 0.3])
def test_one_image_more_moves_the_sum_by_at_most_the_clip_norm(
    sums: Sums, same_draws: None, scale: float, clip_norm: float
) -> None:
    images = make_images(6, extreme=True)
    fewer = images.take(np.arange(5))
    begins = [prepare(some, scale=scale) for some in (images, fewer)]

    for begin, some in zip(begins, (images, fewer), strict=True):
        train(begin, some, Silent(), clip_norm=clip_norm)

    more, less = sums.rows
    assert float((more - less).norm()) <= clip_norm * _FLOAT_SLACK
    assert scale == 0 or float((more - less).norm()) > 0.9 * clip_norm


def test_one_patient_more_moves_the_sum_by_at_most_the_clip_norm(sums: Sums, same_draws: None) -> None:
    images = make_images(9, patients=[1, 2, 2, 3, 4, 5, 6, 6, 6])
    fewer = images.take(np.arange(6))

    for some in (images, fewer):
        train(prepare(some), some, Silent(), clip_norm=0.01, unit="patient")

    more, less = sums.rows
    assert 0.9 * 0.01 < float((more - less).norm()) <= 0.01 * _FLOAT_SLACK


def test_sample_in_several_parts_is_summed_like_one(
    sums: Sums, same_draws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = make_images(7)
    train(prepare(images), images, Silent())
    monkeypatch.setattr("deploy.cache.private_descent._PHYSICAL_BATCH", 3)

    train(prepare(images), images, Silent())

    whole, parts = sums.rows
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("source", [CryptographicNoise, lambda: SimulatedNoise(0)])
@pytest.mark.parametrize("everybody", [True, False])
def test_noise_on_the_sum_is_the_multiplier_times_the_clip_norm_whoever_was_sampled(
    sums: Sums, everybody: bool, source: Any
) -> None:
    images, noise = make_images(6), source()
    place = 0.0 if everybody else 0.9

    class Chosen(Silent):
        """Samples as told and draws real noise."""

        def normal(self, shape: Any, stddev: float, *, device: torch.device) -> Tensor:
            drawn: Tensor = noise.normal(shape, stddev, device=device)
            return drawn

    train(prepare(images), images, Chosen(place), noise_multiplier=3.0)
    train(prepare(images), images, Silent(place), noise_multiplier=3.0)

    loud, quiet = sums.rows
    drawn = loud - quiet
    # The standard deviation of a million draws is known to a share of 7e-4: 5e-3 is seven sigma, so chance never fails.
    assert float(drawn.std()) == pytest.approx(3.0 * 0.5, rel=5e-3)
    assert stats.kstest(drawn[::97].numpy() / 1.5, "norm").pvalue > 1e-4
    assert bool(quiet.any()) is everybody


def test_there_are_as_many_noised_steps_as_the_event_says_empty_samples_among_them(sums: Sums) -> None:
    images, noise = make_images(8), Silent()
    places = iter([0.9, 0.0, 0.9])
    noise.uniform = lambda count: torch.full((count,), next(places), dtype=torch.float64)  # type: ignore[method-assign]

    event = train(prepare(images), images, noise, steps=3, noise_multiplier=2.0, clip_norm=0.25)

    assert event.steps == len(sums.rows) == len(noise.stddevs)
    assert noise.stddevs == [0.5] * 3
    assert [bool(row.any()) for row in sums.rows] == [False, True, False]
