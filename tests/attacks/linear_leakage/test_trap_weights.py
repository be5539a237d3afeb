"""Trap weights read an image exactly where a row is active for it alone, with nothing but parameters or in front."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attacks.linear_leakage.planted_network import CarrierName, linear_layer
from attacks.linear_leakage.trap_weights import TrapWeights
from attacks.threat_model import ServerView, ThreatModel, grant
from federation.errors import DataError
from tests.attacks.linear_leakage.made_up_victims import gradients_of, make_images, make_info, make_view

INFO = make_info()


@pytest.mark.parametrize("carrier", ["mlp", "front"])
def test_image_alone_in_a_row_is_read_exactly(carrier: CarrierName) -> None:
    images, labels = make_images(8, 1, INFO), np.arange(8) % 3
    campaign = TrapWeights(carrier=carrier, capacity=256, share=0.05, model="mlp").begin(make_view(INFO))
    plant = campaign.craft(0, 0)
    places = plant.place(torch.from_numpy(images))

    found = campaign.read([gradients_of(plant.network, images, labels)])

    assert found.shape == (256, 1, 8, 8)
    assert (places >= 0).sum() >= 6
    assert found[places[places >= 0]] == pytest.approx(images[places >= 0], abs=1e-3)


def test_no_image_is_found_twice() -> None:
    images, labels = make_images(8, 1, INFO), np.arange(8) % 3
    campaign = TrapWeights(capacity=256, share=0.05).begin(make_view(INFO))

    found = campaign.read([gradients_of(campaign.craft(0, 0).network, images, labels)]).reshape(256, -1)

    distances = np.abs(found[:, None] - images.reshape(1, 8, -1)).max(axis=2)
    assert (distances < 1e-3).sum(axis=0).max() == 1


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_calibrated_rows_are_active_for_the_wanted_share_of_images(share: float) -> None:
    campaign = TrapWeights(capacity=128, share=share).begin(make_view(INFO))
    layer = linear_layer(campaign.craft(0, 0).network, "hidden")

    active = layer(torch.from_numpy(make_images(400, 3, INFO)).flatten(1)) > 0

    assert float(active.float().mean()) == pytest.approx(share, rel=0.3)


def test_half_of_each_row_is_negative_and_the_other_smaller_by_the_factor() -> None:
    rows = TrapWeights(capacity=400, factor=0.5, spread=0.1).begin(make_view(INFO)).rows

    assert ((rows < 0).sum(axis=1) == 32).all()
    assert rows[rows > 0].mean() / -rows[rows < 0].mean() == pytest.approx(0.5, rel=0.05)
    assert rows[rows < 0].mean() == pytest.approx(-0.1 * np.sqrt(2 / np.pi), rel=0.05)
    assert len(np.unique((rows < 0).argmax(axis=1))) > 3


def test_bias_is_zero_and_all_else_is_the_fresh_network() -> None:
    campaign = TrapWeights(capacity=16, seed=4).begin(make_view(INFO))
    first, second = campaign.craft(0, 0).network, campaign.craft(1, 0).network

    assert not linear_layer(first, "hidden").bias.any()
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters(), strict=True))


def test_factor_needs_no_auxiliary_images_and_its_absence_does() -> None:
    bare = ServerView(info=INFO, stream=np.random.default_rng(0))

    assert TrapWeights(factor=0.9).needs.knows == frozenset()
    TrapWeights(factor=0.9, capacity=4).begin(bare)
    with pytest.raises(DataError, match="auxiliary"):
        TrapWeights(capacity=4).begin(bare)


def test_mlp_needs_parameters_and_front_the_architecture() -> None:
    pinned = ThreatModel(controls=frozenset({"parameters"}))

    grant(make_view(INFO), TrapWeights(carrier="mlp").needs, pinned)
    with pytest.raises(DataError, match="control of architecture"):
        grant(make_view(INFO), TrapWeights(carrier="front").needs, pinned)


@pytest.mark.parametrize("settings", [{"capacity": 0}, {"share": 0.0}, {"share": 1.0}, {"factor": 0.0}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="Expected capacity"):
        TrapWeights(**settings).begin(make_view(INFO))
