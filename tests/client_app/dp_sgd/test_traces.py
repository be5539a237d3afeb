"""Nothing is left on a model but trained values, however its training ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from client_app.dp_sgd.gradient_hooks import UnitGradients
from federation.config import ModelConfig
from federation.models import build_model
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.networks import traces
from tests.client_app.dp_sgd.streams import Linear, Seeded, Silent, describe, flat, train

MODES = ["hooks", "ghost"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["cnn", "mlp", pytest.param("resnet18", marks=pytest.mark.slow)])
def test_nothing_is_left_on_the_model_but_trained_values(name: Any, mode: str) -> None:
    images = make_images(6, size=8)
    model = build_model(ModelConfig(name=name), describe(images), seed=0)
    before = traces(model)

    train(model, images, Seeded(0), plan={"batch_size": 4, "local_epochs": 2}, grad_sample=mode)

    assert traces(model) == before
    train(model, images, Seeded(0), grad_sample=mode)


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
