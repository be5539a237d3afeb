"""A logical batch has one gradient, however it is cut, and layers that would make it depend on the cut are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from client_app.masking.logical_batch import (
    Losses,
    Piece,
    accumulate_gradient,
    divide,
    seeded_chance,
    settle_batch_statistics,
)
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import SiteError, SiteErrorCode
from federation.models import build_model

thorough = settings(max_examples=40, deadline=None)
CPU = torch.device("cpu")
CLASSES, SHAPE = 3, (1, 4, 4)
LARGEST = 9
CUTS = st.lists(st.integers(0, LARGEST), max_size=LARGEST)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_batch(count: int, seed: int = 0, shape: tuple[int, int, int] = SHAPE) -> Piece:
    """Return a whole logical batch whose weights all differ."""
    generator = generator_of(seed)
    return Piece(
        images=torch.rand(count, *shape, generator=generator),
        labels=torch.randint(0, CLASSES, (count,), generator=generator),
        weights=torch.rand(count, generator=generator) + 0.1,
    )


def cut(batch: Piece, borders: Sequence[int]) -> Iterator[Piece]:
    """Yield `batch` in pieces that end at `borders`, empty ones among them where a border comes twice."""
    for start, end in pairwise([0, *sorted(borders), len(batch.images)]):
        yield Piece(images=batch.images[start:end], labels=batch.labels[start:end], weights=batch.weights[start:end])


def borders_of(count: int, micro_batch: int) -> list[int]:
    return [part.stop for part in divide(count, micro_batch)][:-1]


def cross_entropy(model: nn.Module) -> Losses:
    return lambda images, labels: functional.cross_entropy(model(images), labels, reduction="none")


def seed_parameters(model: nn.Module, seed: int = 7) -> nn.Module:
    generator = generator_of(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return model


class Perceptron(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, CLASSES)).to(dtype)
        self.dtype = dtype

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images.to(self.dtype))


class MixedNetwork(nn.Module):
    """Three parts of three precisions side by side, so that none rounds what another one is handed."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Linear(16, CLASSES, dtype=torch.float64)
        self.usual = nn.Linear(16, CLASSES)
        self.coarse = nn.Parameter(torch.zeros(CLASSES, 16, dtype=torch.bfloat16))

    def forward(self, images: Tensor) -> Tensor:
        rows = images.flatten(1)
        coarse = (rows.bfloat16()[:, None, :] * self.coarse).double().sum(2)
        return self.fine(rows.double()) + self.usual(rows).double() + coarse


def reference(model: nn.Module, batch: Piece) -> list[Tensor]:
    """Return the gradient of the weighted sum over the whole batch, in one piece."""
    losses = functional.cross_entropy(model(batch.images), batch.labels, reduction="none")
    return list(torch.autograd.grad((losses.double() * batch.weights).sum(), list(model.parameters())))


