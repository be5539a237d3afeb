"""What leaves a hospital after local training is what the shipped client makes of it: masked, clipped and noised."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from attacks.defences.secure_aggregation import sum_updates
from attacks.victim import Protection, publish_cache, send_delta
from federation.config import PrivacyConfig
from federation.datasets.image_set import ImageSet
from federation.errors import SiteError
from federation.parameters import Parameters
from tests.attacks.made_up_hospitals import (
    INFO,
    assert_close,
    make_hospital,
    make_network,
    make_plan,
    make_privacy,
    make_synthetic,
    norm_of,
    tensors_of,
)
from tests.attacks.made_up_worlds import make_images

NETWORK = make_network()
REAL, CACHED = make_images(7, 1), make_images(9, 50)
TINY = 1e-6


def descend(optimizer: str, rate: float, batches: list[ImageSet]) -> Parameters:
    """Return parameters before minus after one step of torch's own optimizer on the mean loss of each batch."""
    network = copy.deepcopy(NETWORK)
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    steps = kind(network.parameters(), lr=rate)
    for batch in batches:
        pixels, labels = tensors_of(batch)
        steps.zero_grad()
        functional.cross_entropy(network(pixels), labels).backward()
        steps.step()
    after = network.state_dict()
    return {name: (value - after[name]).detach() for name, value in NETWORK.state_dict().items()}


def protected(privacy: PrivacyConfig, noise_multiplier: float) -> Protection:
    return Protection(privacy=privacy, noise_multiplier=noise_multiplier)


def differ(left: Parameters, right: Parameters) -> bool:
    return any(not torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 0.1), ("adam", 1e-3)])
@pytest.mark.parametrize("epochs", [1, 3])
def test_delta_is_what_was_received_minus_what_was_trained(optimizer: str, rate: float, epochs: int) -> None:
    hospital = make_hospital(plan=make_plan(optimizer=optimizer, learning_rate=rate, local_epochs=epochs))

    sent = send_delta(NETWORK, hospital, seed=0)

    assert_close(sent, descend(optimizer, rate, [REAL] * epochs), relative=1e-3)


@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 0.1), ("adam", 1e-3)])
def test_sequential_masking_takes_a_step_on_real_and_then_one_on_synthetic_images(
    optimizer: str, rate: float, tmp_path: Path
) -> None:
    hospital = make_hospital(
        plan=make_plan(optimizer=optimizer, learning_rate=rate),
        protection=Protection(mode="sequential"),
        synthetic=make_synthetic(tmp_path),
    )

    sent = send_delta(NETWORK, hospital, seed=0)

    assert_close(sent, descend(optimizer, rate, [REAL, CACHED]), relative=1e-3)


@pytest.mark.parametrize("mode", ["joint", "interleaved"])
def test_joint_masking_takes_one_step_on_the_union(mode, tmp_path: Path) -> None:
    hospital = make_hospital(protection=Protection(mode=mode), synthetic=make_synthetic(tmp_path))

    sent = send_delta(NETWORK, hospital, seed=0)

    assert_close(sent, descend("sgd", 0.1, [ImageSet.concatenate([REAL, CACHED])]))


def test_without_masking_a_cache_takes_no_part(tmp_path: Path) -> None:
    with_cache = make_hospital(synthetic=make_synthetic(tmp_path))

    sent = send_delta(NETWORK, with_cache, seed=0)

    assert_close(sent, descend("sgd", 0.1, [REAL]))


@pytest.mark.parametrize("mechanism", ["none", "dp-sgd", "update-gaussian"])
def test_nothing_but_the_networks_parameters_is_sent_and_the_network_stays_as_it_was(mechanism: str) -> None:
    network = make_network()
    before = copy.deepcopy(network.state_dict())
    privacy = None if mechanism == "none" else make_privacy(mechanism)

    sent = send_delta(network, make_hospital(protection=Protection(privacy=privacy, noise_multiplier=1.0)), seed=0)

    assert {name: value.shape for name, value in sent.items()} == {
        name: value.shape for name, value in network.named_parameters()
    }
    assert not differ(network.state_dict(), before)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_order_of_images_follows_the_seed() -> None:
    hospital = make_hospital(plan=make_plan(batch_size=2))

    first, second, again = (send_delta(NETWORK, hospital, seed=seed) for seed in (0, 1, 0))

    assert differ(first, second)
    assert not differ(first, again)


