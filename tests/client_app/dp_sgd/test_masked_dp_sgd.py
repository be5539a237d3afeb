"""Steps of DP-SGD that are masked: a share of the noised mean of clipped gradients, plus what synthetic images add."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aegis_cache.store.cache import open_cache
from client_app.dp_sgd import train_with_dp_sgd
from client_app.dp_sgd.clipping import clip_factors
from client_app.masking.preparation import Masking
from client_app.masking.synthetic import SyntheticImages
from client_app.noise.source import NoiseSource
from federation.accounting.events import SampledGaussianRelease
from federation.config import ModelConfig, PrivacyConfig, TrainingConfig
from federation.datasets.image_set import ImageSet
from federation.models import build_model
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.gradients import clipped_sum, gradients_of, pixels_of
from tests.client_app.dp_sgd.networks import traces
from tests.client_app.dp_sgd.streams import CPU, Linear, Silent, describe, flat
from tests.client_app.masking.made_up_caches import make_cache

MODES: list[Any] = ["sequential", "lambda", "joint", "interleaved"]
GRADIENTS = ["hooks", "ghost"]
REAL, EXPECTED, SYNTHETIC = 10, 5, 7  # Two private steps an epoch, of five images each where chance has it so.
CLIP_NORM = 0.05  # Far below any gradient here: a synthetic one that were clipped would stand out.
WEIGHT = EXPECTED + SYNTHETIC


class Scripted(Silent):
    """Samples everybody or nobody, and draws noise from a generator of its own, which it remembers."""

    def __init__(self, drawn: float = 0.0, *, seed: int = 0) -> None:
        super().__init__(drawn)
        self.generator = torch.Generator().manual_seed(seed)
        self.noises: list[Tensor] = []

    def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> Tensor:
        super().normal(shape, stddev, device=device)
        self.noises.append(torch.randn(shape, generator=self.generator) * stddev)
        return self.noises[-1].to(device)


def make_masking(folder: Path, mode: Any, *, seed: int = 0, fill: Any = None, micro_batch: int = 3) -> Masking:
    """Return masking by seven images of the shape of `make_images`, all that the cache holds."""
    names = tuple(map(str, range(3)))
    make_cache(folder, images=SYNTHETIC, class_names=names, shape=(1, 6, 6), seed=seed, fill=fill)
    synthetic = SyntheticImages(cache=open_cache(folder), chosen=np.arange(SYNTHETIC))
    return Masking(mode=mode, synthetic=synthetic, micro_batch=micro_batch, batch_statistics="refuse")


def train(
    model: nn.Module,
    images: ImageSet,
    noise: NoiseSource,
    masking: Masking | None,
    *,
    grad_sample: Any = "hooks",
    clip_norm: float = CLIP_NORM,
    seed: int = 0,
    **plan: Any,
) -> SampledGaussianRelease:
    """Train `model` by SGD at rate 1 for one epoch, unless `plan` says otherwise."""
    settings: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 1.0, "batch_size": EXPECTED, **plan}
    return train_with_dp_sgd(
        model,
        images,
        describe(images),
        TrainingConfig(**settings),
        PrivacyConfig(mechanism="dp-sgd", clip_norm=clip_norm, grad_sample=grad_sample),
        noise_multiplier=2.0,
        noise=noise,
        generator=torch.Generator().manual_seed(seed),
        device=CPU,
        masking=masking,
    )


@pytest.mark.parametrize("varied", [False, True])
def test_real_images_vary_as_synthetic_ones_do(tmp_path: Path, varied: bool) -> None:
    masking = make_masking(tmp_path, "interleaved")
    masking = replace(masking, synthetic=replace(masking.synthetic, varied=varied))
    images, seen = make_images(REAL), list[Tensor]()
    model = Linear()
    model.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().clone()))
    own = {image.tobytes() for image in images.images.astype(np.float32) / 255}

    train(model, images, Scripted(), masking)

    shown = {image.numpy().tobytes() for batch in seen for image in batch}
    assert len(shown & own) == (0 if varied else REAL)


def move(model: nn.Module, gradient: Tensor) -> None:
    """Move the trainable parameters of `model` against `gradient`, all in one vector."""
    with torch.no_grad():
        start = 0
        for parameter in model.parameters():
            parameter.sub_(gradient[start : start + parameter.numel()].view(parameter.shape))
            start += parameter.numel()


def parts_of(mode: str) -> list[tuple[float | None, range, float]]:
    """Return the steps of an epoch of two: the share of the private mean, which synthetic images, and their weight."""
    everything, count = range(SYNTHETIC), 2 * EXPECTED + SYNTHETIC
    if mode == "sequential":
        return [(1.0, range(0), 0.0), (1.0, range(0), 0.0), (None, everything, 1 / SYNTHETIC)]
    if mode == "lambda":
        private: tuple[float | None, range, float] = (2 * EXPECTED / count, range(0), 0.0)
        return [private, private, (None, everything, 2 / count)]
    if mode == "joint":
        return [(EXPECTED / WEIGHT, everything, 1 / WEIGHT)] * 2
    halves = [range(SYNTHETIC // 2), range(SYNTHETIC // 2, SYNTHETIC)]
    return [(EXPECTED / (EXPECTED + len(half)), half, 1 / (EXPECTED + len(half))) for half in halves]


def walk(model: nn.Module, images: ImageSet, masking: Masking, noises: list[Tensor], order: list[Tensor]) -> None:
    """Move `model` by the steps as the formula has them, of `images` sampled in every private step."""
    remaining = iter(noises)
    for epoch in order:
        for share, part, weight in parts_of(masking.mode):
            shown, labels = masking.synthetic.take(epoch[part.start : part.stop].numpy(), CPU)
            gradient = gradients_of(model, shown, labels).sum(0) * weight if len(part) else torch.zeros(1)
            if share is not None:
                private = next(remaining)
                if len(images):
                    rows = gradients_of(model, pixels_of(images), torch.from_numpy(images.labels))
                    private = private + clipped_sum(rows, CLIP_NORM)
                gradient = gradient + share * private / EXPECTED
            move(model, gradient)


@pytest.mark.parametrize("grad_sample", GRADIENTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drawn", [0.0, 0.9], ids=["everybody", "nobody"])
def test_every_step_is_a_share_of_the_noised_mean_and_the_weighted_gradients_of_synthetic_images(
    tmp_path: Path, drawn: float, mode: str, grad_sample: str
) -> None:
    images, masking, noise = make_images(REAL), make_masking(tmp_path, mode), Scripted(drawn)
    model, expected = Linear(), Linear()

    event = train(model, images, noise, masking, grad_sample=grad_sample, seed=3, local_epochs=2)

    generator = torch.Generator().manual_seed(3)
    order = [torch.randperm(SYNTHETIC, generator=generator) for _ in range(2)]
    walk(expected, images if drawn == 0 else images.take(np.arange(0)), masking, noise.noises, order)
    assert (event.sampling_probability, event.steps, len(noise.noises)) == (0.5, 4, 4)
    assert set(noise.stddevs) == {2.0 * CLIP_NORM}
    torch.testing.assert_close(flat(model), flat(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("grad_sample", GRADIENTS)
@pytest.mark.parametrize("mode", ["joint", "interleaved"])
def test_what_noise_moves_depends_on_no_synthetic_image(tmp_path: Path, mode: str, grad_sample: str) -> None:
    images, moved = make_images(REAL), []
    for number, fill in enumerate((None, 0, 255)):
        masking = make_masking(tmp_path / str(number), mode, seed=number, fill=fill)
        models = [Linear(), Linear()]
        noises = [Scripted(seed=seed) for seed in (1, 2)]
        for model, noise in zip(models, noises, strict=True):
            train(model, images, noise, masking, grad_sample=grad_sample, batch_size=REAL)
        moved.append(flat(models[0]) - flat(models[1]))

    difference = noises[1].noises[0] - noises[0].noises[0]
    for found in moved:
        torch.testing.assert_close(found, difference / (REAL + SYNTHETIC), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("grad_sample", GRADIENTS)
def test_synthetic_gradients_are_not_clipped(tmp_path: Path, grad_sample: str) -> None:
    images, model = make_images(REAL), Linear()
    masking = make_masking(tmp_path, "joint")
    shown, labels = masking.synthetic.take(np.arange(SYNTHETIC), CPU)
    sums = gradients_of(model, shown, labels).sum(0)
    before = flat(model)

    train(model, images, Silent(0.9), masking, grad_sample=grad_sample, batch_size=EXPECTED, clip_norm=1e-6)

    # Both steps move by synthetic gradients alone, the second at slightly other parameters.
    assert float((before - flat(model)).norm()) > float(sums.norm()) / WEIGHT > 100 * 1e-6


@pytest.mark.parametrize("micro_batch", [1, 2, 7, 100])
@pytest.mark.parametrize("mode", MODES)
def test_pieces_in_memory_change_nothing_that_is_trained(tmp_path: Path, mode: str, micro_batch: int) -> None:
    images, models = make_images(REAL), [Linear(), Linear()]
    for number, (model, size) in enumerate(zip(models, (3, micro_batch), strict=True)):
        masking = make_masking(tmp_path / str(number), mode, micro_batch=size)
        train(model, images, Scripted(), masking, augmentation="shift-flip")

    torch.testing.assert_close(flat(models[1]), flat(models[0]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("grad_sample", GRADIENTS)
@pytest.mark.parametrize("mode", MODES)
def test_masked_training_leaves_nothing_on_the_network(tmp_path: Path, mode: str, grad_sample: str) -> None:
    images, masking = make_images(REAL), make_masking(tmp_path, mode)
    model = build_model(ModelConfig(name="cnn"), describe(images), seed=0)
    before = traces(model)

    train(model, images, Scripted(), masking, grad_sample=grad_sample)

    assert traces(model) == before


def test_hooks_stand_still_while_synthetic_images_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synthetic images that the hooks saw would be clipped with the private ones, and count as units."""
    seen: list[int] = []

    def watch(norms: list[Tensor], clip_norm: float) -> Tensor:
        seen.extend({len(norm) for norm in norms})
        return clip_factors(norms, clip_norm)

    monkeypatch.setattr("client_app.dp_sgd.clipping.clip_factors", watch)
    for grad_sample in GRADIENTS:
        train(
            Linear(),
            make_images(REAL),
            Silent(),
            make_masking(tmp_path / grad_sample, "joint"),
            grad_sample=grad_sample,
        )

    assert seen == [REAL] * 4


