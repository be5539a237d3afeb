"""Scores are those of the whole Jacobian, and the columns of the lowest are what is missing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from attacks.defences.defence import Defence
from attacks.defences.representation import find_last_layer, read_input
from attacks.defences.soteria import Soteria, score_features
from federation.errors import ModelError
from federation.models.cnn import Cnn
from federation.models.mlp import Mlp
from tests.attacks.defences.made_up_steps import SHAPE, gradient_of, make_network, make_step


def scores_by_jacobian(network: Mlp, images: Tensor) -> Tensor:
    """Return the sum over images of ||dr_f / dx|| / |r_f| for features that are not zero."""

    def represent(image: Tensor) -> Tensor:
        return network.hidden(image.flatten()).relu()

    total = torch.zeros(network.hidden.out_features)
    for image in images:
        rows, features = jacobian(represent, image).flatten(1), represent(image).detach()
        for index, feature in enumerate(features):
            total[index] += rows[index].norm() / feature.abs() if feature != 0 else 0
    return total


def wake(network: Mlp) -> Mlp:
    """Return `network` with every hidden unit active for every image."""
    with torch.no_grad():
        network.hidden.bias.add_(2)
    return network


def test_scores_agree_with_the_jacobian() -> None:
    network = wake(make_network())
    images = make_step(network).images

    assert torch.allclose(score_features(network, "output", images), scores_by_jacobian(network, images), rtol=1e-5)


def test_image_behind_a_closed_unit_adds_nothing_to_its_score() -> None:
    network = make_network(hidden_units=20)
    images = make_step(network).images
    active = network.hidden(images.flatten(1)) > 0
    mixed = active.any(dim=0) & ~active.all(dim=0)
    assert mixed.any()

    scores = score_features(network, "output", images)

    assert torch.allclose(scores[mixed], scores_by_jacobian(network, images)[mixed], rtol=1e-5)


def test_feature_that_is_zero_for_every_image_is_never_chosen() -> None:
    network = wake(make_network())
    with torch.no_grad():
        network.hidden.bias[2] = -100
    step = make_step(network)

    assert score_features(network, "output", step.images)[2] == math.inf
    assert score_features(network, "output", step.images).isinf().sum() == 1


def test_scores_of_the_first_layer_are_inverse_pixels() -> None:
    network = make_network()
    images = make_step(network).images

    scores = score_features(network, "hidden", images)

    assert torch.allclose(scores, (1 / images.flatten(1)).sum(dim=0), rtol=1e-5)


@pytest.mark.parametrize(("share", "dropped"), [(0.5, 3), (0.3, 2), (1.0, 7), (0.0, 0)])
def test_columns_of_the_lowest_scores_are_zero_and_all_else_stays(share: float, dropped: int) -> None:
    network = wake(make_network())
    step = make_step(network)
    gradient = gradient_of(step, Defence())
    order = scores_by_jacobian(network, step.images).argsort()

    protected = Soteria(share=share).protect(gradient, step)

    assert (protected["output.weight"][:, order[:dropped]] == 0).all()
    assert torch.equal(protected["output.weight"][:, order[dropped:]], gradient["output.weight"][:, order[dropped:]])
    assert (gradient["output.weight"].abs().sum(dim=0) > 0).all()
    for name in ("hidden.weight", "hidden.bias", "output.bias"):
        assert torch.equal(protected[name], gradient[name])


def test_named_layer_is_defended_in_place_of_the_last() -> None:
    step = make_step(make_network())
    gradient = gradient_of(step, Defence())

    protected = Soteria(share=0.5, layer="hidden").protect(gradient, step)

    brightest = (1 / step.images.flatten(1)).sum(dim=0).argsort()[:4]
    assert (protected["hidden.weight"] == 0).all(dim=0).nonzero().flatten().tolist() == brightest.sort().values.tolist()
    assert torch.equal(protected["output.weight"], gradient["output.weight"])


def test_parameters_are_left_without_gradients_and_images_as_they_were() -> None:
    step = make_step(make_network())

    score_features(step.network, "output", step.images)

    assert all(parameter.grad is None for parameter in step.network.parameters())
    assert not step.images.requires_grad


def test_last_layer_is_found_in_networks_around_networks() -> None:
    around = nn.Sequential(nn.Linear(3, 3), Cnn((1, 4, 4), 2))

    assert find_last_layer(around) == "1.output"


def test_network_without_fully_connected_layer_is_refused() -> None:
    with pytest.raises(ModelError, match="found none"):
        find_last_layer(nn.Sequential(nn.Flatten()))


def test_layer_that_is_not_used_is_refused() -> None:
    network = make_network()
    network.register_module("spare", nn.Linear(2, 2))

    with pytest.raises(ModelError, match="'spare', found that it does not"):
        read_input(network, "spare", torch.zeros((1, *SHAPE)))


def test_reading_leaves_no_hook_behind() -> None:
    network = make_network()

    read_input(network, "output", torch.zeros((1, *SHAPE)))

    assert not network.output._forward_pre_hooks


def test_gradient_without_the_layer_is_refused() -> None:
    step = make_step(make_network())

    with pytest.raises(ModelError, match=r"output\.weight"):
        Soteria().protect({"hidden.bias": torch.zeros(7)}, step)