def accumulate(model: nn.Module, pieces: Iterator[Piece]) -> list[Tensor]:
    parameters = list(model.parameters())
    accumulate_gradient(parameters, cross_entropy(model), pieces)
    return [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@thorough
@given(count=st.integers(1, LARGEST), cuts=CUTS, seed=st.integers(0, 1000))
def test_gradient_over_uneven_pieces_is_that_of_the_whole_batch(
    dtype: torch.dtype, count: int, cuts: list[int], seed: int
) -> None:
    model, batch = seed_parameters(Perceptron(dtype), seed), make_batch(count, seed)

    found = accumulate(model, cut(batch, [border for border in cuts if border <= count]))

    torch.testing.assert_close(found, reference(model, batch), rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@thorough
@given(count=st.integers(1, LARGEST), micro_batch=st.integers(1, LARGEST + 2))
def test_gradient_does_not_depend_on_the_micro_batch(dtype: torch.dtype, count: int, micro_batch: int) -> None:
    model, batch = seed_parameters(Perceptron(dtype)), make_batch(count)

    found = accumulate(model, cut(batch, borders_of(count, micro_batch)))

    torch.testing.assert_close(found, reference(model, batch), rtol=0, atol=TOLERANCE[dtype])


@thorough
@given(count=st.integers(1, LARGEST), cuts=CUTS)
def test_parameters_of_three_precisions_each_get_the_gradient_of_the_whole_batch(count: int, cuts: list[int]) -> None:
    model, batch = seed_parameters(MixedNetwork()), make_batch(count)
    named = list(model.named_parameters())

    found = accumulate(model, cut(batch, [border for border in cuts if border <= count]))

    assert [gradient.dtype for gradient in found] == [parameter.dtype for _, parameter in named]
    for (name, _), gradient, expected in zip(named, found, reference(model, batch), strict=True):
        # A bfloat16 gradient of each piece has 8 bits; the others see the rounding of the float32 part's logits.
        tolerance = count * 2**-8 if name == "coarse" else 1e-6
        torch.testing.assert_close(gradient, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("dtype", "large"), [(torch.bfloat16, 256), (torch.float16, 2048)])
def test_gradients_of_16_bit_parameters_are_summed_without_losing_small_ones(dtype: torch.dtype, large: int) -> None:
    parameter = nn.Parameter(torch.ones(1, dtype=dtype))
    values = torch.tensor([float(large)] + [1.0] * large)
    pieces = [
        Piece(images=value.reshape(1, 1), labels=torch.zeros(1, dtype=torch.int64), weights=torch.ones(1))
        for value in values
    ]

    # The loss is linear, so each image's gradient is its value, and in 16 bits large + 1 is large.
    accumulate_gradient([parameter], lambda images, _: (images.to(dtype) * parameter).sum(1), pieces)

    assert parameter.grad is not None
    assert parameter.grad.dtype == dtype
    assert float(parameter.grad) == 2 * large == float(values.double().sum())


@thorough
@given(cuts=CUTS)
def test_bfloat16_gradient_is_the_rounded_exact_sum_of_those_of_its_pieces(cuts: list[int]) -> None:
    model, batch = seed_parameters(MixedNetwork()), make_batch(LARGEST)
    each = [reference(model, piece)[0] for piece in cut(batch, cuts) if len(piece.images)]
    exact = torch.stack([gradient.double() for gradient in each]).sum(0)

    found = accumulate(model, cut(batch, cuts))[0]

    assert found.dtype == torch.bfloat16
    # Half a unit in the last of 8 bits, for rounding once, and nothing to speak of for the sum.
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-7)


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
@pytest.mark.parametrize("borders", [[1, 2, 3, 4], [1], [2, 2, 3]])
def test_gradient_of_a_real_network_does_not_depend_on_the_cut(
    name: Literal["cnn", "resnet18"], borders: list[int]
) -> None:
    info = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("a", "b", "c"), channels=1, height=8, width=8)
    model = build_model(ModelConfig(name=name), info, seed=1)
    batch = make_batch(5, shape=(1, 8, 8))
    settle_batch_statistics(model, "refuse")

    found = accumulate(model, cut(batch, borders))

    torch.testing.assert_close(found, reference(model, batch), rtol=0, atol=1e-5)


def test_parameters_are_the_same_bits_after_accumulation() -> None:
    model, batch = seed_parameters(MixedNetwork()), make_batch(6)
    before = [parameter.detach().clone() for parameter in model.parameters()]

    accumulate(model, cut(batch, [1, 4]))

    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_gradient_takes_the_place_of_an_older_one() -> None:
    model, batch = seed_parameters(MixedNetwork()), make_batch(6)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 100.0)

    found = accumulate(model, cut(batch, [3]))

    assert max(float(gradient.abs().max()) for gradient in found) < 50


