"""A planted layer is active where its bins say, and every active bin of an image gets the same gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attacks.linear_leakage.bins import Bins, make_bins
from attacks.linear_leakage.planted_network import (
    Kind,
    fill_bins,
    linear_layer,
    place_images,
    plant_in_front,
    plant_in_mlp,
)
from federation.config import ModelConfig
from federation.errors import ModelError
from federation.models import build_model
from tests.attacks.made_up_worlds import make_info, make_view

INFO = make_info()
VIEW = make_view()
BINS = make_bins(VIEW, 20)
IMAGES = torch.from_numpy(VIEW.require_auxiliary()[:40])
LABELS = torch.arange(40) % 3


def filled(kind: Kind, bins: Bins = BINS, gain: float = 1.0) -> nn.Linear:
    layer = nn.Linear(64, len(bins))
    fill_bins(layer, bins, kind, gain)
    return layer


def carrier(name: str) -> tuple[nn.Module, nn.Linear]:
    if name == "mlp":
        network = plant_in_mlp(BINS, INFO)
        return network, linear_layer(network, "hidden")
    network = plant_in_front(BINS, "sparse" if name == "sparse" else "cumulative", INFO, model="cnn", seed=0)
    return network, linear_layer(network, "bins")


def slopes_of(network: nn.Module, layer: nn.Linear) -> Tensor:
    """Return the gradient of each image's own loss for each of the layer's biases, shape (N, k)."""
    rows = []
    for image, label in zip(IMAGES[:, None], LABELS[:, None], strict=True):
        rows.append(torch.autograd.grad(functional.cross_entropy(network(image), label), layer.bias)[0])
    return torch.stack(rows)


@pytest.mark.parametrize("gain", [1.0, 30.0])
def test_cumulative_row_fires_exactly_for_images_above_its_threshold(gain: float) -> None:
    with torch.no_grad():
        active = filled("cumulative", gain=gain)(IMAGES.flatten(1)).numpy() > 0

    measured = IMAGES.flatten(1).double().numpy() @ BINS.direction
    assert (active == (measured[:, None] > BINS.thresholds)).all()


def test_sparse_row_is_at_work_exactly_within_its_bin() -> None:
    with torch.no_grad():
        hidden = filled("sparse")(IMAGES.flatten(1)).numpy()

    at_work = (hidden > 0) & (hidden < 1)
    homes = BINS.place(IMAGES.flatten(1).double().numpy() @ BINS.direction)
    assert at_work.sum(axis=1).tolist() == [1] * 40
    assert at_work.argmax(axis=1).tolist() == homes.tolist()


def test_sparse_rows_rise_from_zero_at_their_threshold_to_one_at_the_next_and_the_last_at_the_top() -> None:
    layer = filled("sparse")
    ends = torch.from_numpy(np.append(BINS.thresholds, BINS.top))

    with torch.no_grad():
        risen = layer(ends[:, None].float().expand(-1, 64)).numpy()

    rows = np.arange(len(BINS))
    assert risen[rows, rows] == pytest.approx(0, abs=1e-3)
    assert risen[rows + 1, rows] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("kind", ["cumulative", "sparse"])
def test_images_are_placed_where_their_measurement_lies_or_nowhere_below(kind: Kind) -> None:
    raised = Bins(direction=BINS.direction, thresholds=np.linspace(0.5, 0.8, 9), top=1.0)

    places = place_images(filled(kind, raised), IMAGES)

    expected = raised.place(IMAGES.flatten(1).double().numpy() @ raised.direction)
    assert places.tolist() == expected.tolist()
    assert -1 in places


@pytest.mark.parametrize("name", ["cumulative", "mlp"])
def test_all_active_bins_of_an_image_have_the_same_gradient_and_all_others_none(name: str) -> None:
    network, layer = carrier(name)

    slopes = slopes_of(network, layer)

    homes = place_images(layer, IMAGES)
    for row, home in zip(slopes, homes, strict=True):
        assert float(row[0]) != 0
        assert row[: home + 1].tolist() == pytest.approx([float(row[0])] * (home + 1), rel=1e-4)
        assert row[home + 1 :].tolist() == [0.0] * (len(row) - home - 1)


def test_sparse_bins_give_an_image_a_gradient_in_its_own_bin_only() -> None:
    network, layer = carrier("sparse")

    slopes = slopes_of(network, layer)

    assert [torch.nonzero(row).flatten().tolist() for row in slopes] == [[home] for home in place_images(layer, IMAGES)]


def test_planted_mlp_differs_from_the_agreed_network_in_nothing_but_values() -> None:
    agreed = build_model(ModelConfig.model_validate({"name": "mlp", "hidden-units": 20}), INFO, seed=0)

    planted, _ = carrier("mlp")

    shapes = [{name: value.shape for name, value in net.state_dict().items()} for net in (agreed, planted)]
    assert type(planted) is type(agreed)
    assert shapes[0] == shapes[1]


def test_scale_multiplies_what_the_network_behind_the_bins_sees() -> None:
    once, twice = (plant_in_front(BINS, "cumulative", INFO, model="cnn", seed=0, scale=scale) for scale in (0.25, 0.5))

    assert torch.equal(twice.spread.weight, 2 * once.spread.weight)
    assert once.spread.weight.unique().tolist() == [0.25]
    assert all(
        torch.equal(left, right)
        for left, right in zip(once.network.parameters(), twice.network.parameters(), strict=True)
    )


@pytest.mark.parametrize("kind", ["cumulative", "sparse"])
def test_network_behind_the_bins_sees_values_of_about_one(kind: Kind) -> None:
    network = plant_in_front(BINS, kind, INFO, model="cnn", seed=0)

    with torch.no_grad():
        hidden = network.bins(IMAGES.flatten(1))
        seen = network.spread(hidden.relu() if kind == "cumulative" else hidden.clamp(0, 1))

    assert float(seen.min()) > 0
    assert float(seen.max()) < 2


def test_layer_of_another_kind_is_refused() -> None:
    network, _ = carrier("cumulative")

    with pytest.raises(ModelError, match=r"Expected a fully connected layer 'network\.features', found Sequential"):
        linear_layer(network, "network.features")
