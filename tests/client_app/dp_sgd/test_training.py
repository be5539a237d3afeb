"""Every step of DP-SGD agrees with one computed from gradients taken image by image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from client_app.augmentation import augment
from federation.accounting.events import SampledGaussianRelease
from federation.config import ModelConfig
from federation.datasets.image_set import ImageSet
from federation.models import build_model
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.gradients import clipped_sum, gradients_of, pixels_of
from tests.client_app.dp_sgd.networks import Prior
from tests.client_app.dp_sgd.streams import Linear, Seeded, Silent, describe, flat, images_of_patients, train

MODES = ["hooks", "ghost"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("name", "size"), [("cnn", 8), ("mlp", 6)])
def test_step_without_noise_is_the_sum_of_clipped_gradients_over_the_expected_units(
    name: Any, size: int, mode: str, layout: torch.memory_format
) -> None:
    images = make_images(10, size=size)
    model = build_model(ModelConfig(name=name), describe(images), seed=0).to(memory_format=layout)
    rows = gradients_of(model, pixels_of(images), torch.from_numpy(images.labels))
    middle = float(rows.norm(dim=1).median())
    before = flat(model)

    # All ten are sampled, while eight are expected: the divisor must not follow the sample.
    event = train(model, images, Silent(), plan={"batch_size": 8}, clip_norm=middle, grad_sample=mode)

    assert event == SampledGaussianRelease(noise_multiplier=1.0, sampling_probability=0.8, steps=1)
    expected = clipped_sum(rows, middle) / 8
    torch.testing.assert_close(before - flat(model), expected, rtol=1e-3, atol=2e-6 * middle)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_resnet18_steps_as_its_clipped_gradients_say(mode: str) -> None:
    images = make_images(4, size=8)
    model = build_model(ModelConfig(name="resnet18"), describe(images), seed=0).to(memory_format=torch.channels_last)
    rows = gradients_of(model, pixels_of(images), torch.from_numpy(images.labels))
    before = flat(model)

    train(model, images, Silent(), clip_norm=1.0, grad_sample=mode)

    torch.testing.assert_close(before - flat(model), clipped_sum(rows, 1.0) / 4, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_several_labels_per_image_give_one_loss_per_image(mode: str) -> None:
    labels = np.random.default_rng(0).integers(0, 2, (10, 3))
    images = ImageSet(images=make_images(10).images, labels=labels)
    model = Linear()
    rows = gradients_of(model, pixels_of(images), torch.from_numpy(labels))
    middle = float(rows.norm(dim=1).median())
    before = flat(model)

    train(model, images, Silent(), clip_norm=middle, grad_sample=mode)

    torch.testing.assert_close(before - flat(model), clipped_sum(rows, middle) / 10, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_public_class_frequencies_shift_the_logits(mode: str) -> None:
    images = make_images(10)
    model = Linear()
    rows = gradients_of(Prior([0.7, 0.2, 0.1]), pixels_of(images), torch.from_numpy(images.labels))
    middle = float(rows.norm(dim=1).median())
    before = flat(model)

    train(model, images, Silent(), plan={"class_prior": "0.7, 0.2, 0.1"}, clip_norm=middle, grad_sample=mode)

    torch.testing.assert_close(before - flat(model), clipped_sum(rows, middle) / 10, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("physical_batch", [1, 3, 4])
def test_step_in_parts_is_the_step_as_a_whole(mode: str, physical_batch: int) -> None:
    images = make_images(10, size=8)
    models = [build_model(ModelConfig(name="cnn"), describe(images), seed=0) for _ in range(2)]
    plan = {"batch_size": 9, "local_epochs": 3, "learning_rate": 0.1}
    streams = [Seeded(1), Seeded(1)]

    for model, stream, size in zip(models, streams, (256, physical_batch), strict=True):
        train(model, images, stream, plan=plan, grad_sample=mode, physical_batch=size, noise_multiplier=0.1)

    assert len(streams[0].stddevs) == len(streams[1].stddevs) == 3
    torch.testing.assert_close(flat(models[1]), flat(models[0]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "privacy", [{}, {"augmentation_multiplicity": 3}, {"unit": "patient", "images_per_patient": 2}]
)
def test_no_more_images_than_the_physical_batch_are_shown_at_once(privacy: dict[str, Any]) -> None:
    class Watched(Linear):
        def forward(self, images: Tensor) -> Tensor:
            shown.append(len(images))
            return super().forward(images)

    shown: list[int] = []
    images = images_of_patients([1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    plan = {"augmentation": "shift", "batch_size": 8}

    train(Watched(), images, Silent(), plan=plan, physical_batch=7, **privacy)

    probes = [3, 1, 1, 1]
    assert shown[: len(probes)] == probes
    assert max(shown) <= 7
    assert sum(shown) - sum(probes) == 10 * privacy.get("augmentation_multiplicity", 1)


@pytest.mark.parametrize("physical_batch", [2, 3, 256])
def test_gradients_of_a_patient_are_averaged_before_they_are_clipped(physical_batch: int) -> None:
    patients = [5, 3, 5, 5, 3, 9]
    images = images_of_patients(patients)
    model = Linear()
    rows = gradients_of(model, pixels_of(images), torch.from_numpy(images.labels))
    # The silent stream draws equal numbers, among which the first images of a patient come first.
    averages = torch.stack([rows[[1, 4]].mean(0), rows[[0, 2]].mean(0), rows[5]])
    before = flat(model)

    event = train(
        model,
        images,
        Silent(),
        plan={"batch_size": 3},
        unit="patient",
        images_per_patient=2,
        clip_norm=0.7,
        physical_batch=physical_batch,
    )

    assert (event.sampling_probability, event.steps) == (1.0, 1)
    torch.testing.assert_close(before - flat(model), clipped_sum(averages, 0.7) / 3, rtol=1e-4, atol=1e-6)


def test_gradients_of_augmented_views_are_averaged_before_they_are_clipped() -> None:
    images = make_images(5)
    model = Linear()
    views = augment(pixels_of(images).repeat_interleave(4, dim=0), "shift-flip", torch.Generator().manual_seed(7))
    labels = torch.from_numpy(images.labels).repeat_interleave(4)
    averages = gradients_of(model, views, labels).view(5, 4, -1).mean(dim=1)
    before = flat(model)

    train(
        model, images, Silent(), plan={"augmentation": "shift-flip"}, augmentation_multiplicity=4, clip_norm=1, seed=7
    )

    torch.testing.assert_close(before - flat(model), clipped_sum(averages, 1.0) / 5, rtol=1e-4, atol=1e-6)


def test_hooks_and_ghost_clipping_train_alike() -> None:
    images = make_images(20, size=8)
    models = [build_model(ModelConfig(name="cnn"), describe(images), seed=0) for _ in MODES]
    plan = {"batch_size": 5, "local_epochs": 2, "optimizer": "sgd", "learning_rate": 0.1, "augmentation": "shift"}

    for model, mode in zip(models, MODES, strict=True):
        train(model, images, Seeded(4), plan=plan, grad_sample=mode, clip_norm=0.5)

    torch.testing.assert_close(flat(models[1]), flat(models[0]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_frozen_parameters_stay_and_count_for_no_norm(mode: str) -> None:
    images = make_images(10, size=8)
    model = build_model(ModelConfig(name="cnn"), describe(images), seed=0)
    assert isinstance(model.output, nn.Linear)
    output: nn.Linear = model.output
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("output"))
    frozen = {name: value.clone() for name, value in model.state_dict().items() if not name.startswith("output")}
    features: list[Tensor] = []
    handle = output.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].detach()))
    model(pixels_of(images))
    handle.remove()
    head = nn.Linear(512, 3)
    head.load_state_dict(output.state_dict())
    rows = gradients_of(head, features[0], torch.from_numpy(images.labels))

    train(model, images, Silent(), clip_norm=0.5, grad_sample=mode)

    assert all(torch.equal(value, model.state_dict()[name]) for name, value in frozen.items())
    torch.testing.assert_close(flat(head) - flat(output), clipped_sum(rows, 0.5) / 10, rtol=1e-3, atol=1e-6)


class Shifted(Linear):
    """Adds a frozen shift and scales by what is learned, in a layer that Opacus has no rule for."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 36))
        self.shift = nn.Parameter(torch.linspace(-0.1, 0.1, 36), requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.flatten(1) * self.scale + self.shift)


@pytest.mark.parametrize("mode", MODES)
def test_layer_without_a_rule_of_its_own_may_be_partly_frozen(mode: str) -> None:
    images = make_images(10)
    model = Shifted()
    shift = model.shift.clone()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows = gradients_of(model, pixels_of(images), torch.from_numpy(images.labels))
    before = torch.cat([parameter.detach().flatten().clone() for parameter in trainable])

    train(model, images, Silent(), clip_norm=0.5, grad_sample=mode)

    moved = before - torch.cat([parameter.detach().flatten() for parameter in trainable])
    torch.testing.assert_close(moved, clipped_sum(rows, 0.5) / 10, rtol=1e-4, atol=1e-6)
    assert torch.equal(model.shift, shift)
