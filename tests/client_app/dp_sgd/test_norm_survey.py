"""The survey counts every unit in one bin by its gradient's norm, and a clip norm is read off the released counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from client_app.dp_sgd import suggest_clip_norm, survey_gradient_norms
from client_app.dp_sgd.norm_survey import _count
from client_app.noise.source import NoiseSource
from federation.accounting.events import GaussianRelease
from federation.config import ModelConfig, PrivacyConfig, TrainingConfig
from federation.datasets.image_set import ImageSet
from federation.errors import PrivacyError, SiteError, SiteErrorCode
from federation.models import build_model
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.gradients import gradients_of, pixels_of
from tests.client_app.dp_sgd.networks import Normalizing, Prior, traces
from tests.client_app.dp_sgd.streams import CPU, Linear, Seeded, Silent, describe, flat, images_of_patients

EDGES = [0.5, 1.0, 1.5, 2.0, 3.0]


def survey(
    model: nn.Module,
    images: ImageSet,
    noise: NoiseSource,
    *,
    edges: list[float] = EDGES,
    noise_multiplier: float = 2.0,
    plan: dict[str, Any] | None = None,
    **privacy: Any,
) -> tuple[np.ndarray, GaussianRelease]:
    return survey_gradient_norms(
        model,
        images,
        describe(images),
        TrainingConfig(**plan or {}),
        PrivacyConfig(mechanism="dp-sgd", **privacy),
        edges=edges,
        noise_multiplier=noise_multiplier,
        noise=noise,
        generator=torch.Generator().manual_seed(0),
        device=CPU,
    )


@pytest.mark.parametrize("physical_batch", [7, 256])
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_survey_counts_norms_of_gradients_taken_image_by_image(name: Any, mode: str, physical_batch: int) -> None:
    images = make_images(40, size=8)
    model = build_model(ModelConfig(name=name), describe(images), seed=0)
    norms = gradients_of(model, pixels_of(images), torch.from_numpy(images.labels)).norm(dim=1).numpy()
    edges = [float(edge) for edge in np.quantile(norms, [0.2, 0.5, 0.9]) + 1e-4]
    before, values = traces(model), flat(model)

    counts, event = survey(model, images, Silent(), edges=edges, grad_sample=mode, physical_batch=physical_batch)

    assert counts.tolist() == np.histogram(norms, [0, *edges, np.inf])[0].tolist()
    assert event == GaussianRelease(noise_multiplier=2.0)
    assert traces(model) == before
    assert torch.equal(flat(model), values)


def test_survey_of_patients_counts_the_norm_of_their_average() -> None:
    images = images_of_patients([5, 3, 5, 5, 3, 9])
    rows = gradients_of(Linear(), pixels_of(images), torch.from_numpy(images.labels))
    norms = [float(rows[chosen].mean(0).norm()) for chosen in ([1, 4], [0, 2, 3], [5])]

    counts, _ = survey(Linear(), images, Silent(), unit="patient", images_per_patient=5)

    assert counts.tolist() == np.histogram(norms, [0, *EDGES, np.inf])[0].tolist()


def test_survey_sees_the_gradients_that_training_with_public_class_frequencies_would_clip() -> None:
    images = make_images(40)
    rows = gradients_of(Prior([0.9, 0.09, 0.01]), pixels_of(images), torch.from_numpy(images.labels))

    counts, _ = survey(Linear(), images, Silent(), plan={"class_prior": "0.9, 0.09, 0.01"})

    assert counts.tolist() == np.histogram(rows.norm(dim=1).numpy(), [0, *EDGES, np.inf])[0].tolist()


def test_every_bin_is_noised_by_the_multiplier() -> None:
    images, noise = make_images(5), Seeded(0)
    edges = [float(edge) for edge in np.linspace(100, 200, 4000)]

    counts, event = survey(Linear(), images, noise, edges=edges, noise_multiplier=7.0)

    assert noise.stddevs == [7.0]
    assert counts[1:].std() == pytest.approx(7.0, rel=0.05)
    assert event.noise_multiplier == 7.0


def test_norm_that_is_no_number_counts_as_the_largest_instead_of_failing() -> None:
    pictures = make_images(6).images.copy()
    pictures[3] = 0
    images = ImageSet(images=pictures, labels=make_images(6).labels)

    counts, _ = survey(Normalizing(), images, Silent(), edges=[1e6])

    assert counts.tolist() == [5, 1]


def test_norm_on_an_edge_counts_above_it() -> None:
    counts = _count(torch.tensor([0.5, 1.0, 1.5]), torch.tensor([1.0, 2.0]))

    assert counts.tolist() == [1, 2, 0]


@pytest.mark.parametrize("edges", [[], [0.0, 1.0], [-1.0], [1.0, 1.0], [2.0, 1.0], [math.nan], [1.0, math.nan]])
def test_edges_that_make_no_bins_are_refused(edges: list[float]) -> None:
    with pytest.raises(PrivacyError, match="positive edges in ascending order"):
        survey(Linear(), make_images(4), Silent(), edges=edges)


def test_survey_refuses_what_training_refuses() -> None:
    with pytest.raises(SiteError, match="label-skew") as refused:
        survey(Linear(), make_images(4), Silent(), plan={"label_skew": "logit-adjustment"})
    assert refused.value.code is SiteErrorCode.PLAN_REFUSED

    with pytest.raises(PrivacyError, match="noise_multiplier"):
        survey(Linear(), make_images(4), Silent(), noise_multiplier=0.0)


@pytest.mark.parametrize(
    ("counts", "quantile", "clip_norm"),
    [
        ([10, 20, 30, 40], 0.05, 1.0),
        ([10, 20, 30, 40], 0.1, 1.0),
        ([10, 20, 30, 40], 0.11, 2.0),
        ([10, 20, 30, 40], 0.5, 3.0),
        ([10, 20, 30, 40], 0.99, 3.0),
        ([-50, 60, -5, 0.5], 0.5, 2.0),
        ([0, 0, 0, 9], 0.5, 3.0),
    ],
)
def test_suggested_clip_norm_is_the_edge_above_the_quantile(
    counts: list[float], quantile: float, clip_norm: float
) -> None:
    assert suggest_clip_norm(np.array(counts), [1.0, 2.0, 3.0], quantile=quantile) == clip_norm


@pytest.mark.parametrize(
    ("counts", "quantile"), [([1, 2, 3], 0.5), ([1, 2, 3, 4], 1.5), ([1, 2, 3, 4], -0.1), ([-1, 0, -2, -3], 0.5)]
)
def test_histogram_that_suggests_nothing_is_refused(counts: list[float], quantile: float) -> None:
    with pytest.raises(PrivacyError, match="Expected 4 counts, some above 0"):
        suggest_clip_norm(np.array(counts, dtype=float), [1.0, 2.0, 3.0], quantile=quantile)
