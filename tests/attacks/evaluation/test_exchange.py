"""Who is attacked, what the server hears, and who shares a candidate, against brute force."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attacks.evaluation.exchange import Exchange
from attacks.evaluation.trial import Mode, Refresh, Trial
from attacks.threat_model import Needs
from attacks.victim import GradientAnswers, Hospital, Protection, send_delta
from attacks.world import as_floats
from federation.config import TrainingConfig
from federation.errors import DataError
from federation.parameters import Parameters
from tests.attacks.evaluation.made_up_attacks import Recall, equal, make_square_world
from tests.attacks.made_up_worlds import play, set_stage

WORLD = make_square_world(train=200)
JOINT = Protection(mode="joint")
SGD = TrainingConfig(optimizer="sgd", learning_rate=0.1, batch_size=100)
PLAIN = Trial(batch=6, batches=3, plan=SGD)
MASKED = replace(PLAIN, synthetic=25, protection=JOINT)
SUMS = Needs(sees="aggregate")


def answer_of(attack: Recall, places: list[int], *, client: int = 0, number: int = 0) -> Parameters:
    """Return the gradient that a hospital with the images at `places` answers its network with."""
    own = WORLD.real.take(places)
    hospital = Hospital(images=own, info=WORLD.info, plan=SGD, protection=Protection())
    return GradientAnswers(attack.networks[client, number], WORLD.info, Protection()).send(hospital, seed=0)


def total(parts: list[Parameters]) -> Parameters:
    return {name: torch.stack([part[name] for part in parts]).sum(dim=0) for name in parts[0]}


def lookup(exchange: Exchange) -> list[int]:
    """Return the places in the training split of the exchange's synthetic images."""
    known = {image.tobytes(): place for place, image in enumerate(as_floats(WORLD.real))}
    return [known[image.tobytes()] for image in exchange.synthetic]


@pytest.mark.parametrize("trial", [PLAIN, MASKED], ids=["plain", "masked"])
def test_batches_of_one_seed_share_no_image_and_differ_from_another_seeds(trial: Trial, tmp_path: Path) -> None:
    stage = set_stage(Recall(world=WORLD), WORLD, trial, tmp_path / "a")
    other = play(Recall(world=WORLD), WORLD, trial, tmp_path / "b", seed=1)

    exchanges = [stage.play(batch) for batch in range(3)]

    victims = np.concatenate([exchange.victims for exchange in exchanges])
    assert len(set(victims.tolist())) == 18
    assert set(victims.tolist()).isdisjoint(lookup(exchanges[0]))
    assert exchanges[0].victims.tolist() != other.victims.tolist()


def test_real_images_are_those_of_the_victims_in_their_order(tmp_path: Path) -> None:
    exchange = play(Recall(world=WORLD), WORLD, PLAIN, tmp_path)

    assert exchange.real.tolist() == as_floats(WORLD.real)[exchange.victims].tolist()
    assert exchange.places[:, 0].tolist() == exchange.victims.tolist()
    assert exchange.synthetic.shape == (0, *exchange.real.shape[1:])


@pytest.mark.parametrize("bins", [3, 11, 40])
@pytest.mark.parametrize("trial", [PLAIN, MASKED], ids=["plain", "masked"])
def test_who_is_alone_and_which_candidates_show_whom_agrees_with_brute_force(
    bins: int, trial: Trial, tmp_path: Path
) -> None:
    attack = Recall(world=WORLD, place=lambda homes, _: np.where(homes % 5 == 0, -1, homes % bins))

    exchange = play(attack, WORLD, trial, tmp_path)

    def home(place: int) -> int:
        return -1 if place % 5 == 0 else place % bins

    real = [home(place) for place in exchange.victims.tolist()]
    others = [home(place) for place in lookup(exchange)]
    isolated = [(real + others).count(candidate) == 1 for candidate in range(200)]
    assert len(others) == trial.synthetic
    assert exchange.truth.isolated is not None
    assert exchange.truth.shows_real is not None
    assert exchange.truth.isolated.tolist() == isolated
    assert exchange.truth.shows_real.tolist() == [
        isolated[candidate] and real.count(candidate) == 1 for candidate in range(200)
    ]
    assert exchange.alone.tolist() == [place != -1 and (real + others).count(place) == 1 for place in real]


def test_image_without_a_place_is_not_alone_though_the_last_candidate_holds_one_image(tmp_path: Path) -> None:
    victims = play(Recall(world=WORLD), WORLD, PLAIN, tmp_path / "a").victims
    attack = Recall(
        world=WORLD,
        place=lambda homes, _: np.select([homes == victims[0], homes == victims[1]], [199, -1], homes % 100),
    )

    exchange = play(attack, WORLD, PLAIN, tmp_path / "b")

    assert exchange.places[:2, 0].tolist() == [199, -1]
    assert exchange.alone[:2].tolist() == [True, False]


@pytest.mark.parametrize("mode", ["gradient", "delta"])
def test_server_hears_what_the_hospital_answers_its_own_network(mode: Mode, tmp_path: Path) -> None:
    attack = Recall(world=WORLD)

    exchange = play(attack, WORLD, replace(PLAIN, mode=mode), tmp_path)

    [[heard]] = attack.heard
    hospital = Hospital(images=WORLD.real.take(exchange.victims), info=WORLD.info, plan=SGD, protection=Protection())
    expected = answer_of(attack, exchange.victims.tolist())
    if mode == "delta":
        expected = send_delta(attack.networks[0, 0], hospital, seed=0)
    assert equal(heard, expected)


