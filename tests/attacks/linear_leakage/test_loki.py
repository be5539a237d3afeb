"""LOKI reads every hospital's images out of a sum over hospitals, in blocks as in the dense network of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attacks.linear_leakage.loki import Layout, Loki, LokiCampaign
from attacks.threat_model import ThreatModel, grant
from federation.errors import DataError
from federation.parameters import Parameters
from tests.attacks.linear_leakage.made_up_victims import (
    gradients_of,
    make_images,
    make_info,
    make_view,
    sum_by_name,
    train,
)

INFO = make_info(channels=3)
CLIENTS, IMAGES = 3, 4
LABELS = np.arange(IMAGES) % 3


def begin(**settings: Any) -> LokiCampaign:
    return Loki(**{"clients": CLIENTS, "capacity": 64, "model": "mlp", **settings}).begin(make_view(INFO))


def images_of(client: int) -> np.ndarray:
    return make_images(IMAGES, client, INFO)


def places_in(campaign: LokiCampaign) -> np.ndarray:
    plants = [campaign.craft(client, 0) for client in range(campaign.attack.clients)]
    return np.stack([plant.place(torch.from_numpy(images_of(number))) for number, plant in enumerate(plants)])


def sent_by(campaign: LokiCampaign) -> list[Parameters]:
    return [gradients_of(campaign.craft(client, 0).network, images_of(client), LABELS) for client in range(CLIENTS)]


def alone_in(places: np.ndarray) -> np.ndarray:
    return np.bincount(places.ravel(), minlength=CLIENTS * 64)[places] == 1


@pytest.mark.parametrize("layout", ["blocks", "dense"])
def test_images_alone_in_their_bin_are_read_from_the_sum_over_hospitals(layout: Layout) -> None:
    campaign = begin(layout=layout, capacity=512)
    places = places_in(campaign)
    alone = np.bincount(places.ravel(), minlength=CLIENTS * 512)[places] == 1

    found = campaign.read([sum_by_name(sent_by(campaign))])

    assert found.shape == (CLIENTS * 512, 3, 8, 8)
    assert alone.sum() >= 9
    for client in range(CLIENTS):
        chosen = alone[client]
        expected = images_of(client)[chosen]
        assert found[places[client][chosen]] == pytest.approx(expected, abs=0.02)
        scaled = found[places[client][chosen]]
        scaled *= (expected.mean(axis=(1, 2, 3)) / scaled.mean(axis=(1, 2, 3)))[:, None, None, None]
        assert scaled == pytest.approx(expected, abs=1e-4)


def test_sum_of_blocks_is_the_sum_of_the_dense_network() -> None:
    blocks, dense = begin(), begin(layout="dense")

    by_name, at_once = sum_by_name(sent_by(blocks)), sum_by_name(sent_by(dense))

    keys = [f"{client:03d}" for client in range(CLIENTS)]
    joined = {
        "weight": torch.cat([by_name.pop(f"blocks.{key}") for key in keys], dim=1),
        "kernel": torch.cat([by_name.pop(f"kernels.{key}") for key in keys]),
    }
    assert set(by_name | joined) == set(at_once)
    for name, value in (by_name | joined).items():
        torch.testing.assert_close(value, at_once[name], rtol=1e-4, atol=1e-7)


def test_both_layouts_compute_the_same_logits_and_places() -> None:
    images = torch.from_numpy(images_of(0))
    block, dense = begin().craft(1, 0), begin(layout="dense").craft(1, 0)

    torch.testing.assert_close(block.network(images), dense.network(images))
    assert block.place(images).tolist() == dense.place(images).tolist()


def test_places_of_a_hospital_lie_in_its_own_part() -> None:
    places = places_in(begin())

    assert (places // 64 == np.arange(CLIENTS)[:, None]).all()


def test_black_and_white_images_lie_in_the_outermost_bins() -> None:
    images = torch.stack([torch.zeros(3, 8, 8), torch.ones(3, 8, 8)])

    assert begin().craft(2, 0).place(images).tolist() == [2 * 64, 3 * 64 - 1]


def test_hospital_that_did_not_answer_leaves_its_candidates_empty() -> None:
    campaign = begin()

    found = campaign.read([sum_by_name(sent_by(campaign)[:2])])

    assert np.isnan(found[2 * 64 :]).all()
    assert np.isfinite(found[: 2 * 64]).any()


def test_bin_without_image_is_empty() -> None:
    campaign = begin()
    occupied = np.unique(places_in(campaign))

    found = campaign.read([sum_by_name(sent_by(campaign))])

    assert np.flatnonzero(np.isfinite(found).all(axis=(1, 2, 3))).tolist() == occupied.tolist()


def test_great_scaling_factor_keeps_what_the_first_local_step_wrote() -> None:
    errors = {}
    for csf in (1.0, 1e6):
        campaign = begin(clients=1, csf=csf, capacity=32)
        plant = campaign.craft(0, 0)
        images, labels = make_images(16, 5, INFO), np.arange(16) % 3
        places = plant.place(torch.from_numpy(images))
        assert len(np.unique(places)) < 16
        first = [np.flatnonzero(places == place)[0] for place in np.unique(places)]

        found = campaign.read([train(plant.network, images, labels, rate=0.1, batch=1)])

        errors[csf] = np.nanmedian(np.abs(found[places[first]] - images[first]).max(axis=(1, 2, 3)))
    assert errors[1e6] < 0.02 < errors[1.0]


def test_what_it_needs_is_enforced() -> None:
    needs = Loki(clients=2).needs

    assert needs.sees == "aggregate"
    assert ThreatModel(sees="aggregate").missing(needs) == ()
    with pytest.raises(DataError, match="control of architecture, control of model-per-client"):
        grant(make_view(INFO), needs, ThreatModel(controls=frozenset({"parameters"})))


@pytest.mark.parametrize("client", [-1, CLIENTS])
def test_hospital_beyond_the_plan_is_refused(client: int) -> None:
    with pytest.raises(DataError, match="Expected a client from 0 to 2"):
        begin().craft(client, 0)


def test_attack_on_nobody_is_refused() -> None:
    with pytest.raises(DataError, match="at least 1 client"):
        begin(clients=0)