def test_parameter_that_no_loss_depends_on_gets_no_gradient_in_place_of_an_older_one() -> None:
    model = seed_parameters(Perceptron(torch.float32))
    idle = [nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16)]
    for parameter in idle:
        parameter.grad = torch.ones_like(parameter)

    accumulate_gradient([*model.parameters(), *idle], cross_entropy(model), [make_batch(2)])

    assert [parameter.grad for parameter in idle] == [None, None]


@pytest.mark.parametrize(
    ("borders", "expected"),
    [([0, 2, 2, 4], [2, 2]), ([1], [2, 3]), ([1, 2, 3], [2, 2, 2, 2])],
    ids=["empty", "first alone", "each alone"],
)
def test_network_sees_no_empty_piece_and_no_image_alone(borders: list[int], expected: list[int]) -> None:
    model = seed_parameters(Perceptron(torch.float32))
    shown = []

    def losses_of(images: Tensor, labels: Tensor) -> Tensor:
        shown.append(len(images))
        return functional.cross_entropy(model(images), labels, reduction="none")

    batch = make_batch(4)
    parameters = list(model.parameters())
    accumulate_gradient(parameters, losses_of, cut(batch, borders))

    assert shown == expected
    found = [parameter.grad for parameter in parameters]
    torch.testing.assert_close(found, reference(model, batch), rtol=0, atol=1e-5)


@thorough
@given(count=st.integers(0, 500), largest=st.integers(1, 600))
def test_division_covers_everything_in_the_fewest_parts_of_nearly_equal_length(count: int, largest: int) -> None:
    parts = divide(count, largest)

    lengths = [len(part) for part in parts]
    fewest, rest = divmod(count, largest)
    assert [number for part in parts for number in part] == list(range(count))
    assert len(parts) == fewest + (rest > 0)
    assert max(lengths, default=0) <= largest
    assert max(lengths, default=0) - min(lengths, default=0) <= 1


def mixing_layers() -> list[nn.Module]:
    """Return a layer of every kind that keeps statistics of batches, for eight channels."""
    kinds: list[Callable[..., nn.Module]] = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm]
    tracking = [nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d]
    return [kind(8) for kind in kinds] + [kind(8, track_running_stats=True) for kind in tracking]


@pytest.mark.parametrize("layer", mixing_layers(), ids=lambda layer: type(layer).__name__)
def test_layers_with_batch_statistics_are_refused_by_name_with_a_remedy(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.GroupNorm(2, 8), layer))

    with pytest.raises(SiteError, match=r"found \['1\.1'\]: use GroupNorm, or set masking\.batch-statistics") as caught:
        settle_batch_statistics(model, "refuse")

    assert caught.value.code is SiteErrorCode.MODEL_MISMATCH


@pytest.mark.parametrize("layer", mixing_layers(), ids=lambda layer: type(layer).__name__)
def test_frozen_layers_are_evaluated_while_all_others_train(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(layer)).eval()

    settle_batch_statistics(model, "freeze")

    assert [part for part in model.modules() if not part.training] == [layer]


class Normalized(nn.Module):
    """A small network with a batch normalization that has seen other images."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(16, CLASSES)
        seed_parameters(self)
        generator = generator_of(5)
        self.norm.running_mean = torch.randn(4, generator=generator)
        self.norm.running_var = torch.rand(4, generator=generator) + 0.5

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.norm(self.first(images)).tanh().flatten(1))

    def expect(self, images: Tensor) -> Tensor:
        """Return what `forward` must with the statistics as received: batch normalization's formula."""
        mean, variance = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert variance is not None
        scale, shift = self.norm.weight[:, None, None], self.norm.bias[:, None, None]
        centred = self.first(images) - mean[:, None, None]
        normalized = centred / (variance[:, None, None] + self.norm.eps).sqrt() * scale + shift
        return self.last(normalized.tanh().flatten(1))


