"""One shot takes the one image between its two rows out of a sum over any number of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attacks.linear_leakage.one_shot import OneShot
from attacks.threat_model import ThreatModel, grant
from federation.errors import DataError
from tests.attacks.linear_leakage.made_up_victims import gradients_of, make_images, make_info, make_view, sum_by_name

INFO = make_info()
SETTINGS: list[dict[str, Any]] = [
    {"carrier": "front", "kind": "cumulative", "model": "mlp"},
    {"carrier": "front", "kind": "sparse", "model": "mlp"},
    {"carrier": "mlp", "hidden_units": 5},
]


def make_target(thresholds: np.ndarray, count: int) -> np.ndarray:
    """Return images of which the first alone has a brightness between the first two thresholds."""
    low, high = thresholds[:2]
    images = make_images(4 * count, 2, INFO)
    levels = images.mean(axis=(1, 2, 3))
    others = images[(levels < low - 0.01) | (levels > high + 0.01)][: count - 1]
    target = images[0] * ((low + high) / 2 / levels[0])
    return np.concatenate([target[None], others]).astype(np.float32)


@pytest.mark.parametrize("settings", SETTINGS)
def test_image_alone_between_the_rows_is_read_from_the_sum_over_hospitals(settings: dict[str, Any]) -> None:
    campaign = OneShot(images=40, **settings).begin(make_view(INFO))
    images, labels = make_target(campaign.bins.thresholds, 40), np.arange(40) % 3
    plants = [campaign.craft(client, 0) for client in range(2)]
    parts = [slice(0, 20), slice(20, 40)]

    sent = [gradients_of(plant.network, images[part], labels[part]) for plant, part in zip(plants, parts, strict=True)]
    found = campaign.read([sum_by_name(sent)])

    assert plants[0].place(torch.from_numpy(images)).tolist() == [0] + [-1] * 39
    assert found.shape == (1, 1, 8, 8)
    assert found[0] == pytest.approx(images[0], abs=2e-3)


@pytest.mark.parametrize("settings", SETTINGS)
def test_nothing_between_the_rows_gives_nothing(settings: dict[str, Any]) -> None:
    campaign = OneShot(images=40, **settings).begin(make_view(INFO))
    images, labels = make_target(campaign.bins.thresholds, 40)[1:], np.arange(39) % 3

    found = campaign.read([gradients_of(campaign.craft(0, 0).network, images, labels)])

    assert np.isnan(found).all()


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("settings", SETTINGS[1:])
def test_bin_holds_the_wanted_share_at_the_wanted_quantile(level: float, settings: dict[str, Any]) -> None:
    view = make_view(INFO, auxiliary=4000)
    campaign = OneShot(images=20, level=level, rule="empirical", **settings).begin(view)

    levels = view.require_auxiliary().mean(axis=(1, 2, 3))
    low, high = campaign.bins.thresholds[:2]

    assert ((levels > low) & (levels <= high)).mean() == pytest.approx(1 / 20, abs=0.005)
    assert abs((levels <= low).mean() - level) <= 1 / 20 + 1e-3


def test_idle_units_of_the_mlp_are_out_of_reach() -> None:
    campaign = OneShot(images=40, carrier="mlp", hidden_units=6).begin(make_view(INFO))
    network = campaign.craft(0, 0).network

    hidden = network.get_submodule("hidden")(torch.ones(1, 64))

    assert (hidden > 0).tolist() == [[True, True, False, False, False, False]]


def test_rows_of_another_direction_read_as_well() -> None:
    campaign = OneShot(images=40, direction="random", model="mlp").begin(make_view(INFO))
    plant, images = campaign.craft(0, 0), make_images(400, 3, INFO)
    places = plant.place(torch.from_numpy(images))
    chosen = np.concatenate([np.flatnonzero(places == 0)[:1], np.flatnonzero(places < 0)[:39]])

    found = campaign.read([gradients_of(plant.network, images[chosen], np.arange(40) % 3)])

    assert found[0] == pytest.approx(images[chosen[0]], abs=2e-3)


def test_what_it_needs_is_enforced() -> None:
    pinned = ThreatModel(controls=frozenset({"parameters"}), sees="aggregate")

    grant(make_view(INFO), OneShot(images=8, carrier="mlp").needs, pinned)
    assert "generator" in OneShot(images=8, direction="learned").needs.knows
    with pytest.raises(DataError, match="control of architecture"):
        grant(make_view(INFO), OneShot(images=8).needs, pinned)


@pytest.mark.parametrize("settings", [{"images": 3}, {"images": 8, "level": 1.0}, {"images": 8, "hidden_units": 1}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="Expected images"):
        OneShot(**settings).begin(make_view(INFO))


def test_sparse_rows_in_rectified_units_are_refused() -> None:
    with pytest.raises(DataError, match="cumulative"):
        OneShot(images=8, carrier="mlp", kind="sparse").begin(make_view(INFO))
