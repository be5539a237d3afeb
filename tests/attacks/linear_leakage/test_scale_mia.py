"""Scale-MIA reads latents exactly with nothing but parameters of the agreed network, and decodes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from attacks.linear_leakage.scale_mia import ScaleMia, ScaleMiaCampaign
from attacks.threat_model import ThreatModel, grant
from federation.config import ModelConfig
from federation.errors import DataError
from federation.models import build_model
from tests.attacks.linear_leakage.made_up_victims import gradients_of, make_images, make_info, make_view, train

INFO = make_info()
IMAGES = make_images(6, 1, INFO)
LABELS = np.arange(6) % 3


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> ScaleMiaCampaign:
    return ScaleMia(folder=tmp_path_factory.mktemp("kept"), steps=60).begin(make_view(INFO))


def test_images_alone_in_their_bin_come_back_as_the_decoder_gives_them(campaign: ScaleMiaCampaign) -> None:
    plant = campaign.craft(0, 0)
    places = plant.place(torch.from_numpy(IMAGES))
    alone = np.bincount(places, minlength=512)[places] == 1

    found = campaign.read([gradients_of(plant.network, IMAGES, LABELS)])

    assert found.shape == (512, 1, 8, 8)
    assert alone.sum() >= 4
    assert found[places[alone]] == pytest.approx(campaign.reconstruct(IMAGES)[alone], abs=1e-3)
    assert np.flatnonzero(np.isfinite(found).all(axis=(1, 2, 3))).tolist() == np.unique(places).tolist()


def test_difference_of_parameters_reads_like_a_gradient(campaign: ScaleMiaCampaign, tmp_path: Path) -> None:
    gentle = ScaleMia(folder=campaign.attack.folder, steps=60, gain=0.01, scale=1e-3, by="direction")
    delicate = gentle.begin(make_view(INFO))
    plant = delicate.craft(0, 0)
    places = plant.place(torch.from_numpy(IMAGES))
    alone = np.bincount(places, minlength=512)[places] == 1

    found = delicate.read([train(plant.network, IMAGES, LABELS, rate=1e-3, batch=6)])

    assert found[places[alone]] == pytest.approx(campaign.reconstruct(IMAGES)[alone], abs=0.02)


def test_network_is_the_agreed_one_with_the_encoder_in_front(campaign: ScaleMiaCampaign) -> None:
    agreed = build_model(ModelConfig.model_validate({"name": "cnn"}), INFO, seed=0)

    network = campaign.craft(0, 0).network

    assert type(network) is type(agreed)
    shapes = {name: value.shape for name, value in network.state_dict().items()}
    assert shapes == {name: value.shape for name, value in agreed.state_dict().items()}
    trained = campaign.autoencoder.encoder.state_dict()
    assert all(
        torch.equal(value, trained[name]) for name, value in network.get_submodule("features").state_dict().items()
    )


def test_encoder_is_what_the_hidden_layer_is_given(campaign: ScaleMiaCampaign) -> None:
    network = campaign.craft(0, 0).network
    seen: list[torch.Tensor] = []
    network.get_submodule("hidden").register_forward_pre_hook(lambda _, given: seen.append(given[0]))

    network(torch.from_numpy(IMAGES))

    torch.testing.assert_close(campaign.autoencoder.encode(torch.from_numpy(IMAGES)), seen[0])


def test_needs_are_parameters_and_a_sum(campaign: ScaleMiaCampaign) -> None:
    model = ThreatModel(controls=frozenset({"parameters"}), knows=frozenset({"auxiliary"}), sees="aggregate")

    grant(make_view(INFO), campaign.attack.needs, model)
    with pytest.raises(DataError, match="knowledge of auxiliary"):
        grant(make_view(INFO), campaign.attack.needs, ThreatModel(knows=frozenset()))