@pytest.mark.parametrize("renewed", [False, True])
def test_hospital_has_the_same_images_in_every_round_unless_they_are_renewed(renewed: bool, tmp_path: Path) -> None:
    attack = Recall(world=WORLD, needs=Needs(rounds=3))

    exchange = play(attack, WORLD, replace(PLAIN, renewed=renewed), tmp_path)

    places, [heard] = exchange.victims.tolist(), attack.heard
    assert len(places) == (18 if renewed else 6)
    for number in range(3):
        own = places[6 * number : 6 * (number + 1)] if renewed else places
        assert equal(heard[number], answer_of(attack, own, number=number))
        took_part = [place if place in own else -1 for place in places]
        assert exchange.places[:, number].tolist() == took_part


def test_over_several_rounds_nobody_counts_as_alone(tmp_path: Path) -> None:
    exchange = play(Recall(world=WORLD, needs=Needs(rounds=2)), WORLD, PLAIN, tmp_path)

    assert not exchange.alone.any()
    assert (exchange.truth.isolated, exchange.truth.shows_real) == (None, None)


def test_server_hears_the_sum_of_all_hospitals_each_of_which_has_images_of_its_own(tmp_path: Path) -> None:
    attack = Recall(world=WORLD, needs=SUMS)

    exchange = play(attack, WORLD, replace(PLAIN, clients=3), tmp_path)

    [[heard]] = attack.heard
    parts = [
        answer_of(attack, exchange.victims[6 * client : 6 * (client + 1)].tolist(), client=client)
        for client in range(3)
    ]
    assert len(set(exchange.victims.tolist())) == 18
    assert equal(heard, total(parts))
    assert exchange.places[:, 0].tolist() == exchange.victims.tolist()


def test_hospitals_of_a_sum_with_renewed_images_share_none_over_rounds(tmp_path: Path) -> None:
    attack = Recall(world=WORLD, needs=Needs(sees="aggregate", rounds=2))

    exchange = play(attack, WORLD, replace(PLAIN, clients=2, renewed=True), tmp_path)

    [heard] = attack.heard
    quarters = exchange.victims.reshape(4, 6).tolist()
    for number in range(2):
        parts = [answer_of(attack, quarters[2 * client + number], client=client, number=number) for client in range(2)]
        assert equal(heard[number], total(parts))


def test_attack_on_single_updates_is_refused_a_sum(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Expected an attack on the sum of 2 hospitals, found recall"):
        play(Recall(world=WORLD), WORLD, replace(PLAIN, clients=2), tmp_path)


@pytest.mark.parametrize(
    ("refresh", "same"),
    [("none", [True, True]), ("subset", [False, False]), ("augment", [True, False])],
)
def test_synthetic_images_of_the_next_round_are_the_same_others_or_changed(
    refresh: Refresh, same: list[bool], tmp_path: Path
) -> None:
    attack = Recall(world=WORLD, needs=Needs(rounds=2))
    stage = set_stage(attack, WORLD, replace(MASKED, refresh=refresh), tmp_path)

    first, second = (stage._synthetic(0, number) for number in range(2))

    assert first is not None
    assert second is not None
    assert (len(first), len(second)) == (25, 25)
    assert np.array_equal(first.chosen, second.chosen) is same[0]
    changes = [
        images.draw_variation(3, torch.Generator().manual_seed(number)).gains
        for number, images in enumerate((first, second))
    ]
    assert (changes[0] is None and changes[1] is None) is (refresh != "augment")


def test_varied_images_are_refused_where_local_training_changes_what_is_compared(tmp_path: Path) -> None:
    attack = Recall(world=WORLD, needs=Needs(rounds=2))

    with pytest.raises(DataError, match="mode='gradient' with refresh='augment'"):
        set_stage(attack, WORLD, replace(MASKED, refresh="augment", mode="delta"), tmp_path)


def test_subset_is_drawn_from_twice_as_many_images_without_repetition(tmp_path: Path) -> None:
    stage = set_stage(Recall(world=WORLD), WORLD, replace(MASKED, refresh="subset"), tmp_path)

    drawn = [stage._synthetic(batch, 0) for batch in range(3)]

    for images in drawn:
        assert images is not None
        assert len(images.cache) == 50
        assert len(set(images.chosen.tolist())) == 25


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        (replace(PLAIN, batches=34), "Expected 1 <= 204 real images to attack <= 200"),
        (replace(MASKED, synthetic=183), "Expected 183 synthetic images, found 182"),
        (replace(MASKED, synthetic=92, refresh="subset"), "Expected 184 synthetic images, found 182"),
    ],
)
def test_too_few_images_are_refused_before_anything_is_sent(trial: Trial, message: str, tmp_path: Path) -> None:
    attack = Recall(world=WORLD)

    with pytest.raises(DataError, match=message):
        set_stage(attack, WORLD, trial, tmp_path)

    assert attack.heard == []
