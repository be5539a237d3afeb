"""Every step of DP-SGD agrees with one computed from gradients taken image by image, and leaves no trace but values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from client_app.augmentation import augment
from client_app.dp_sgd import dp_sgd_event
from client_app.dp_sgd.gradient_hooks import UnitGradients
from federation.accounting.events import SampledGaussianRelease
from federation.config import ModelConfig, PrivacyConfig, TrainingConfig
from federation.datasets.image_set import ImageSet
from federation.errors import PrivacyError, SiteError, SiteErrorCode
from federation.models import build_model
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.streams import Linear, Seeded, Silent, describe, flat, images_of_patients, train

MODES = ["hooks", "ghost"]


def pixels_of(images: ImageSet) -> Tensor:
    return torch.from_numpy(images.images / 255).float()


def gradients_of(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return each image's gradient as a row, by autograd on one image at a time."""

    def loss(image: Tensor, label: Tensor) -> Tensor:
        logits = model(image[None])[0]
        several = label.ndim > 0
        if several:
            return functional.binary_cross_entropy_with_logits(logits, label.float())
        return functional.cross_entropy(logits, label)

    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rows = []
    for image, label in zip(images, labels, strict=True):
        slopes = torch.autograd.grad(loss(image, label), trainable)
        rows.append(torch.cat([slope.flatten() for slope in slopes]))
    return torch.stack(rows)


def clipped_sum(rows: Tensor, clip_norm: float) -> Tensor:
    """Return the sum of `rows`, each of which is shortened to `clip_norm` where it is longer."""
    return sum(row * min(1.0, clip_norm / float(row.double().norm())) for row in rows)


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


class Prior(nn.Module):
    """A linear model whose logits are shifted by the logs of given frequencies."""

    def __init__(self, frequencies: list[float]) -> None:
        super().__init__()
        self.inner = Linear()
        self.shift = torch.tensor(frequencies).log()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(images) + self.shift
        return logits


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
def test_empty_sample_is_a_step_on_noise_alone(mode: str) -> None:
    images = make_images(100, size=28)
    model = build_model(ModelConfig(name="mlp"), describe(images), seed=0)
    before = flat(model)

    class Nobody(Seeded):
        def uniform(self, count: int) -> Tensor:
            return torch.ones(count, dtype=torch.float64)

    plan = {"batch_size": 80}
    train(model, images, Nobody(0), plan=plan, noise_multiplier=3.0, clip_norm=0.5, grad_sample=mode)

    moved = before - flat(model)
    assert len(moved) > 50_000
    # Standard deviation 3 * 0.5 on the sum, over 80 expected units; one part in a hundred is over three sigma.
    assert float(moved.std()) == pytest.approx(3.0 * 0.5 / 80, rel=0.01)
    assert abs(float(moved.mean())) < 5 * 3.0 * 0.5 / 80 / math.sqrt(len(moved))


@pytest.mark.parametrize("mode", MODES)
def test_no_step_is_skipped_however_few_are_sampled(mode: str) -> None:
    noise = Seeded(0)

    event = train(Linear(), make_images(200), noise, plan={"batch_size": 1}, grad_sample=mode, clip_norm=2.0)

    assert event == SampledGaussianRelease(noise_multiplier=1.0, sampling_probability=1 / 200, steps=200)
    assert noise.stddevs == [2.0] * 200
    empty = sum(bool((drawn >= 1 / 200).all()) for drawn in noise.drawn)
    assert 40 < empty < 110  # 73 expected


