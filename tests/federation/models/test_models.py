"""Every network fits its data, starts the same from the same seed, and holds nothing but parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import ModelError
from federation.models import build_empty_model, build_model
from federation.models.cnn import Cnn

NAMES = ["cnn", "mlp", "resnet18"]


def info_of(*, channels: int = 1, size: int = 28, classes: int = 11) -> DatasetInfo:
    names = tuple(f"class {index}" for index in range(classes))
    return DatasetInfo(
        name="toy", task=Task.MULTICLASS, class_names=names, channels=channels, height=size, width=size
    )  # fmt: skip


def config_of(name: Any, hidden_units: int = 64) -> ModelConfig:
    return ModelConfig(name=name, hidden_units=hidden_units)


def convolution(inputs: int, outputs: int, size: int, *, bias: bool) -> int:
    return inputs * outputs * size**2 + bias * outputs


def dense(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def cnn_count(channels: int, size: int, classes: int) -> int:
    convolutions = [(channels, 32), (32, 64), (64, 64)]
    features = sum(convolution(inputs, outputs, 3, bias=True) for inputs, outputs in convolutions)
    return features + dense(64 * (size // 4) ** 2, 512) + dense(512, classes)


def mlp_count(channels: int, size: int, classes: int) -> int:
    return dense(channels * size**2, 64) + dense(64, classes)


def resnet18_count(channels: int, size: int, classes: int) -> int:
    """Count what He et al., table 1, lists for 18 layers, with two numbers per channel for every normalization."""
    del size
    total = convolution(channels, 64, 3, bias=False) + 2 * 64
    previous = 64
    for width in (64, 128, 256, 512):
        total += convolution(previous, width, 3, bias=False) + 3 * convolution(width, width, 3, bias=False)
        total += 4 * 2 * width
        if width != previous:
            total += convolution(previous, width, 1, bias=False) + 2 * width
        previous = width
    return total + dense(512, classes)


COUNTS = {"cnn": cnn_count, "mlp": mlp_count, "resnet18": resnet18_count}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 28), (3, 64)])
def test_number_of_parameters_follows_from_the_layers(name: str, channels: int, size: int) -> None:
    model = build_empty_model(config_of(name), info_of(channels=channels, size=size))

    assert sum(value.numel() for value in model.parameters()) == COUNTS[name](channels, size, 11)


def test_cnn_has_the_size_that_its_documentation_names() -> None:
    model = build_empty_model(config_of("cnn"), info_of())

    assert round(sum(value.numel() for value in model.parameters()) / 1e6, 2) == 1.67


def build_cnn() -> Cnn:
    model = build_model(config_of("cnn"), info_of(), seed=0)
    assert isinstance(model, Cnn)
    return model


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_cnn_pools_before_it_rectifies_which_changes_neither_logits_nor_gradients() -> None:
    quick, slow = (build_cnn() for _ in range(2))
    layers = list(slow.features)
    for place in (1, 4):
        layers[place : place + 2] = reversed(layers[place : place + 2])
    slow.features = nn.Sequential(*layers)
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    images[0] = 0.5

    found, expected = quick(images), slow(images)
    found.square().sum().backward()
    expected.square().sum().backward()

    assert [type(layer) for layer in layers[:3]] == [nn.Conv2d, nn.ReLU, nn.MaxPool2d]
    assert torch.equal(found, expected)
    assert len(gradients_of(quick)) == 10
    torch.testing.assert_close(gradients_of(quick), gradients_of(slow), rtol=0, atol=0)


def test_hidden_units_set_the_width_of_the_mlp() -> None:
    model = build_empty_model(config_of("mlp", hidden_units=5), info_of())

    assert sum(value.numel() for value in model.parameters()) == dense(784, 5) + dense(5, 11)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [28, 64])
def test_every_image_gets_one_finite_logit_per_class(name: str, channels: int, size: int) -> None:
    model = build_model(config_of(name), info_of(channels=channels, size=size), seed=0)

    logits = model(torch.rand(2, channels, size, size, generator=torch.Generator().manual_seed(0)))

    assert logits.shape == (2, 11)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_images_need_not_be_square(name: str) -> None:
    info = DatasetInfo(
        name="toy", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=12, width=21
    )  # fmt: skip

    assert build_model(config_of(name), info, seed=0)(torch.zeros(1, 1, 12, 21)).shape == (1, 2)


@pytest.mark.parametrize("name", NAMES)
def test_an_images_logits_do_not_depend_on_its_batch(name: str) -> None:
    model = build_model(config_of(name), info_of(), seed=0).train()
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))

    with torch.no_grad():
        together, alone = model(images), model(images[:1])

    torch.testing.assert_close(together[:1], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_gives_the_same_parameters_and_another_seed_others(name: str) -> None:
    first, second, other = (build_model(config_of(name), info_of(), seed=seed).state_dict() for seed in (1, 1, 2))

    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", NAMES)
def test_building_neither_uses_nor_moves_the_global_generator(name: str) -> None:
    torch.manual_seed(5)
    first = build_model(config_of(name), info_of(), seed=1).state_dict()
    torch.manual_seed(6)
    before = torch.get_rng_state()

    second = build_model(config_of(name), info_of(), seed=1).state_dict()
    build_empty_model(config_of(name), info_of())

    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("name", NAMES)
def test_model_keeps_no_buffers_and_no_batch_statistics(name: str) -> None:
    model = build_model(config_of(name), info_of(), seed=0)

    assert list(model.buffers()) == []
    assert list(model.state_dict()) == [key for key, _ in model.named_parameters()]
    assert not any(isinstance(module, nn.modules.batchnorm._NormBase) for module in model.modules())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 3])
def test_empty_model_has_the_names_shapes_and_dtypes_of_the_built_one(name: str, channels: int) -> None:
    info = info_of(channels=channels)
    built = build_model(config_of(name), info, seed=0).state_dict()

    empty = build_empty_model(config_of(name), info).state_dict()

    assert [(key, value.shape, value.dtype, value.device) for key, value in empty.items()] == [
        (key, value.shape, value.dtype, value.device) for key, value in built.items()
    ]


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
@pytest.mark.parametrize(("height", "width"), [(3, 28), (28, 3), (1, 1)])
def test_images_too_small_for_a_network_are_refused(name: str, height: int, width: int) -> None:
    info = DatasetInfo(name="t", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=height, width=width)

    with pytest.raises(ModelError, match=rf"at least 4 x 4 pixels for {name}, found \(1, {height}, {width}\)"):
        build_model(config_of(name), info, seed=0)


@pytest.mark.parametrize(("name", "size"), [("cnn", 4), ("resnet18", 4), ("mlp", 1)])
def test_smallest_images_work(name: str, size: int) -> None:
    assert build_model(config_of(name), info_of(size=size), seed=0)(torch.zeros(2, 1, size, size)).shape == (2, 11)


def test_model_that_would_fit_nowhere_is_refused_before_it_is_built() -> None:
    huge = DatasetInfo(name="x", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=4096, width=4096)

    with pytest.raises(ModelError, match="at most 500000000 parameters"):
        build_model(ModelConfig(name="cnn"), huge, seed=0)