@pytest.mark.parametrize("mechanism", ["dp-sgd", "update-gaussian"])
def test_noise_follows_the_seed_and_nothing_else_does(mechanism: str) -> None:
    hospital = make_hospital(protection=protected(make_privacy(mechanism), 1.0))

    first, second, again = (send_delta(NETWORK, hospital, seed=seed) for seed in (0, 1, 0))

    assert all(not torch.equal(first[name], second[name]) for name in first)
    assert not differ(first, again)


def test_dp_sgd_clips_every_images_gradient(tmp_path: Path) -> None:
    clip_norm = 0.01
    hospital = make_hospital(protection=protected(make_privacy("dp-sgd", **{"clip-norm": clip_norm}), TINY))

    sent = send_delta(NETWORK, hospital, seed=0)

    pixels, labels = tensors_of(REAL)
    total = {name: torch.zeros_like(value) for name, value in NETWORK.named_parameters()}
    for pixel, label in zip(pixels.split(1), labels.split(1), strict=True):
        loss = functional.cross_entropy(NETWORK(pixel), label)
        own = dict(zip(total, torch.autograd.grad(loss, list(NETWORK.parameters())), strict=True))
        factor = min(1.0, clip_norm / norm_of(own))
        total = {name: value + factor * own[name] for name, value in total.items()}
    assert norm_of(descend("sgd", 0.1, [REAL])) > 0.1 * clip_norm
    assert_close(sent, total, scale=0.1 / 7, relative=1e-3)


def test_noise_of_dp_sgd_has_the_deviation_that_its_multiplier_states() -> None:
    network = make_network(hidden_units=200)
    hospital = make_hospital(protection=protected(make_privacy("dp-sgd"), 50.0))

    first, second = (send_delta(network, hospital, seed=seed) for seed in (0, 1))

    count = sum(value.numel() for value in first.values())
    noise = norm_of({name: first[name] - second[name] for name in first}) / math.sqrt(2 * count)
    assert noise == pytest.approx(0.1 * 50.0 / 7, rel=0.05)


def test_update_gaussian_clips_the_whole_update() -> None:
    clip_norm = 1e-3
    privacy = make_privacy("update-gaussian", **{"clip-norm": clip_norm})

    sent = send_delta(NETWORK, make_hospital(protection=protected(privacy, TINY)), seed=0)

    plain = descend("sgd", 0.1, [REAL])
    assert norm_of(plain) > 2 * clip_norm
    assert_close(sent, plain, scale=clip_norm / norm_of(plain), relative=1e-3)


def test_noise_of_update_gaussian_has_the_deviation_that_its_multiplier_states() -> None:
    network = make_network(hidden_units=200)
    hospital = make_hospital(protection=protected(make_privacy("update-gaussian", **{"clip-norm": 2.0}), 3.0))

    first, second = (send_delta(network, hospital, seed=seed) for seed in (0, 1))

    count = sum(value.numel() for value in first.values())
    noise = norm_of({name: first[name] - second[name] for name in first}) / math.sqrt(2 * count)
    assert noise == pytest.approx(3.0 * 2.0, rel=0.05)


@pytest.mark.parametrize("mechanism", ["dp-sgd", "update-gaussian"])
def test_masking_and_a_mechanism_go_together(mechanism: str, tmp_path: Path) -> None:
    protection = replace(protected(make_privacy(mechanism, **{"clip-norm": 10.0}), TINY), mode="joint")
    hospital = make_hospital(protection=protection, synthetic=make_synthetic(tmp_path))

    sent = send_delta(NETWORK, hospital, seed=0)

    assert_close(sent, descend("sgd", 0.1, [ImageSet.concatenate([REAL, CACHED])]), relative=2e-2)


def test_network_that_the_client_refuses_is_refused(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Linear(5, INFO.classes))
    hospital = make_hospital(protection=Protection(mode="joint"), synthetic=make_synthetic(tmp_path))

    with pytest.raises(SiteError, match="batch"):
        send_delta(network, hospital, seed=0)


def test_published_cache_holds_the_images_and_labels_given(tmp_path: Path) -> None:
    cache = publish_cache(tmp_path / "cache", CACHED, INFO)

    assert np.array_equal(cache.take(np.arange(9)), CACHED.images)
    assert cache.labels.tolist() == CACHED.labels.tolist()


def test_sum_of_updates_counts_a_missing_name_as_zero_and_leaves_its_parts_alone() -> None:
    left, right = {"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([10.0, 20.0]), "b": torch.tensor([5.0])}

    total = sum_updates([left, right, left])

    assert {name: value.tolist() for name, value in total.items()} == {"a": [12.0, 24.0], "b": [5.0]}
    assert left["a"].tolist() == [1.0, 2.0]
