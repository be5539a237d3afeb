"""An honest network's first layer gives away an image exactly where a unit saw it alone, and one image always."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attacks.linear_leakage.analytic_inversion import AnalyticInversion
from attacks.threat_model import Needs, ServerView, ThreatModel, grant
from federation.config import ModelConfig
from federation.models import build_model
from tests.attacks.linear_leakage.made_up_victims import gradients_of, make_images, make_info

INFO = make_info(channels=3)
VIEW = ServerView(info=INFO, stream=np.random.default_rng(0))


@pytest.mark.parametrize("label", [0, 1, 2])
def test_single_image_is_read_exactly_and_once(label: int) -> None:
    image = make_images(1, 1, INFO)
    campaign = AnalyticInversion(hidden_units=16).begin(VIEW)
    plant = campaign.craft(0, 0)

    found = campaign.read([gradients_of(plant.network, image, np.array([label]))])

    assert found.shape == (16, 3, 8, 8)
    assert found[plant.place(torch.from_numpy(image))] == pytest.approx(image, abs=1e-5)
    assert np.isfinite(found).all(axis=(1, 2, 3)).sum() == 1


def test_of_a_batch_those_are_read_that_a_unit_saw_alone() -> None:
    images = make_images(3, 1, INFO)
    campaign = AnalyticInversion(hidden_units=256).begin(VIEW)
    plant = campaign.craft(0, 0)
    places = plant.place(torch.from_numpy(images))

    found = campaign.read([gradients_of(plant.network, images, np.arange(3))])

    assert (places >= 0).sum() >= 2
    assert found[places[places >= 0]] == pytest.approx(images[places >= 0], abs=1e-4)


def test_network_is_the_fresh_one_that_an_honest_server_sends() -> None:
    wanted = build_model(ModelConfig.model_validate({"name": "mlp", "hidden-units": 16}), INFO, seed=7)

    sent = AnalyticInversion(hidden_units=16, seed=7).begin(VIEW).craft(3, 5).network

    assert all(torch.equal(one, other) for one, other in zip(sent.parameters(), wanted.parameters(), strict=True))


def test_it_needs_nothing_but_an_update() -> None:
    attack = AnalyticInversion()

    assert attack.needs == Needs()
    grant(VIEW, attack.needs, ThreatModel(controls=frozenset(), knows=frozenset()))
