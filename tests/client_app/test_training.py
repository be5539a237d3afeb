"""Local training is plain mini-batch descent: every step agrees with one computed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from client_app.training import make_optimizer, prior_shift, require_plan, train_locally
from federation.config import TrainingConfig
from federation.datasets.image_set import DatasetInfo, ImageSet, Task
from federation.errors import SiteError, SiteErrorCode
from federation.parameters import read_parameters
from tests.client_app.calls import make_images

CPU = torch.device("cpu")


class Watched(nn.Module):
    """A linear model that remembers every batch it was shown."""

    def __init__(self, pixels: int = 36, classes: int = 3) -> None:
        super().__init__()
        self.linear = nn.Linear(pixels, classes)
        with torch.no_grad():
            generator = torch.Generator().manual_seed(0)
            self.linear.weight.copy_(torch.randn(classes, pixels, generator=generator) / 10)
            self.linear.bias.zero_()
        self.batches: list[Tensor] = []
        self.modes: list[bool] = []

    def forward(self, images: Tensor) -> Tensor:
        self.batches.append(images.detach().clone())
        self.modes.append(self.training)
        logits: Tensor = self.linear(images.flatten(1))
        return logits


def train(model: Watched, images: ImageSet, *, seed: int = 0, task: Task = Task.MULTICLASS, **plan: Any) -> Watched:
    settings = TrainingConfig(**{"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 1000, **plan})
    names = tuple("abc"[: model.linear.out_features])
    info = DatasetInfo(name="toy", task=task, class_names=names, channels=1, height=6, width=6)
    train_locally(model, images, info, settings, generator=torch.Generator().manual_seed(seed), device=CPU)
    return model


def pixels_of(images: ImageSet) -> Tensor:
    return torch.from_numpy(images.images.reshape(len(images), -1) / 255).float()


def as_rows(batch: Tensor) -> list[tuple[int, ...]]:
    return [tuple(row) for row in (batch.flatten(1) * 255).round().int().tolist()]


def test_one_step_of_sgd_is_the_gradient_times_the_rate() -> None:
    images = make_images(10)
    before = Watched()
    x, y = pixels_of(images), torch.from_numpy(images.labels)
    # The gradient of softmax cross-entropy in closed form: (p - y)^T x / n.
    slope = (before.linear(x).softmax(1) - functional.one_hot(y, 3)).detach() / len(images)

    after = train(Watched(), images, learning_rate=0.1)

    torch.testing.assert_close(after.linear.weight, before.linear.weight - 0.1 * slope.T @ x)
    torch.testing.assert_close(after.linear.bias, before.linear.bias - 0.1 * slope.sum(0))


def test_logit_adjustment_descends_on_logits_shifted_by_the_log_class_frequencies() -> None:
    images = ImageSet(images=make_images(10).images, labels=np.array([0, 0, 0, 0, 0, 0, 0, 1, 1, 0]))
    before = Watched()
    x, y = pixels_of(images), torch.from_numpy(images.labels)
    prior = torch.tensor([9, 3, 1]) / 13  # Eight, two and no image, one added to each class.
    shifted = (before.linear(x).softmax(1) * prior) / (before.linear(x).softmax(1) * prior).sum(1, keepdim=True)
    slope = (shifted - functional.one_hot(y, 3)).detach() / len(images)

    after = train(Watched(), images, learning_rate=0.1, label_skew="logit-adjustment")

    torch.testing.assert_close(after.linear.weight, before.linear.weight - 0.1 * slope.T @ x)


def test_logit_adjustment_is_refused_where_an_image_has_several_labels() -> None:
    images = ImageSet(images=make_images(4).images, labels=np.ones((4, 3), dtype=np.int64))

    with pytest.raises(SiteError, match="one label per image") as refused:
        train(Watched(), images, task=Task.MULTILABEL, label_skew="logit-adjustment")

    assert refused.value.code is SiteErrorCode.PLAN_REFUSED


def test_several_labels_are_trained_with_binary_cross_entropy() -> None:
    labels = np.random.default_rng(0).integers(0, 2, (10, 3))
    images = ImageSet(images=make_images(10).images, labels=labels)
    before = Watched()
    x, y = pixels_of(images), torch.from_numpy(labels)
    # The gradient of the mean binary cross-entropy in closed form: (sigmoid - y)^T x / (n L).
    slope = (before.linear(x).sigmoid() - y).detach().float() / (len(images) * 3)

    after = train(Watched(), images, task=Task.MULTILABEL, learning_rate=0.1)

    torch.testing.assert_close(after.linear.weight, before.linear.weight - 0.1 * slope.T @ x)


@pytest.mark.parametrize("plan", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.5, "weight_decay": 0.01}])
def test_momentum_and_weight_decay_follow_their_recurrence(plan: dict[str, Any]) -> None:
    images = make_images(10)
    reference = Watched()
    weight = reference.linear.weight.detach().clone().requires_grad_()
    x, y = pixels_of(images), torch.from_numpy(images.labels)
    bias, velocity = torch.zeros(3, requires_grad=True), [torch.zeros(3, 36), torch.zeros(3)]
    for _ in range(3):
        loss = functional.cross_entropy(x @ weight.T + bias, y)
        slopes = torch.autograd.grad(loss, (weight, bias))
        with torch.no_grad():
            for index, value in enumerate((weight, bias)):
                slope = slopes[index] + plan.get("weight_decay", 0.0) * value
                velocity[index] = plan.get("momentum", 0.0) * velocity[index] + slope
                value.sub_(0.1 * velocity[index])

    after = train(Watched(), images, local_epochs=3, **plan)

    torch.testing.assert_close(after.linear.weight, weight.detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(after.linear.bias, bias.detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_first_step_of_adam_moves_every_parameter_by_the_rate(optimizer: str) -> None:
    images = make_images(10)
    before = Watched()
    functional.cross_entropy(before(pixels_of(images)), torch.from_numpy(images.labels)).backward()
    assert before.linear.weight.grad is not None
    moved = before.linear.weight.grad.abs() > 1e-5

    after = train(Watched(), images, optimizer=optimizer, learning_rate=0.01)

    expected = before.linear.weight - 0.01 * before.linear.weight.grad.sign()
    torch.testing.assert_close(after.linear.weight[moved], expected[moved], rtol=0, atol=2e-5)


def test_adamw_decays_weights_apart_from_the_gradient_and_adam_within_it() -> None:
    images = make_images(10)
    plain = train(Watched(), images, optimizer="adamw", learning_rate=0.01)

    apart = train(Watched(), images, optimizer="adamw", learning_rate=0.01, weight_decay=0.5)
    within = train(Watched(), images, optimizer="adam", learning_rate=0.01, weight_decay=0.5)

    expected = plain.linear.weight - 0.01 * 0.5 * Watched().linear.weight
    torch.testing.assert_close(apart.linear.weight, expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(within.linear.weight, apart.linear.weight, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_state_of_the_optimizer_does_not_outlive_an_update(optimizer: str) -> None:
    images, other = make_images(10), make_images(10, seed=1)
    fresh = train(Watched(), images, optimizer=optimizer, momentum=0.9)
    worn = train(Watched(), other, optimizer=optimizer, momentum=0.9)
    worn.load_state_dict(Watched().state_dict())

    train(worn, images, optimizer=optimizer, momentum=0.9)

    assert torch.equal(worn.linear.weight, fresh.linear.weight)


def test_gradients_of_an_earlier_use_do_not_leak_into_the_first_step() -> None:
    images = make_images(10)
    used = Watched()
    used(pixels_of(images)).sum().backward()

    train(used, images)

    assert torch.equal(used.linear.weight, train(Watched(), images).linear.weight)


@pytest.mark.parametrize(
    ("count", "batch_size", "epochs", "sizes"),
    [
        (10, 4, 1, [4, 4, 2]),
        (10, 4, 3, [4, 4, 2] * 3),
        (8, 4, 2, [4, 4] * 2),
        (3, 100, 2, [3, 3]),
        (1, 1, 1, [1]),
        (4, 1, 1, [1] * 4),
    ],
)
def test_every_epoch_shows_every_image_once_in_batches(
    count: int, batch_size: int, epochs: int, sizes: list[int]
) -> None:
    images = make_images(count)
    model = Watched()

    train(model, images, batch_size=batch_size, local_epochs=epochs)

    assert [len(batch) for batch in model.batches] == sizes
    rows = as_rows(torch.cat(model.batches))
    for epoch in range(epochs):
        shown = rows[epoch * count : (epoch + 1) * count]
        assert sorted(shown) == sorted(as_rows(pixels_of(images)))


def test_order_of_images_changes_from_epoch_to_epoch() -> None:
    model = Watched()

    train(model, make_images(30), local_epochs=2)

    assert as_rows(model.batches[0]) != as_rows(model.batches[1])


def test_model_trains_in_training_mode() -> None:
    model = Watched().eval()

    train(model, make_images(5), batch_size=2)

    assert model.modes == [True] * 3


@pytest.mark.parametrize("augmentation", ["none", "shift", "shift-flip"])
def test_same_generator_gives_the_same_bits_and_another_gives_others(augmentation: str) -> None:
    images = make_images(20)
    plan: dict[str, Any] = {"batch_size": 4, "local_epochs": 2, "augmentation": augmentation}

    first, second, other = (read_parameters(train(Watched(), images, seed=seed, **plan)) for seed in (1, 1, 2))

    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_training_neither_uses_nor_moves_the_global_generator() -> None:
    plan: dict[str, Any] = {"batch_size": 4, "augmentation": "shift-flip"}
    first, second = Watched(), Watched()
    torch.manual_seed(1)
    train(first, make_images(10), **plan)
    torch.manual_seed(2)
    before = torch.get_rng_state()

    train(second, make_images(10), **plan)

    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.linear.weight, second.linear.weight)


def test_augmentation_changes_what_the_model_sees() -> None:
    images, plain, shifted = make_images(20), Watched(), Watched()

    train(plain, images)
    train(shifted, images, augmentation="shift")

    assert set(as_rows(plain.batches[0])) == set(as_rows(pixels_of(images)))
    assert set(as_rows(shifted.batches[0])) != set(as_rows(pixels_of(images)))
    assert shifted.batches[0].shape == plain.batches[0].shape


def test_images_that_must_not_be_written_can_be_trained_on() -> None:
    images = make_images(5)
    images.images.flags.writeable = False
    images.labels.flags.writeable = False

    train(Watched(), images)


@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
)
def test_plan_names_the_optimizer(name: Any, kind: type[torch.optim.Optimizer]) -> None:
    plan = TrainingConfig(optimizer=name, learning_rate=0.25, weight_decay=0.125)

    optimizer = make_optimizer([nn.Parameter(torch.zeros(1))], plan)

    assert type(optimizer) is kind
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.25, 0.125)


def test_public_prior_shifts_logits_by_its_logs() -> None:
    info = DatasetInfo(name="x", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=6, width=6)

    shift = prior_shift(info, TrainingConfig(class_prior="0.25,0.75"))

    assert shift.tolist() == pytest.approx([math.log(0.25), math.log(0.75)])
    assert prior_shift(info, TrainingConfig()).tolist() == [0.0]


def test_public_prior_of_other_classes_is_refused() -> None:
    info = DatasetInfo(name="x", task=Task.MULTICLASS, class_names=("a", "b", "c"), channels=1, height=6, width=6)

    with pytest.raises(SiteError, match=r"class-prior of 3 classes .* found 2") as error:
        prior_shift(info, TrainingConfig(class_prior="0.25,0.75"))

    assert error.value.code is SiteErrorCode.PLAN_REFUSED


def plan_for(height: int, **plan: Any) -> None:
    info = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=height, width=6)
    require_plan(info, TrainingConfig(**plan))


@pytest.mark.parametrize("augmentation", ["shift", "shift-flip"])
def test_rows_of_a_table_are_not_moved(augmentation: str) -> None:
    plan_for(6, augmentation=augmentation)
    plan_for(1)
    with pytest.raises(SiteError, match="rows of a table"):
        plan_for(1, augmentation=augmentation)


def test_plan_for_other_classes_is_refused_without_an_image() -> None:
    plan_for(6, class_prior="0.5,0.5")
    with pytest.raises(SiteError, match="found 3"):
        plan_for(6, class_prior="0.5,0.25,0.25")
