"""Networks whose gradients cannot be told apart image by image are refused, with what to change."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from client_app.dp_sgd.gradient_hooks import UnitGradients
from client_app.dp_sgd.separability import require_separable
from federation.config import ModelConfig
from federation.errors import SiteError, SiteErrorCode
from federation.models import build_model
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.streams import CPU, Linear, Seeded, describe, flat, train

INFO = describe(make_images(2))
MODES = ["hooks", "ghost"]


def network(*layers: nn.Module, channels: int = 4) -> nn.Module:
    """Return a convolution, `layers` and a classifier of 6x6 images."""
    return nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), *layers, nn.Flatten(), nn.LazyLinear(3))


def built(model: nn.Module) -> nn.Module:
    """Return `model` after its lazy layers have seen one image."""
    model.eval()
    with torch.no_grad():
        model(torch.rand(2, 1, 6, 6))
    return model


class Wrapped(nn.Module):
    """Applies a layer to the pixels in rows."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.output = nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        rows = (
            self.layer(images.squeeze(1)) if isinstance(self.layer, nn.LSTM) else self.layer(*[images.squeeze(1)] * 3)
        )
        logits: Tensor = self.output(rows[0].mean(dim=1))
        return logits


class Twice(nn.Module):
    """Uses one layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(36, 36)
        self.second = nn.Linear(36, 36)
        self.second.weight = self.first.weight
        self.output = nn.Linear(36, 3)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.second(self.first(images.flatten(1)).relu()))
        return logits


class Again(nn.Module):
    """Calls one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(36, 36)
        self.output = nn.Linear(36, 3)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.first(self.first(images.flatten(1)).relu()))
        return logits


class Idle(Linear):
    """Has a layer without use."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Linear(2, 2)


class Mixing(Linear):
    """Subtracts the mean of the batch, without a layer that says so."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images - images.mean(dim=0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["cnn", "mlp", pytest.param("resnet18", marks=pytest.mark.slow)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_networks_of_this_project_pass(name: Any, mode: str, layout: torch.memory_format) -> None:
    info = describe(make_images(2, size=8))
    model = build_model(ModelConfig(name=name), info, seed=0).to(memory_format=layout)

    require_separable(model, info, mode=mode, device=CPU)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm2d(4), "1: batch normalization mixes images: use GroupNorm"),
        (nn.BatchNorm2d(4, affine=False), "1: batch normalization mixes images: use GroupNorm"),
        (nn.BatchNorm2d(4, track_running_stats=False), "1: batch normalization mixes images: use GroupNorm"),
        (nn.BatchNorm2d(4).requires_grad_(False), "1: batch normalization mixes images: use GroupNorm"),
        (
            nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
            "1: running statistics .* track_running_stats=False",
        ),
        (nn.InstanceNorm2d(4, track_running_stats=True), "1: running statistics .* track_running_stats=False"),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"), "1: padding_mode='circular' defeats Opacus"),
        (nn.Dropout(0.5), "differ: remove layers that mix images or act by chance, such as dropout"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_layer_that_dp_sgd_cannot_train_is_refused_with_the_remedy(layer: nn.Module, message: str, mode: str) -> None:
    model = built(network(layer))

    with torch.random.fork_rng(devices=[]), pytest.raises(SiteError, match=message) as refused:
        require_separable(model, INFO, mode=mode, device=CPU)

    assert refused.value.code is SiteErrorCode.MODEL_MISMATCH


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Wrapped(nn.LSTM(6, 6, batch_first=True)), "layer: .*LSTM"),
        (Wrapped(nn.MultiheadAttention(6, 1, batch_first=True)), "layer: .*MultiheadAttention"),
        (Idle(), "every trainable parameter to take part, .* freeze parameters without use"),
        (Mixing(), "the same in a batch as alone; they differ: remove layers that mix images"),
        (Linear().requires_grad_(False), "at least one trainable parameter"),
    ],
    ids=["lstm", "attention", "idle", "mixing", "frozen"],
)
def test_network_that_dp_sgd_cannot_train_is_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(SiteError, match=message) as refused:
        require_separable(model, INFO, mode="hooks", device=CPU)

    assert refused.value.code is SiteErrorCode.MODEL_MISMATCH


@pytest.mark.parametrize(("model", "message"), [(Twice(), "stand in two layers"), (Again(), "Opacus knows.*tying")])
def test_layers_that_share_parameters_need_hooks(model: nn.Module, message: str) -> None:
    require_separable(model, INFO, mode="hooks", device=CPU)

    with pytest.raises(SiteError, match=message):
        require_separable(model, INFO, mode="ghost", device=CPU)


def test_refused_model_has_not_been_trained() -> None:
    model = Idle()
    before = flat(model)

    with pytest.raises(SiteError):
        train(model, make_images(4), Seeded(0))

    assert torch.equal(flat(model), before)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("image_size", [1, 4])
def test_activations_of_any_memory_layout_give_the_right_gradients(image_size: int, mode: str) -> None:
    size = (image_size, image_size)
    info = describe(make_images(2, size=image_size))
    first = nn.Conv2d(1, 5, 3, padding=1)
    model = nn.Sequential(first, nn.Conv2d(5, 5, 3, padding=1), nn.Flatten(), nn.Linear(5 * size[0] * size[1], 3))

    require_separable(model.to(memory_format=torch.channels_last), info, mode=mode, device=CPU)


def test_trial_notices_hooks_that_take_wrong_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = UnitGradients._average
    monkeypatch.setattr(UnitGradients, "_average", lambda self, gradients: wrong(self, gradients) * 0.9)

    with pytest.raises(SiteError, match="differ"):
        require_separable(Linear(), INFO, mode="hooks", device=CPU)


def test_trial_looks_at_no_private_image_and_warns_of_nothing() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        require_separable(Linear(), INFO, mode="hooks", device=CPU)

    assert warned == []