@thorough
@given(cuts=CUTS)
def test_frozen_statistics_are_used_as_received_left_alone_and_do_not_mix_images(cuts: list[int]) -> None:
    model, batch = Normalized(), make_batch(LARGEST)
    received = copy.deepcopy(dict(model.named_buffers()))
    losses = functional.cross_entropy(model.expect(batch.images), batch.labels, reduction="none")
    expected = torch.autograd.grad((losses * batch.weights).sum(), list(model.parameters()))
    settle_batch_statistics(model, "freeze")

    found = accumulate(model, cut(batch, cuts))

    torch.testing.assert_close(found, list(expected), rtol=0, atol=1e-5)
    assert all(torch.equal(buffer, received[name]) for name, buffer in model.named_buffers())


@pytest.mark.parametrize(("how", "words"), [("refuse", "no layer with batch stat"), ("freeze", "running statistics")])
def test_batch_normalization_without_running_statistics_is_refused_either_way(how: str, words: str) -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(4, track_running_stats=False))

    with pytest.raises(SiteError, match=words) as caught:
        settle_batch_statistics(model, how)

    assert caught.value.code is SiteErrorCode.MODEL_MISMATCH
    assert "'1'" in str(caught.value)
    assert ("'0'" in str(caught.value)) is (how == "refuse")


@pytest.mark.parametrize("how", ["refuse", "freeze"])
def test_normalization_of_each_image_by_itself_is_accepted_and_trains(how: str) -> None:
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.InstanceNorm2d(4), nn.InstanceNorm1d(4)).eval()

    settle_batch_statistics(model, how)

    assert all(part.training for part in model.modules())


def chance_layers() -> list[nn.Module]:
    return [nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout(), nn.FeatureAlphaDropout(), nn.RReLU()]


def around(layer: nn.Module) -> nn.Module:
    return seed_parameters(nn.Sequential(nn.Conv2d(1, 8, 3), layer, nn.Flatten(), nn.Linear(32, CLASSES)))


def chance_gradient(model: nn.Module, generator: torch.Generator) -> list[Tensor]:
    """Return the gradient of a logical batch in two pieces."""
    with seeded_chance(model, generator, CPU):
        return accumulate(model, cut(make_batch(6), [2]))


@pytest.mark.parametrize("layer", chance_layers(), ids=lambda layer: type(layer).__name__)
def test_logical_batch_has_the_same_gradient_whatever_torch_s_own_generator_holds(layer: nn.Module) -> None:
    model = around(layer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = chance_gradient(model, generator_of(0))
        torch.manual_seed(2)
        second = chance_gradient(model, generator_of(0))

    assert all(torch.equal(old, new) for old, new in zip(first, second, strict=True))


@pytest.mark.parametrize("layer", chance_layers(), ids=lambda layer: type(layer).__name__)
def test_torch_s_own_generator_is_left_as_it_was(layer: nn.Module) -> None:
    model, before = around(layer), torch.random.get_rng_state()

    chance_gradient(model, generator_of(0))

    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("layer", chance_layers(), ids=lambda layer: type(layer).__name__)
def test_two_logical_batches_meet_different_chance(layer: nn.Module) -> None:
    model, generator = around(layer), generator_of(0)

    first, second = chance_gradient(model, generator), chance_gradient(model, generator)

    assert not torch.equal(first[0], second[0])


def test_torch_s_own_generator_is_left_as_it_was_by_a_block_that_fails() -> None:
    before = torch.random.get_rng_state()

    with pytest.raises(ZeroDivisionError), seeded_chance(nn.Dropout(), generator_of(0), CPU):
        torch.rand(1).div_(1 // 0)

    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("draws", [False, True])
def test_only_models_with_layers_that_act_by_chance_draw_a_seed(draws: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout() if draws else nn.ReLU()))
    generator = generator_of(0)

    with seeded_chance(model, generator, CPU):
        pass

    assert torch.equal(generator.get_state(), generator_of(0).get_state()) is not draws