@pytest.mark.parametrize("mode", MODES)
def test_event_is_that_of_training_without_masking(tmp_path: Path, mode: str) -> None:
    images, options = make_images(REAL), {"local_epochs": 3, "batch_size": 3}

    masked = train(Linear(), images, Scripted(), make_masking(tmp_path, mode), **options)

    assert masked == train(Linear(), images, Scripted(), None, **options)


@pytest.mark.parametrize("mode", MODES)
def test_sampling_and_noise_draw_as_often_and_as_much_as_without_masking(tmp_path: Path, mode: str) -> None:
    images, plain, masked = make_images(REAL), Scripted(), Scripted()

    train(Linear(), images, plain, None, local_epochs=3)
    train(Linear(), images, masked, make_masking(tmp_path, mode), local_epochs=3)

    assert masked.stddevs == plain.stddevs
    assert all(torch.equal(one, other) for one, other in zip(masked.noises, plain.noises, strict=True))


@pytest.mark.parametrize("mode", MODES)
def test_frozen_parameters_stay_as_they_are_under_masking(tmp_path: Path, mode: str) -> None:
    images = make_images(REAL)
    model = build_model(ModelConfig(name="cnn"), describe(images), seed=0)
    frozen = [parameter for name, parameter in model.named_parameters() if not name.startswith("output")]
    for parameter in frozen:
        parameter.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())

    train(model, images, Scripted(), make_masking(tmp_path, mode))

    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"output.weight", "output.bias"}