@pytest.mark.parametrize("mode", MODES)
def test_momentum_sees_empty_steps_too(mode: str) -> None:
    model = Linear()
    before = flat(model)

    class Last(Silent):
        """Samples everybody in the first step and nobody afterwards."""

        def uniform(self, count: int) -> Tensor:
            drawn = super().uniform(count)
            self.drawn = 1.0
            return drawn

    plan = {"batch_size": 9, "local_epochs": 3, "momentum": 0.5}
    images = make_images(10)
    train(model, images, Last(), plan=plan, grad_sample=mode)

    once = clipped_sum(gradients_of(Linear(), pixels_of(images), torch.from_numpy(images.labels)), 1.0) / 9
    torch.testing.assert_close(before - flat(model), once * (1 + 0.5 + 0.25), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_plan_names_the_optimizer_that_moves_by_the_noised_gradient(optimizer: str, mode: str) -> None:
    model = Linear()
    before = flat(model)

    train(model, make_images(10), Seeded(0), plan={"optimizer": optimizer, "learning_rate": 0.01}, grad_sample=mode)

    # The first step of Adam moves everything by the rate, whatever the gradient is.
    torch.testing.assert_close((before - flat(model)).abs(), torch.full_like(before, 0.01), rtol=1e-3, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_global_generator_neither_decides_anything_nor_moves(mode: str) -> None:
    plan = {"batch_size": 4, "augmentation": "shift-flip", "local_epochs": 2}
    first, second = Linear(), Linear()
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - the generator that must not matter
    train(first, make_images(10), Seeded(0), plan=plan, grad_sample=mode)
    torch.manual_seed(2)
    before, other_before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002

    train(second, make_images(10), Seeded(0), plan=plan, grad_sample=mode)

    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == other_before  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(first.output.weight, second.output.weight)


def test_another_private_stream_gives_another_model() -> None:
    first, second = Linear(), Linear()

    for model, seed in ((first, 1), (second, 2)):
        train(model, make_images(10), Seeded(seed))

    assert not torch.equal(first.output.weight, second.output.weight)


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


def traces(model: nn.Module) -> list[Any]:
    """Return everything that hangs on a model beside the values of its parameters."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    modules = [(type(m), sorted(vars(m)), [len(getattr(m, kind)) for kind in hooks]) for m in model.modules()]
    return [modules, list(model.state_dict()), [(dict(vars(p)), p.grad, p.requires_grad) for p in model.parameters()]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["cnn", "mlp", pytest.param("resnet18", marks=pytest.mark.slow)])
def test_nothing_is_left_on_the_model_but_trained_values(name: Any, mode: str) -> None:
    images = make_images(6, size=8)
    model = build_model(ModelConfig(name=name), describe(images), seed=0)
    before = traces(model)

    train(model, images, Seeded(0), plan={"batch_size": 4, "local_epochs": 2}, grad_sample=mode)

    assert traces(model) == before
    train(model, images, Seeded(0), grad_sample=mode)


class Normalizing(Linear):
    """Divides an image by its brightness, and a black one by zero."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images / images.flatten(1).sum(1).view(-1, 1, 1, 1))


@pytest.mark.parametrize("mode", MODES)
def test_gradient_that_is_not_finite_ends_training_and_leaves_no_trace(mode: str) -> None:
    pictures = make_images(6).images.copy()
    pictures[3] = 0
    images = ImageSet(images=pictures, labels=make_images(6).labels)
    model = Normalizing()
    before = traces(model)

    with pytest.raises(SiteError, match="finite gradients, found NaN or infinity; nothing is released") as failed:
        train(model, images, Seeded(0), grad_sample=mode)

    assert failed.value.code is SiteErrorCode.TRAINING_FAILED
    assert traces(model) == before
    assert torch.equal(flat(model), flat(Linear()))


class Broken(Silent):
    """Fails when noise is drawn, with clipped gradients on the model."""

    def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> Tensor:
        raise RuntimeError("no noise")


@pytest.mark.parametrize("mode", MODES)
def test_training_that_stops_without_noise_leaves_no_gradient_behind(mode: str) -> None:
    model = Linear()
    before = traces(model)

    with pytest.raises(RuntimeError, match="no noise"):
        train(model, make_images(6), Broken(), grad_sample=mode)

    assert traces(model) == before
    assert torch.equal(flat(model), flat(Linear()))


def test_training_that_stops_between_layers_leaves_no_activation_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Linear()
    before = traces(model)
    ordinary = UnitGradients.GRAD_SAMPLERS[nn.Linear]

    def run_out_of_memory(layer: nn.Module, activations: Any, backprops: Tensor) -> Any:
        if len(backprops) == 6:
            layer.activations = [activations]  # type: ignore[assignment]  # as of a layer not yet reached
            raise RuntimeError("out of memory")
        return ordinary(layer, activations, backprops)

    monkeypatch.setitem(UnitGradients.GRAD_SAMPLERS, nn.Linear, run_out_of_memory)
    with pytest.raises(RuntimeError, match="out of memory"):
        train(model, make_images(6), Silent())

    assert traces(model) == before


def test_infinite_gradient_is_refused_too() -> None:
    class Exploding(Linear):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images * 3e38 * (images.amax(dim=(1, 2, 3), keepdim=True) == 1))

    images = ImageSet(images=np.full((3, 1, 6, 6), 255, np.uint8), labels=np.array([0, 1, 2]))

    with pytest.raises(SiteError, match="finite gradients"):
        train(Exploding(), images, Silent())


def event_of(units: int, **plan: Any) -> SampledGaussianRelease:
    return dp_sgd_event(units, TrainingConfig(**plan), PrivacyConfig(mechanism="dp-sgd"), 1.5)


@pytest.mark.parametrize(
    ("units", "batch_size", "epochs", "probability", "steps"),
    [
        (1000, 64, 1, 0.064, 16),
        (1000, 64, 3, 0.064, 48),
        (10, 64, 2, 1.0, 2),
        (64, 64, 1, 1.0, 1),
        (90, 64, 1, 64 / 90, 1),
        (100, 64, 1, 0.64, 2),
        (1, 1, 5, 1.0, 5),
    ],
)
def test_event_follows_from_the_number_of_units_and_the_plan(
    units: int, batch_size: int, epochs: int, probability: float, steps: int
) -> None:
    event = event_of(units, batch_size=batch_size, local_epochs=epochs)

    assert event == SampledGaussianRelease(noise_multiplier=1.5, sampling_probability=probability, steps=steps)


@pytest.mark.parametrize("patients", [[1, 2, 2, 2, 3, 3], [1, 1, 1, 1, 1, 1]])
def test_training_causes_the_event_that_was_told_beforehand(patients: list[int]) -> None:
    plan: dict[str, Any] = {"batch_size": 2, "local_epochs": 3, "optimizer": "sgd", "learning_rate": 0.1}
    noise = Seeded(0)

    event = train(
        Linear(), images_of_patients(patients), noise, plan=plan, unit="patient", clip_norm=0.25, noise_multiplier=1.5
    )

    assert event == event_of(len(set(patients)), **plan)
    assert noise.stddevs == [1.5 * 0.25] * event.steps


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, math.nan, math.inf])
def test_noise_that_protects_nothing_is_refused_before_anything_moves(noise_multiplier: float) -> None:
    model = Linear()

    with pytest.raises(PrivacyError, match="noise_multiplier="):
        train(model, make_images(4), Seeded(0), noise_multiplier=noise_multiplier)

    assert torch.equal(flat(model), flat(Linear()))


