"""Every mode gives every image the weight that its docstring states: by closed form, and in gradients of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from client_app.masking.preparation import Masking
from client_app.masking.schedule import Step, count_beside, plan_epoch
from client_app.masking.training import RealImages, train_masked
from federation.config.masking_table import MaskingMode
from tests.client_app.masking.made_up_caches import make_masking

MODES: list[MaskingMode] = ["sequential", "lambda", "joint", "interleaved"]
# n, B, M: one mini-batch or several, the last one full or not, M below, at and above the number of mini-batches.
SIZES = [(6, 6, 4), (6, 100, 1), (7, 3, 2), (7, 3, 3), (7, 3, 8), (12, 4, 9), (10, 1, 4), (130, 64, 2048)]
SEVERAL_BATCHES = st.lists(st.integers(1, 200), min_size=1, max_size=30)


def split(n: int, batch_size: int) -> list[float]:
    """Return the mini-batches that `n` images are divided into."""
    return [min(batch_size, n - start) for start in range(0, n, batch_size)]


def real_weight_over_epoch(steps: list[Step], batch: int) -> float:
    return sum(step.real_weight for step in steps if step.batch == batch)


def synthetic_weights_over_epoch(steps: list[Step], size: int) -> list[float]:
    return [sum(step.synthetic_weight for step in steps if place in step.synthetic) for place in range(size)]


def weight_of_step(step: Step, batches: list[float]) -> float:
    own = 0.0 if step.batch is None else batches[step.batch]
    return own * step.real_weight + len(step.synthetic) * step.synthetic_weight


def test_every_mode_of_the_configuration_can_be_planned() -> None:
    planned = [plan_epoch(mode, [4.0], 0 if mode == "none" else 2) for mode in get_args(MaskingMode)]

    assert all(planned)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("n", "batch_size", "size"), SIZES)
def test_fewest_beside_real_images_is_what_the_steps_have(
    mode: MaskingMode, n: int, batch_size: int, size: int
) -> None:
    batches = split(n, batch_size)
    private = [step for step in plan_epoch(mode, batches, size) if step.batch is not None]

    equal = min(len(step.synthetic) if step.synthetic_weight == step.real_weight else 0 for step in private)
    assert count_beside(mode, size, len(batches)) == equal


@pytest.mark.parametrize(("n", "batch_size", "size"), SIZES)
def test_unmasked_real_image_weighs_one_over_its_mini_batch(n: int, batch_size: int, size: int) -> None:
    batches = split(n, batch_size)

    steps = plan_epoch("none", batches, 0)

    assert [(step.batch, len(step.synthetic)) for step in steps] == [(number, 0) for number in range(len(batches))]
    assert [step.real_weight for step in steps] == [1 / b for b in batches]


@pytest.mark.parametrize(("n", "batch_size", "size"), SIZES)
def test_sequential_takes_a_mean_step_on_all_synthetic_images_after_ordinary_ones(
    n: int, batch_size: int, size: int
) -> None:
    batches = split(n, batch_size)

    *ordinary, last = plan_epoch("sequential", batches, size)

    assert ordinary == plan_epoch("none", batches, 0)
    assert (last.batch, last.synthetic) == (None, range(size))
    assert last.synthetic_weight == 1 / size


def test_sequential_synthetic_image_weighs_a_32nd_of_a_real_one_for_64_beside_2048() -> None:
    first, last = plan_epoch("sequential", [64], 2048)

    assert last.synthetic_weight / first.real_weight == 1 / 32


@pytest.mark.parametrize(("n", "batch_size", "size"), SIZES)
def test_lambda_weighs_every_image_of_an_epoch_the_same(n: int, batch_size: int, size: int) -> None:
    batches = split(n, batch_size)
    expected = pytest.approx(len(batches) / (n + size), rel=1e-12)

    steps = plan_epoch("lambda", batches, size)

    assert [step.batch for step in steps] == [*range(len(batches)), None]
    assert {len(step.synthetic) for step in steps[:-1]} == {0}
    assert [real_weight_over_epoch(steps, number) for number in range(len(batches))] == [expected] * len(batches)
    assert synthetic_weights_over_epoch(steps, size) == [expected] * size


def test_lambda_with_one_mini_batch_weighs_mean_losses_by_numbers_of_images() -> None:
    real, synthetic = plan_epoch("lambda", [30], 50)

    # A mean over n multiplied by n / (n + M), and one over M by M / (n + M), as in the paper.
    assert real.real_weight == pytest.approx(1 / 30 * (30 / 80))
    assert synthetic.synthetic_weight == pytest.approx(1 / 50 * (50 / 80))


@pytest.mark.parametrize(("n", "batch_size", "size"), SIZES)
def test_joint_step_is_a_mean_over_a_mini_batch_and_all_synthetic_images(n: int, batch_size: int, size: int) -> None:
    batches = split(n, batch_size)

    steps = plan_epoch("joint", batches, size)

    assert [(step.batch, step.synthetic) for step in steps] == [(number, range(size)) for number in range(len(batches))]
    assert [(step.real_weight, step.synthetic_weight) for step in steps] == [(1 / (b + size),) * 2 for b in batches]


def test_joint_synthetic_image_weighs_as_much_as_one_real_image_per_mini_batch() -> None:
    steps = plan_epoch("joint", [4.0] * 5, 3)

    assert synthetic_weights_over_epoch(steps, 3) == [pytest.approx(5 * real_weight_over_epoch(steps, 0))] * 3


@pytest.mark.parametrize(("n", "batch_size", "size"), SIZES)
def test_interleaved_step_is_a_mean_over_a_mini_batch_and_its_share(n: int, batch_size: int, size: int) -> None:
    batches = split(n, batch_size)

    steps = plan_epoch("interleaved", batches, size)

    shares = [len(step.synthetic) for step in steps]
    assert [step.batch for step in steps] == list(range(len(batches)))
    assert [place for step in steps for place in step.synthetic] == list(range(size))
    assert max(shares) - min(shares) <= 1
    expected = [(1 / (b + m),) * 2 for b, m in zip(batches, shares, strict=True)]
    assert [(step.real_weight, step.synthetic_weight) for step in steps] == expected


def test_interleaved_with_equal_mini_batches_weighs_every_image_as_lambda_does() -> None:
    batches = [4.0] * 5

    steps = plan_epoch("interleaved", batches, 15)

    weights = [real_weight_over_epoch(steps, number) for number in range(5)] + synthetic_weights_over_epoch(steps, 15)
    assert weights == [pytest.approx(5 / (20 + 15))] * 20


@given(batches=SEVERAL_BATCHES, size=st.integers(1, 300))
def test_weights_of_a_step_sum_to_one_except_under_lambda_where_those_of_an_epoch_sum_to_its_mini_batches(
    batches: list[float], size: int
) -> None:
    sums = {mode: [weight_of_step(step, batches) for step in plan_epoch(mode, batches, size)] for mode in MODES}

    assert sum(sums.pop("lambda")) == pytest.approx(len(batches))
    assert [total for totals in sums.values() for total in totals] == [pytest.approx(1.0)] * (3 * len(batches) + 1)


@given(batches=SEVERAL_BATCHES, size=st.integers(1, 300), mode=st.sampled_from(MODES))
def test_every_mini_batch_takes_part_once_in_order(batches: list[float], size: int, mode: MaskingMode) -> None:
    steps = plan_epoch(mode, batches, size)

    assert [step.batch for step in steps if step.batch is not None] == list(range(len(batches)))


def test_mini_batches_may_be_expected_sizes_of_random_ones() -> None:
    (step,) = plan_epoch("joint", [12.5], 10)

    assert step.real_weight == step.synthetic_weight == 1 / 22.5


@pytest.mark.parametrize(
    ("mode", "batches", "size"),
    [
        *[(mode, [4.0], 0) for mode in MODES],
        *[(mode, [4.0], -1) for mode in MODES],
        *[(mode, [], 3) for mode in MODES],
        *[(mode, [4.0, 0.0], 3) for mode in MODES],
        *[(mode, [-1.0, 4.0], 3) for mode in MODES],
        ("none", [], 0),
        ("none", [4.0], 1),
    ],
)
def test_epoch_without_images_of_a_kind_is_refused(mode: MaskingMode, batches: list[float], size: int) -> None:
    with pytest.raises(ValueError, match=f"synthetic={size} to fit mode='{mode}'"):
        plan_epoch(mode, batches, size)


PIXELS, CLASSES, RATE = 9, 3, 0.5
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def make_real(count: int) -> RealImages:
    """Return images that are even where synthetic ones are odd in their first pixel, to tell the two kinds apart."""
    generator = torch.Generator().manual_seed(count)
    pixels = torch.randint(0, 256, (count, 1, 3, 3), generator=generator, dtype=torch.uint8)
    pixels[:, 0, 0, 0] = 2 * torch.arange(count)
    return RealImages(
        pixels=pixels, labels=torch.randint(0, CLASSES, (count,), generator=generator), augmentation="none"
    )


def make_synthetic(folder: Path, size: int, mode: MaskingMode) -> Masking:
    pixels = torch.randint(0, 256, (size, 1, 3, 3), generator=torch.Generator().manual_seed(9)).numpy()
    pixels[:, 0, 0, 0] = 2 * torch.arange(size).numpy() + 1
    return make_masking(folder, size=size, mode=mode, micro_batch=2, shape=(1, 3, 3), fill=pixels)


def are_synthetic(images: Tensor) -> Tensor:
    return (images[:, 0, 0, 0] * 255).round() % 2 == 1


def make_linear() -> nn.Linear:
    layer = nn.Linear(PIXELS, CLASSES)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(CLASSES, PIXELS, generator=torch.Generator().manual_seed(3)))
        layer.bias.zero_()
    return layer


def slopes_of(weight: Tensor, bias: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """Return each image's gradient by `torch.func`: float64, shape (N, weights and biases)."""

    def loss(weight: Tensor, bias: Tensor, image: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy((weight @ image.flatten() + bias)[None], label[None])

    each = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(None, None, 0, 0))
    parts = each(weight.double(), bias.double(), images.double(), labels)
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def flat(weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([weight.detach().flatten(), bias.detach()]).double()


@dataclass
class SeenStep:
    """What one optimizer step was handed, and at which parameters."""

    images: Tensor
    labels: Tensor
    weight: Tensor
    bias: Tensor
    gradient: Tensor


@dataclass
class Watch:
    """Trains a linear model and notes every step."""

    layer: nn.Linear = field(default_factory=make_linear)
    shown: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    steps: list[SeenStep] = field(default_factory=list)

    def losses_of(self, images: Tensor, labels: Tensor) -> Tensor:
        # An image alone is shown beside a copy without weight.
        once = slice(1 if len(images) == 2 and torch.equal(images[0], images[1]) else None)
        self.shown.append((images[once], labels[once]))
        return functional.cross_entropy(self.layer(images.flatten(1)), labels, reduction="none")

    def note(self, *_: object) -> None:
        weight, bias = self.layer.weight, self.layer.bias
        assert weight.grad is not None
        assert bias.grad is not None
        images, labels = (torch.cat(parts) for parts in zip(*self.shown, strict=True))
        self.shown.clear()
        gradient = flat(weight.grad, bias.grad)
        self.steps.append(SeenStep(images, labels, weight.detach().clone(), bias.detach().clone(), gradient))

    def train(self, real: RealImages, masking: Masking, *, batch_size: int, optimizer: str = "sgd") -> Tensor:
        """Return the parameters after an epoch."""
        stepper = OPTIMIZERS[optimizer](self.layer.parameters(), lr=RATE)
        stepper.register_step_pre_hook(self.note)
        generator = torch.Generator().manual_seed(0)
        train_masked(
            self.layer, real, self.losses_of, stepper, masking, epochs=1, batch_size=batch_size, generator=generator
        )
        return flat(self.layer.weight, self.layer.bias)


def stated_weight(mode: MaskingMode, *, b: int, m: int, n: int, size: int, batches: int) -> float:
    """Return what each image of a step with `b` real and `m` synthetic images weighs, as the docstrings state it."""
    return {
        "sequential": 1 / (b or size),
        "lambda": batches / (n + size),
        "joint": 1 / (b + size),
        "interleaved": 1 / (b + m),
    }[mode]


def stated_kinds(mode: MaskingMode, batches: list[float], size: int) -> list[tuple[float, float]]:
    """Return how many real and synthetic images each step has."""
    if mode == "joint":
        return [(b, size) for b in batches]
    if mode == "interleaved":
        borders = [size * number // len(batches) for number in range(len(batches) + 1)]
        return [(b, borders[number + 1] - borders[number]) for number, b in enumerate(batches)]
    return [*[(b, 0) for b in batches], (0, size)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("n", "batch_size", "size"), [(6, 6, 5), (7, 3, 2), (7, 3, 8), (5, 2, 4)])
def test_optimizer_is_handed_the_stated_gradient_in_every_step(
    optimizer: str, mode: MaskingMode, n: int, batch_size: int, size: int, tmp_path: Path
) -> None:
    watch, real, batches = Watch(), make_real(n), split(n, batch_size)

    watch.train(real, make_synthetic(tmp_path, size, mode), batch_size=batch_size, optimizer=optimizer)

    kinds = [int(are_synthetic(step.images).sum()) for step in watch.steps]
    assert [(len(step.images) - m, m) for step, m in zip(watch.steps, kinds, strict=True)] == stated_kinds(
        mode, batches, size
    )
    for step, m in zip(watch.steps, kinds, strict=True):
        weight = stated_weight(mode, b=len(step.images) - m, m=m, n=n, size=size, batches=len(batches))
        expected = weight * slopes_of(step.weight, step.bias, step.images, step.labels).sum(0)
        torch.testing.assert_close(step.gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_epoch_of_sgd_with_one_mini_batch_moves_the_parameters_by_the_stated_sums(
    mode: MaskingMode, tmp_path: Path
) -> None:
    n, size = 6, 5
    watch, real, masking = Watch(), make_real(n), make_synthetic(tmp_path, size, mode)
    synthetic = torch.from_numpy(masking.synthetic.cache.take(range(size))).double() / 255
    images = torch.cat([real.pixels.double() / 255, synthetic])
    labels = torch.cat([real.labels, torch.from_numpy(masking.synthetic.cache.labels.copy())])
    everything, own, other = range(n + size), range(n), range(n, n + size)
    plan = {
        "joint": [(everything, 1 / (n + size))],
        "interleaved": [(everything, 1 / (n + size))],
        "lambda": [(own, 1 / (n + size)), (other, 1 / (n + size))],
        "sequential": [(own, 1 / n), (other, 1 / size)],
    }[mode]
    # The second step of "lambda" and "sequential" is taken where the first one led.
    expected = flat(watch.layer.weight, watch.layer.bias)
    for chosen, weight in plan:
        where = expected[:-CLASSES].reshape(CLASSES, PIXELS), expected[-CLASSES:]
        expected = expected - RATE * weight * slopes_of(*where, images, labels)[list(chosen)].sum(0)

    after = watch.train(real, masking, batch_size=n)

    torch.testing.assert_close(after, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_every_synthetic_image_takes_part_with_its_own_label(mode: MaskingMode, tmp_path: Path) -> None:
    watch, masking = Watch(), make_synthetic(tmp_path, 5, mode)

    watch.train(make_real(7), masking, batch_size=3)

    expected = {(2 * place + 1, int(label)) for place, label in enumerate(masking.synthetic.cache.labels)}
    images = torch.cat([step.images for step in watch.steps])
    labels = torch.cat([step.labels for step in watch.steps])
    first = (images[:, 0, 0, 0] * 255).round().int()
    found = zip(first[are_synthetic(images)].tolist(), labels[are_synthetic(images)].tolist(), strict=True)
    assert set(found) == expected
