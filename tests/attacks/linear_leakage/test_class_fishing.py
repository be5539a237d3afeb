"""A server that hears one class a round reads its images as if there were no others, and over all classes more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from attacks.evaluation.exchange import Exchange
from attacks.evaluation.trial import Trial
from attacks.linear_leakage.bins import make_bins
from attacks.linear_leakage.class_fishing import hear_one_class, narrow_to_class
from attacks.linear_leakage.planted_network import linear_layer
from attacks.linear_leakage.robbing_the_fed import Ability, RobbingTheFed
from attacks.registry import BY_CLASS, list_attacks
from attacks.threat_model import ServerView
from attacks.victim import Protection
from attacks.world import World, as_floats
from federation.config import TrainingConfig
from federation.datasets.image_set import Dataset, ImageSet
from federation.errors import DataError
from tests.attacks.made_up_worlds import VERBATIM_DB, make_images, make_info, make_view, play, read_by_round

SHARES = (0.1, 0.6, 0.25, 0.05)
BY_RARITY = (3, 0, 2, 1)
ATTACK = RobbingTheFed(capacity=64, carrier="mlp", rounds=4, together="classes")
PLAIN = RobbingTheFed(capacity=64, carrier="mlp")
READ_DB = 40.0


def uneven(count: int, seed: int) -> ImageSet:
    """Return made-up images with labels in the proportions of `SHARES`."""
    labels = np.random.default_rng(seed).choice(4, size=count, p=SHARES)
    return ImageSet(images=make_images(count, seed).images, labels=labels.astype(np.int64))


def uneven_world() -> World:
    parts = {name: uneven(count, seed) for seed, (name, count) in enumerate({"train": 900, "test": 600}.items())}
    empty = parts["test"].take(np.arange(0))
    return World.of(Dataset.of_splits(make_info(), {**parts, "validation": empty}, given_split=True))


WORLD = uneven_world()


def masked_by(synthetic: int, **changes: Any) -> Trial:
    return Trial(batch=100, batches=1, synthetic=synthetic, protection=Protection(mode="joint"), **changes)


def verbatim(exchange: Exchange) -> NDArray[np.bool_]:
    return read_by_round(exchange) > VERBATIM_DB


def uneven_view() -> ServerView:
    return replace(make_view(), auxiliary=as_floats(uneven(600, 1)), auxiliary_labels=uneven(600, 1).labels)


@pytest.mark.parametrize("rank", range(4))
def test_only_images_of_the_class_of_the_round_leave_a_gradient_in_the_bins(rank: int) -> None:
    network, own = ATTACK.begin(uneven_view()).craft(0, rank).network, uneven(200, 5)
    layer = linear_layer(network, "hidden")

    sizes = []
    for image, label in zip(torch.from_numpy(as_floats(own)), torch.from_numpy(own.labels.copy()), strict=True):
        loss = functional.cross_entropy(network(image[None]), label[None])
        sizes.append(float(torch.autograd.grad(loss, layer.weight)[0].norm()))

    heard = own.labels == BY_RARITY[rank]
    assert 0 < heard.sum() < 200
    assert min(np.array(sizes)[heard]) > 1e-6
    assert max(np.array(sizes)[~heard]) < 1e-20


def test_bins_of_a_round_are_made_for_images_of_its_class() -> None:
    network = ATTACK.begin(uneven_view()).craft(0, 2).network

    _, own = narrow_to_class(uneven_view(), 2)
    thresholds = -linear_layer(network, "hidden").bias.detach().numpy()
    assert thresholds == pytest.approx(make_bins(own, 64).thresholds, abs=1e-6)
    assert thresholds != pytest.approx(make_bins(uneven_view(), 64).thresholds, abs=1e-3)


def test_each_round_reads_exactly_what_is_alone_in_its_bin_among_the_images_of_its_class(tmp_path: Path) -> None:
    exchange = play(ATTACK, WORLD, Trial(batch=60), tmp_path)

    labels = WORLD.real.labels[exchange.victims]
    for rank, chosen in enumerate(BY_RARITY):
        places = exchange.places[:, rank]
        counts = np.bincount(places[labels == chosen], minlength=256)
        expected = (labels == chosen) & (counts[places] == 1)
        assert verbatim(exchange)[:, rank].tolist() == expected.tolist()
        assert expected.any()


def test_one_class_an_update_reads_more_than_one_update_at_the_same_masking_and_rare_classes_most(
    tmp_path: Path,
) -> None:
    plain, by_class = (play(attack, WORLD, masked_by(200), tmp_path / attack.name) for attack in (PLAIN, ATTACK))

    read, labels = np.asarray(verbatim(by_class).any(axis=1)), WORLD.real.labels[by_class.victims]
    rare = np.isin(labels, BY_RARITY[:2])
    assert plain.victims.tolist() == by_class.victims.tolist()
    assert read.sum() > 3 * verbatim(plain).sum()
    assert read[rare].mean() > 2 * read[~rare].mean()


@pytest.mark.parametrize(("ability", "optimizer"), [("calibrated", "sgd"), ("adam-linear", "adam")])
def test_calibrated_bins_read_a_class_from_what_the_shipped_client_trained(
    ability: Ability, optimizer: Any, tmp_path: Path
) -> None:
    attack = replace(ATTACK, ability=ability, movement=1e-6)
    local = TrainingConfig(optimizer=optimizer, learning_rate=1e-3, batch_size=100, local_epochs=1)

    exchange = play(attack, WORLD, masked_by(100, mode="delta", plan=local), tmp_path)

    labels = WORLD.real.labels[exchange.victims]
    rare = np.isin(labels, BY_RARITY[:2])
    assert rare.any()
    assert (read_by_round(exchange).max(axis=1)[rare] > READ_DB).mean() > 0.5


def test_output_layer_hears_a_class_by_a_negative_row_and_no_other_row() -> None:
    output = nn.Linear(5, 3)
    with torch.no_grad():
        output.weight.copy_(torch.tensor([[1.0], [-2.0], [3.0]]).expand(-1, 5))

    hear_one_class(output, 2)

    assert output.weight.tolist() == [[0.0] * 5, [0.0] * 5, [-3.0] * 5]
    assert output.bias[:2].tolist() == [0.0, 0.0]
    assert float(output(torch.rand(1, 5)).softmax(dim=1)[0, 2].detach()) < 1e-20


def test_server_takes_the_class_it_has_fewest_images_of_first_and_skips_those_it_has_none_of() -> None:
    labels = np.array([2] * 5 + [0] * 3 + [3] * 7)
    view = replace(make_view(auxiliary=15), auxiliary_labels=labels)

    narrowed = [narrow_to_class(view, rank) for rank in range(3)]

    assert [chosen for chosen, _ in narrowed] == [0, 2, 3]
    for chosen, own in narrowed:
        assert own.auxiliary_labels is not None
        assert own.auxiliary_labels.tolist() == [chosen] * int((labels == chosen).sum())
        assert np.array_equal(own.require_auxiliary(), view.require_auxiliary()[labels == chosen])


def test_more_rounds_than_classes_are_refused_when_they_are_played() -> None:
    campaign = replace(ATTACK, rounds=5).begin(make_view())

    campaign.craft(0, 3)
    with pytest.raises(DataError, match=r"at most 4 rounds, one for each class .* found round 5"):
        campaign.craft(0, 4)


@pytest.mark.parametrize("labels", [None, np.zeros((300, 4), dtype=np.int64)])
def test_server_without_a_label_for_each_of_its_own_images_cannot_choose_a_class(labels: Any) -> None:
    with pytest.raises(DataError, match="Expected one label for each"):
        narrow_to_class(replace(make_view(), auxiliary_labels=labels), 0)


def test_attack_is_registered_by_number_of_classes_under_its_name_and_asks_for_parameters_only() -> None:
    names = {attack.name for attack in list_attacks()}

    for classes, attack in BY_CLASS.items():
        assert attack.name == f"rtf-cumulative-mlp-k1024-classes-{classes}"
        assert attack.name in names
        assert attack.needs.rounds == classes
        assert attack.needs.controls == {"parameters"}
        assert attack.source == "ours, on 2110.13057 and 2202.00580"
