"""Robbing the Fed end to end, on what shipped code answers: an image is read exactly when it is alone in its bin."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attacks.evaluation.trial import Trial
from attacks.linear_leakage.bins import DirectionName, ThresholdRule
from attacks.linear_leakage.planted_network import CarrierName, Kind, linear_layer, place_images
from attacks.linear_leakage.robbing_the_fed import Ability, RobbingTheFed, Rounds, _undo_adam
from attacks.threat_model import Needs, ThreatModel, grant
from attacks.victim import Hospital, Protection, send_delta
from federation.config import TrainingConfig
from federation.errors import DataError
from tests.attacks.made_up_worlds import VERBATIM_DB, make_images, make_info, make_view, make_world, play, read_by_round

WORLD = make_world(train=600)
VARIANTS = [
    RobbingTheFed(capacity=64),
    RobbingTheFed(capacity=64, kind="sparse"),
    RobbingTheFed(capacity=64, kind="sparse", direction="random"),
    RobbingTheFed(capacity=64, carrier="mlp"),
    RobbingTheFed(capacity=64, carrier="mlp", direction="random"),
    RobbingTheFed(capacity=64, carrier="mlp", direction="dct"),
    RobbingTheFed(capacity=64, carrier="mlp", direction="learned"),
    RobbingTheFed(capacity=64, carrier="mlp", rule="kde"),
    RobbingTheFed(capacity=64, carrier="mlp", rule="empirical"),
]
READ_DB = 40.0


def plan(optimizer: str, *, epochs: int = 1, batch_size: int = 24, learning_rate: float = 1e-3) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {
            "optimizer": optimizer,
            "learning-rate": learning_rate,
            "batch-size": batch_size,
            "local-epochs": epochs,
        }
    )


@pytest.mark.parametrize("attack", VARIANTS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("synthetic", [0, 40])
def test_image_is_read_verbatim_exactly_when_it_is_alone_in_its_bin(
    attack: RobbingTheFed, synthetic: int, tmp_path: Path
) -> None:
    trial = Trial(batch=24, synthetic=synthetic, protection=Protection(mode="joint" if synthetic else "none"))

    exchange = play(attack, WORLD, trial, tmp_path)

    verbatim = read_by_round(exchange)[:, 0] > VERBATIM_DB
    assert verbatim.tolist() == exchange.alone.tolist()
    assert 0 < verbatim.sum() < 24


@pytest.mark.parametrize("carrier", ["front", "mlp"])
@pytest.mark.parametrize(
    ("ability", "local", "movement"),
    [
        ("calibrated", plan("sgd"), 1e-6),
        ("calibrated", plan("sgd", epochs=3), 1e-6),
        ("adam-inverse", plan("adam"), 1e-6),
        ("adam-linear", plan("adam"), 1e-6),
    ],
    ids=["sgd", "sgd-three-epochs", "adam-inverse", "adam-linear"],
)
def test_adaptive_server_reads_every_image_alone_in_its_bin_from_what_the_shipped_client_trained(
    carrier: CarrierName, ability, local: TrainingConfig, movement: float, tmp_path: Path
) -> None:
    attack = RobbingTheFed(capacity=64, carrier=carrier, ability=ability, movement=movement)

    exchange = play(attack, WORLD, Trial(mode="delta", plan=local, batch=24), tmp_path)

    psnr_db = read_by_round(exchange)[:, 0]
    assert exchange.alone.sum() > 8
    assert np.median(psnr_db[exchange.alone]) > READ_DB
    assert (psnr_db[exchange.alone] > READ_DB).mean() > 0.7
    assert (psnr_db[~exchange.alone] < READ_DB).all()


@pytest.mark.parametrize("epochs", [1, 3])
def test_naive_read_out_of_what_adam_trained_finds_nothing(epochs: int, tmp_path: Path) -> None:
    trial = Trial(mode="delta", plan=plan("adam", epochs=epochs), batch=24)

    exchange = play(RobbingTheFed(capacity=64, carrier="mlp"), WORLD, trial, tmp_path)

    assert exchange.alone.sum() > 8
    assert read_by_round(exchange).max() < READ_DB


def test_inverse_of_adam_undoes_a_step_that_torch_takes() -> None:
    sizes = np.logspace(-14, -4, 60)
    gradient = np.concatenate([sizes, -sizes, [0.0]])
    parameter = torch.nn.Parameter(torch.zeros(len(gradient), dtype=torch.float64))
    parameter.grad = torch.from_numpy(gradient)

    torch.optim.Adam([parameter], lr=3e-3).step()

    np.testing.assert_allclose(_undo_adam(-parameter.detach().numpy(), 3e-3), gradient, rtol=1e-6)


def test_inverse_of_adam_stays_finite_where_a_step_has_saturated() -> None:
    found = _undo_adam(np.array([1e-3, -1e-3, 2e-3]), 1e-3)

    assert np.isfinite(found).all()
    assert (np.sign(found) == [1, -1, 1]).all()


def test_inverse_of_adam_reads_gradients_far_too_large_for_adam_to_be_linear(tmp_path: Path) -> None:
    trial = Trial(mode="delta", plan=plan("adam"), batch=24)
    inverse, linear = (
        play(
            RobbingTheFed(capacity=64, carrier="mlp", ability=ability, movement=3e-4),
            WORLD,
            trial,
            tmp_path,
        )
        for ability in ("adam-inverse", "adam-linear")
    )

    medians = [np.median(read_by_round(exchange)[exchange.alone, 0]) for exchange in (inverse, linear)]

    assert medians[0] > READ_DB
    assert medians[1] < medians[0] - 10


@pytest.mark.parametrize("carrier", ["front", "mlp"])
@pytest.mark.parametrize(("ability", "optimizer"), [("calibrated", "sgd"), ("adam-linear", "adam")])
@pytest.mark.parametrize(("movement", "learning_rate"), [(1e-5, 1e-3), (1e-4, 1e-2)])
def test_one_image_moves_its_bin_in_a_step_by_about_the_movement_that_is_wanted(
    carrier: CarrierName, ability, optimizer: str, movement: float, learning_rate: float
) -> None:
    view, local = make_view(), plan(optimizer, learning_rate=learning_rate)
    attack = RobbingTheFed(capacity=64, carrier=carrier, ability=ability, movement=movement)
    known = grant(replace(view, hyperparameters=local), attack.needs, ThreatModel())
    own = make_images(24, 99)
    campaign = attack.begin(known)
    plant = campaign.craft(0, 0)

    sent = send_delta(
        plant.network, Hospital(images=own, info=make_info(), plan=local, protection=Protection()), seed=0
    )

    bias = sent["bins.bias" if carrier == "front" else "hidden.bias"].double().numpy()
    homes = plant.place(torch.from_numpy(own.images.astype(np.float32) / 255))
    alone = np.flatnonzero(np.bincount(homes, minlength=64) == 1)
    moved = np.abs(np.diff(bias, append=0.0))[alone]
    assert movement / 3 < np.median(moved) < movement * 3


def test_server_that_calibrates_must_know_how_hospitals_train() -> None:
    view = grant(make_view(), Needs(knows=frozenset({"auxiliary"})), ThreatModel())

    with pytest.raises(DataError, match="Expected the hyperparameters"):
        RobbingTheFed(capacity=8, carrier="mlp", ability="calibrated").begin(view).craft(0, 0)


def test_server_without_images_of_its_own_cannot_plant() -> None:
    view = grant(make_view(), Needs(), ThreatModel())

    with pytest.raises(DataError, match="Expected auxiliary images"):
        RobbingTheFed(capacity=8).begin(view).craft(0, 0)


def test_plant_places_images_by_its_own_layer_and_all_hospitals_are_sent_the_same() -> None:
    campaign = RobbingTheFed(capacity=32, carrier="mlp").begin(make_view())
    images = torch.from_numpy(make_view(seed=5).require_auxiliary())

    first, second = campaign.craft(0, 0), campaign.craft(1, 0)

    assert first.network is second.network
    assert first.place(images).tolist() == place_images(linear_layer(first.network, "hidden"), images).tolist()


@pytest.mark.parametrize("carrier", ["front", "mlp"])
def test_candidates_come_in_the_shape_of_the_images_one_a_bin(carrier: CarrierName, tmp_path: Path) -> None:
    world = make_world(train=100, shape=(3, 4, 6))

    exchange = play(RobbingTheFed(capacity=40, carrier=carrier), world, Trial(batch=8), tmp_path)

    assert exchange.candidates.shape == (40, 3, 4, 6)
    assert (read_by_round(exchange)[exchange.alone] > VERBATIM_DB).all()
    assert exchange.alone.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "sparse", "carrier": "mlp"}, "sparse bins in front"),
        ({"kind": "sparse", "ability": "calibrated"}, "read plainly"),
        ({"together": "difference"}, "rounds=2"),
        ({"together": "difference", "rounds": 3}, "rounds=2"),
        ({"together": "classes", "rounds": 3}, "carrier='mlp'"),
        ({"together": "classes", "carrier": "mlp"}, "rounds=1 >= 2"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        RobbingTheFed(**settings)


def test_names_tell_all_variants_apart() -> None:
    kinds: list[Kind] = ["cumulative", "sparse"]
    directions: list[DirectionName] = ["mean", "dct", "random", "learned"]
    rules: list[ThresholdRule] = ["gaussian", "kde"]
    abilities: list[tuple[Ability, float]] = [
        ("plain", 1e-7),
        ("calibrated", 1e-7),
        ("calibrated", 1e-6),
        ("adam-linear", 1e-7),
    ]
    ways: list[tuple[int, Rounds]] = [(1, "fresh"), (2, "fresh"), (3, "fresh"), (2, "difference")]
    variants = [
        RobbingTheFed(
            capacity=capacity,
            kind=kind,
            direction=direction,
            rule=rule,
            ability=ability,
            movement=movement,
            rounds=rounds,
            together=together,
        )
        for capacity, kind, direction, rule in itertools.product((64, 128), kinds, directions, rules)
        for ability, movement in abilities
        for rounds, together in ways
        if kind == "cumulative" or ability == "plain"
    ]

    assert len({attack.name for attack in variants}) == len(variants)
    assert RobbingTheFed().name == "rtf-cumulative-front-k1024"


@pytest.mark.parametrize(
    ("attack", "source"),
    [
        (RobbingTheFed(), "arXiv 2110.13057, section 4"),
        (RobbingTheFed(rounds=2), "ours, on 2110.13057"),
        (RobbingTheFed(ability="calibrated"), "ours, on 2110.13057"),
    ],
)
def test_source_is_the_paper_for_what_the_paper_does_and_else_ours(attack: RobbingTheFed, source: str) -> None:
    assert attack.source == source
