"""The bottleneck draws, reproducibly, its divergence is the closed form, and the loss carries it to its parameters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from attacks.defences.precode import BottleneckedLayer, Precode, divergence_from_standard
from federation.errors import ModelError
from federation.metrics import losses_of
from federation.models.cnn import Cnn
from tests.attacks.defences.made_up_steps import CLASSES, gradient_of, make_network, make_step


def prepare(*, seed: int = 0, defence: Precode | None = None) -> nn.Module:
    """Return a small network with a bottleneck of three dimensions."""
    return (defence or Precode(latent=3)).prepare(make_network(), torch.Generator().manual_seed(seed))


def bottlenecked(network: nn.Module, name: str = "output") -> BottleneckedLayer:
    """Return what took the place of the last layer."""
    layer = network.get_submodule(name)
    assert isinstance(layer, BottleneckedLayer)
    return layer


def test_divergence_is_the_closed_form() -> None:
    stream = torch.Generator().manual_seed(1)
    mean, deviation = torch.randn(5, 4, generator=stream), 0.1 + torch.rand(5, 4, generator=stream)

    expected = kl_divergence(Normal(mean, deviation), Normal(0.0, 1.0)).sum(dim=1)

    assert torch.allclose(divergence_from_standard(mean, deviation), expected, rtol=1e-5)
    assert divergence_from_standard(torch.zeros(1, 4), torch.ones(1, 4)).item() == 0


def test_loss_is_the_usual_one_and_beta_times_the_divergence_of_each_image() -> None:
    defence = Precode(latent=3, beta=0.5)
    network = prepare(defence=defence)
    step = make_step(network)
    logits = network(step.images)
    layer = bottlenecked(network)
    features = network.get_submodule("hidden")(step.images.flatten(1)).relu()
    mean, spread = layer.bottleneck.encode(features).split(3, dim=1)
    divergences = kl_divergence(Normal(mean, (1 + spread.exp()).log()), Normal(0.0, 1.0)).sum(dim=1)

    losses = defence.losses(logits, step.labels, step.task)

    assert torch.allclose(losses, losses_of(logits, step.labels, step.task) + 0.5 * divergences, rtol=1e-5)


def test_gradients_of_loss_and_of_divergence_reach_what_lies_before_the_draw() -> None:
    defence = Precode(latent=3)
    step = make_step(prepare(defence=defence))

    found = gradient_of(step, defence)
    step.network(step.images)
    named = dict(step.network.named_parameters())
    reached = torch.autograd.grad(defence.penalties(5).sum(), list(named.values()), materialize_grads=True)

    assert all(value.abs().sum() > 0 for value in found.values())
    assert {name for name, part in zip(named, reached, strict=True) if part.any()} == {
        "hidden.weight",
        "hidden.bias",
        "output.bottleneck.encode.weight",
        "output.bottleneck.encode.bias",
    }


def test_logits_are_drawn_anew_in_training_and_evaluation() -> None:
    network = prepare()
    images = make_step(network).images

    training = network(images), network(images)
    network.eval()
    evaluation = network(images), network(images)

    assert not torch.equal(*training)
    assert not torch.equal(*evaluation)


def test_equal_seeds_give_equal_networks_and_draws_and_others_do_not() -> None:
    images = make_step(make_network()).images

    first, again, other = (prepare(seed=seed) for seed in (4, 4, 5))

    assert torch.equal(first(images), again(images))
    assert torch.equal(first(images), again(images))
    encoders = [bottlenecked(network).bottleneck.encode.weight for network in (first, again, other)]
    assert torch.equal(encoders[0], encoders[1])
    assert not torch.equal(encoders[0], encoders[2])


def test_draws_are_standard_normal() -> None:
    network = prepare()
    bottleneck = bottlenecked(network).bottleneck
    with torch.no_grad():
        bottleneck.encode.weight.zero_()
        bottleneck.encode.bias.copy_(torch.tensor([1.0, 1, 1, 0, 0, 0]))
        bottleneck.decode.weight.copy_(torch.eye(7, 3))
        bottleneck.decode.bias.zero_()
        drawn = bottleneck(torch.zeros(20_000, 7))[:, :3]

    assert torch.allclose(drawn.mean(dim=0), torch.ones(3), atol=0.02)
    assert torch.allclose(drawn.std(dim=0), torch.full((3,), 2.0).log(), atol=0.02)


def test_copies_of_a_network_do_not_repeat_each_others_draws_but_leave_their_divergences() -> None:
    defence = Precode(latent=3)
    network = prepare(defence=defence)
    images = make_step(network).images
    network(images)

    copied = copy.deepcopy(network)
    logits = copied(images)

    assert not torch.equal(network(images), logits)
    assert defence.penalties(5).shape == (5,)
    loss = defence.losses(copied(images), torch.zeros(5, dtype=torch.int64), make_step(network).task).sum()
    loss.backward()
    assert bottlenecked(copied).bottleneck.encode.weight.grad is not None
    assert bottlenecked(network).bottleneck.encode.weight.grad is None


def test_global_generator_and_original_network_stay_as_they_were() -> None:
    network = make_network()
    before, names = torch.random.get_rng_state(), list(network.state_dict())

    prepared = Precode().prepare(network, torch.Generator().manual_seed(0))
    prepared(make_step(network).images)

    assert torch.equal(torch.random.get_rng_state(), before)
    assert list(network.state_dict()) == names
    assert all(torch.equal(prepared.state_dict()[f"hidden.{kind}"], value) for kind, value in _hidden(network))


def _hidden(network: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return list(network.get_submodule("hidden").state_dict().items())


def test_innermost_last_layer_is_replaced_and_keeps_its_weights() -> None:
    network = nn.Sequential(nn.Identity(), Cnn((1, 4, 4), CLASSES))

    prepared = Precode().prepare(network, torch.Generator().manual_seed(0))

    layer = bottlenecked(prepared, "1.output")
    assert layer.bottleneck.encode.weight.shape == (512, 512)
    assert layer.bottleneck.decode.weight.shape == (512, 256)
    assert torch.equal(layer.layer.weight, network.get_parameter("1.output.weight"))
    assert prepared(torch.rand(2, 1, 4, 4)).shape == (2, CLASSES)


def test_loss_without_a_forward_pass_of_its_own_is_refused() -> None:
    defence = Precode(latent=3)
    network = prepare(defence=defence)
    step = make_step(network)
    logits = network(step.images)
    defence.losses(logits, step.labels, step.task)

    with pytest.raises(ModelError, match=r"of 5 images .* found none"):
        defence.losses(logits, step.labels, step.task)
    network(step.images)
    with pytest.raises(ModelError, match=r"of 2 images .* found one of 5"):
        defence.losses(logits[:2], step.labels[:2], step.task)


def test_evaluation_leaves_no_divergence_behind() -> None:
    defence = Precode(latent=3)
    network = prepare(defence=defence)
    with torch.inference_mode():
        network(make_step(network).images)

    with pytest.raises(ModelError, match="found none"):
        defence.penalties(5)
