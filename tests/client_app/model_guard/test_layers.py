"""Probes go through a received model in pieces, which bounds the memory, and the checks see all of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from client_app.model_guard.layers import read_hidden_layers
from client_app.model_guard.probes import draw_probes
from tests.client_app.model_guard.made_up_models import fresh, phantoms

PROBES = draw_probes(phantoms().info)


def test_probes_go_through_in_small_pieces() -> None:
    model, seen = fresh("cnn"), list[int]()
    model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))

    read_hidden_layers(model, PROBES)

    assert sum(seen) == len(PROBES)
    assert max(seen) <= 32


def test_layer_has_the_inputs_of_every_probe_in_order() -> None:
    (layer,) = read_hidden_layers(fresh("mlp"), PROBES[:70])

    (others,) = read_hidden_layers(fresh("mlp"), PROBES[64:70])
    assert layer.inputs.shape == (70, 28 * 28)
    assert torch.allclose(layer.inputs[64:], others.inputs, atol=1e-6)


def test_model_that_breaks_off_is_left_as_it_was() -> None:
    model = fresh("mlp").train()

    def fail(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        raise RuntimeError(f"no memory for {len(given)}")

    handle = model.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        read_hidden_layers(model, PROBES)
    handle.remove()

    assert model.training
    assert all(not module._forward_pre_hooks for module in model.modules())