def test_no_units_are_refused() -> None:
    with pytest.raises(SiteError, match="units=0 >= 1") as refused:
        event_of(0)

    assert refused.value.code is SiteErrorCode.EMPTY_SPLIT


def test_logit_adjustment_is_refused_because_it_trains_on_private_counts() -> None:
    with pytest.raises(
        SiteError, match=r"label-skew = 'none' under dp-sgd, found 'logit-adjustment': .*counts"
    ) as refused:
        event_of(10, label_skew="logit-adjustment")

    assert refused.value.code is SiteErrorCode.PLAN_REFUSED


@pytest.mark.parametrize(
    ("privacy", "augmentation", "largest"),
    [
        ({"unit": "patient", "images_per_patient": 9}, "shift", 9),
        ({"augmentation_multiplicity": 9}, "shift", 9),
        ({"unit": "patient", "images_per_patient": 5, "augmentation_multiplicity": 4}, "shift-flip", 20),
        ({"unit": "patient", "images_per_patient": 9, "augmentation_multiplicity": 4}, "none", 9),
    ],
)
def test_unit_that_does_not_fit_into_memory_is_refused(
    privacy: dict[str, Any], augmentation: Any, largest: int
) -> None:
    config = PrivacyConfig(mechanism="dp-sgd", physical_batch=8, **privacy)

    with pytest.raises(SiteError, match=f"physical-batch=8 >= {largest}, .*raise it") as refused:
        dp_sgd_event(10, TrainingConfig(augmentation=augmentation), config, 1.0)

    assert refused.value.code is SiteErrorCode.PLAN_REFUSED


@pytest.mark.parametrize("privacy", [{"images_per_patient": 9}, {"augmentation_multiplicity": 9}])
def test_limits_that_do_not_apply_refuse_nothing(privacy: dict[str, Any]) -> None:
    config = PrivacyConfig(mechanism="dp-sgd", physical_batch=8, **privacy)

    assert dp_sgd_event(10, TrainingConfig(), config, 1.0).steps == 1
