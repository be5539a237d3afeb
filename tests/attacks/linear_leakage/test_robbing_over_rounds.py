"""Several rounds of Robbing the Fed: fresh bins read more, and the difference of two rounds cancels what is in both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from attacks.evaluation.exchange import Exchange
from attacks.evaluation.trial import Refresh, Trial
from attacks.linear_leakage.planted_network import CarrierName, linear_layer
from attacks.linear_leakage.robbing_the_fed import RobbingTheFed
from attacks.victim import Protection
from tests.attacks.made_up_worlds import VERBATIM_DB, make_view, make_world, play, read_by_round

WORLD = make_world(train=900)
TWICE = RobbingTheFed(capacity=64, carrier="mlp", rounds=2, together="difference")
IMAGES = torch.from_numpy(make_view(seed=3).require_auxiliary())


def difference_of(synthetic: int, folder: Path, *, refresh: Refresh = "none", renewed: bool = True) -> Exchange:
    protection = Protection(mode="joint" if synthetic else "none")
    trial = Trial(batch=10, synthetic=synthetic, protection=protection, refresh=refresh, renewed=renewed)
    return play(TWICE, WORLD, trial, folder)


def verbatim(exchange: Exchange) -> list[bool]:
    return (read_by_round(exchange).max(axis=1) > VERBATIM_DB).tolist()


@pytest.mark.parametrize("carrier", ["front", "mlp"])
def test_rounds_with_fresh_bins_place_images_among_candidates_of_their_own(carrier: CarrierName) -> None:
    campaign = RobbingTheFed(capacity=16, carrier=carrier, direction="random", rounds=3).begin(make_view())

    places = [campaign.craft(0, number).place(IMAGES) for number in range(3)]

    assert [(place // 16).tolist() for place in places] == [[number] * len(IMAGES) for number in range(3)]
    assert (places[0] % 16 != places[1] % 16).any()


def test_rounds_may_be_crafted_in_any_order() -> None:
    campaign = RobbingTheFed(capacity=16, carrier="mlp", direction="random", rounds=2).begin(make_view())

    late, early, again = (campaign.craft(0, number) for number in (1, 0, 1))

    assert late.network is again.network
    assert early.network is not late.network
    assert set(late.place(IMAGES) // 16) == {1}


def test_image_below_all_bins_has_no_place_in_any_round() -> None:
    campaign = RobbingTheFed(capacity=16, carrier="mlp", direction="random", rounds=2).begin(make_view())
    plant = campaign.craft(0, 1)
    bins = linear_layer(plant.network, "hidden")
    lowest = bins.weight[0].detach().sign().neg().view(1, 1, 8, 8) * 100

    assert plant.place(lowest).tolist() == [-1]


def test_fresh_bins_read_in_each_round_what_is_alone_there_and_together_more(tmp_path: Path) -> None:
    attack = RobbingTheFed(capacity=64, carrier="mlp", direction="random", rounds=3)

    exchange = play(attack, WORLD, Trial(batch=24), tmp_path)

    counts = np.bincount(exchange.places.ravel(), minlength=192)
    read = read_by_round(exchange) > VERBATIM_DB
    assert exchange.candidates.shape == (192, 1, 8, 8)
    assert read.tolist() == (counts[exchange.places] == 1).tolist()
    assert read.any(axis=1).sum() > read.sum(axis=0).max()


def test_difference_of_two_rounds_reads_as_if_there_were_no_cache(tmp_path: Path) -> None:
    bare, masked = difference_of(0, tmp_path / "bare"), difference_of(150, tmp_path / "masked")

    counts = np.bincount(masked.places.max(axis=1), minlength=64)
    alone = counts[masked.places.max(axis=1)] == 1
    assert bare.victims.tolist() == masked.victims.tolist()
    assert verbatim(masked) == verbatim(bare)
    assert verbatim(masked) == alone.tolist()
    assert alone.sum() > 10


def test_one_round_with_the_same_cache_reads_next_to_nothing(tmp_path: Path) -> None:
    trial = Trial(batch=20, synthetic=150, protection=Protection(mode="joint"))

    exchange = play(RobbingTheFed(capacity=64, carrier="mlp"), WORLD, trial, tmp_path)

    assert sum(verbatim(exchange)) < 6


@pytest.mark.parametrize("refresh", ["subset", "augment"])
def test_synthetic_images_that_change_from_round_to_round_do_not_cancel(refresh: Refresh, tmp_path: Path) -> None:
    reused, refreshed = difference_of(150, tmp_path / "a"), difference_of(150, tmp_path / "b", refresh=refresh)

    assert sum(verbatim(refreshed)) < 0.5 * sum(verbatim(reused))


def test_real_images_that_take_part_in_both_rounds_cancel_too(tmp_path: Path) -> None:
    exchange = difference_of(150, tmp_path, renewed=False)

    assert np.isnan(exchange.candidates).all()


def test_difference_plants_the_same_network_twice_and_has_one_candidate_a_bin(tmp_path: Path) -> None:
    campaign = TWICE.begin(make_view())

    first, second = campaign.craft(0, 0), campaign.craft(0, 1)

    assert first.network is second.network
    assert first.place(IMAGES).tolist() == second.place(IMAGES).tolist()
    assert difference_of(0, tmp_path).candidates.shape == (64, 1, 8, 8)


def test_image_of_one_round_has_no_place_in_the_other(tmp_path: Path) -> None:
    places = difference_of(0, tmp_path).places

    assert (places[:10, 1] == -1).all()
    assert (places[10:, 0] == -1).all()
    assert (places.max(axis=1) >= 0).all()
