"""A hospital's gradient is that of the weighted losses which its mode of masking states, and nothing else is sent."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from aegis_cache.store.cache import Cache
from attacks.defences.defence import Defence, LocalStep
from attacks.victim import GradientAnswers, Hospital, Protection, send_delta
from client_app.masking.synthetic import SyntheticImages
from federation.config.masking_table import MaskingMode
from federation.datasets.image_set import ImageSet, Task
from federation.metrics import losses_of
from federation.parameters import Parameters
from tests.attacks.made_up_hospitals import (
    INFO,
    assert_close,
    gradient_of,
    make_hospital,
    make_network,
    make_plan,
    make_synthetic,
)
from tests.attacks.made_up_worlds import make_images

NETWORK = make_network()
REAL, CACHED = make_images(7, 1), make_images(9, 50)
JOINT = Protection(mode="joint")


class Scale(Defence):
    """Multiplies a gradient and then adds one to it: two of them show their order."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def protect(self, gradient: Parameters, step: LocalStep) -> Parameters:
        return {name: value * self.factor + 1 for name, value in gradient.items()}


class Doubled(Defence):
    """Trains on twice the usual loss."""

    def errors(self, logits: Tensor, labels: Tensor, task: Task) -> Tensor:
        return 2 * losses_of(logits, labels, task)


def answer(hospital: Hospital, protection: Protection, seed: int = 0, network: nn.Module = NETWORK) -> Parameters:
    return GradientAnswers(network, INFO, protection).send(hospital, seed=seed)


@pytest.mark.parametrize(
    ("mode", "real_weight", "synthetic_weight"),
    [
        ("sequential", 1 / 7, 1 / 9),
        ("lambda", 1 / 16, 1 / 16),
        ("joint", 1 / 16, 1 / 16),
        ("interleaved", 1 / 16, 1 / 16),
    ],
)
def test_masked_gradient_is_that_of_the_weighted_losses_of_all_images(
    mode: MaskingMode, real_weight: float, synthetic_weight: float, tmp_path: Path
) -> None:
    hospital = make_hospital(synthetic=make_synthetic(tmp_path))

    sent = answer(hospital, Protection(mode=mode))

    assert_close(sent, gradient_of(NETWORK, [(real_weight, REAL), (synthetic_weight, CACHED)]))


def test_unmasked_gradient_is_that_of_the_mean_loss(tmp_path: Path) -> None:
    masked_not = make_hospital(synthetic=make_synthetic(tmp_path))

    for hospital in (make_hospital(), masked_not):
        assert_close(answer(hospital, Protection()), gradient_of(NETWORK, [(1 / 7, REAL)]))


def test_many_images_are_summed_in_pieces_without_losing_any(tmp_path: Path) -> None:
    own, cached = make_images(131, 2), make_images(260, 50)
    hospital = make_hospital(images=own, synthetic=make_synthetic(tmp_path, 260))

    sent = answer(hospital, JOINT)

    assert_close(sent, gradient_of(NETWORK, [(1 / 391, own), (1 / 391, cached)]))


@pytest.mark.parametrize("mode", ["none", "joint", "interleaved"])
def test_gradient_is_what_one_step_of_the_shipped_client_sends_over_its_learning_rate(
    mode: MaskingMode, tmp_path: Path
) -> None:
    synthetic = None if mode == "none" else make_synthetic(tmp_path)
    hospital = make_hospital(protection=Protection(mode=mode), synthetic=synthetic, plan=make_plan(learning_rate=0.5))

    delta = send_delta(NETWORK, hospital, seed=3)

    assert_close(delta, answer(hospital, Protection(mode=mode)), scale=0.5)


def test_several_labels_are_trained_on_as_such() -> None:
    info = replace(INFO, task=Task.MULTILABEL)
    labels = np.random.default_rng(0).integers(2, size=(7, INFO.classes))
    images = ImageSet(images=REAL.images, labels=labels)

    sent = GradientAnswers(NETWORK, info, Protection()).send(replace(make_hospital(images=images), info=info), seed=0)

    pixels = torch.from_numpy(images.images).float() / 255
    loss = functional.binary_cross_entropy_with_logits(NETWORK(pixels), torch.from_numpy(labels).float())
    names = [name for name, _ in NETWORK.named_parameters()]
    expected = torch.autograd.grad(loss, list(NETWORK.parameters()))
    assert_close(sent, dict(zip(names, expected, strict=True)))


def test_kept_synthetic_gradient_serves_the_next_batch_and_is_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, other = GradientAnswers(NETWORK, INFO, JOINT), make_images(5, 8)
    synthetic, taken, take = make_synthetic(tmp_path), [], Cache.take

    def count_and_take(cache: Cache, places: NDArray[np.int64]) -> NDArray[np.uint8]:
        taken.append(len(places))
        return take(cache, places)

    monkeypatch.setattr(Cache, "take", count_and_take)

    first = answers.send(make_hospital(synthetic=synthetic), seed=0)
    second = answers.send(make_hospital(images=other, synthetic=synthetic), seed=1)

    assert taken == [9]
    assert_close(first, gradient_of(NETWORK, [(1 / 16, REAL), (1 / 16, CACHED)]))
    assert_close(second, gradient_of(NETWORK, [(1 / 14, other), (1 / 14, CACHED)]))


def test_kept_synthetic_gradient_is_not_used_for_another_subset(tmp_path: Path) -> None:
    whole = make_synthetic(tmp_path)
    answers = GradientAnswers(NETWORK, INFO, JOINT)
    subsets = [np.array([0, 1, 2]), np.array([0, 1, 3])]

    sent = [
        answers.send(make_hospital(synthetic=SyntheticImages(cache=whole.cache, chosen=chosen)), seed=0)
        for chosen in subsets
    ]

    for found, chosen in zip(sent, subsets, strict=True):
        assert_close(found, gradient_of(NETWORK, [(1 / 10, REAL), (1 / 10, CACHED.take(chosen))]))


def test_kept_synthetic_gradient_is_not_used_for_another_cache(tmp_path: Path) -> None:
    first, second = make_synthetic(tmp_path / "a"), make_synthetic(tmp_path / "b", seed=51)
    answers = GradientAnswers(NETWORK, INFO, JOINT)

    sent = [answers.send(make_hospital(synthetic=synthetic), seed=0) for synthetic in (first, second)]

    for found, seed in zip(sent, (50, 51), strict=True):
        assert_close(found, gradient_of(NETWORK, [(1 / 16, REAL), (1 / 16, make_images(9, seed))]))


def test_varied_synthetic_images_add_another_gradient_for_each_seed(tmp_path: Path) -> None:
    hospital = make_hospital(synthetic=make_synthetic(tmp_path, varied=True))
    answers = GradientAnswers(NETWORK, INFO, JOINT)

    first, second, again = (answers.send(hospital, seed=seed) for seed in (0, 1, 0))

    plain = gradient_of(NETWORK, [(1 / 16, REAL), (1 / 16, CACHED)])
    assert all(torch.equal(first[name], again[name]) for name in first)
    for other in (second, plain):
        assert not torch.allclose(first["hidden.weight"], other["hidden.weight"], rtol=1e-3)


def test_nothing_but_gradients_of_parameters_is_sent() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Linear(5, INFO.classes))

    sent = answer(make_hospital(), Protection(), network=network)

    assert {name: value.shape for name, value in sent.items()} == {
        name: value.shape for name, value in network.named_parameters()
    }


def test_parameter_that_no_image_uses_is_sent_as_zeros() -> None:
    network = make_network()
    network.register_parameter("idle", nn.Parameter(torch.ones(3)))

    sent = answer(make_hospital(), Protection(), network=network)

    assert sent["idle"].tolist() == [0.0, 0.0, 0.0]


def test_network_that_was_sent_stays_as_it_was_and_answers_stay_at_its_parameters() -> None:
    network = make_network()
    before = copy.deepcopy(network.state_dict())
    answers = GradientAnswers(network, INFO, Protection())

    first = answers.send(make_hospital(), seed=0)
    untouched = all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    network.load_state_dict(make_network(seed=9).state_dict())
    second = answers.send(make_hospital(), seed=0)

    assert untouched
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_answer_does_not_change_when_another_is_computed() -> None:
    answers = GradientAnswers(NETWORK, INFO, Protection())
    first = answers.send(make_hospital(), seed=0)
    kept = {name: value.clone() for name, value in first.items()}

    answers.send(make_hospital(images=make_images(5, 8)), seed=1)

    assert all(torch.equal(first[name], kept[name]) for name in first)


def test_baseline_defences_change_the_whole_gradient_in_their_order(tmp_path: Path) -> None:
    protection = Protection(mode="joint", baselines=(Scale(2.0), Scale(3.0)))
    hospital = make_hospital(synthetic=make_synthetic(tmp_path))

    sent = answer(hospital, protection)

    plain = gradient_of(NETWORK, [(1 / 16, REAL), (1 / 16, CACHED)])
    assert_close(sent, {name: 3 * (2 * value + 1) + 1 for name, value in plain.items()})


def test_baseline_defence_that_changes_the_loss_does_so_for_real_and_synthetic_images(tmp_path: Path) -> None:
    hospital = make_hospital(synthetic=make_synthetic(tmp_path))

    sent = answer(hospital, Protection(mode="joint", baselines=(Doubled(),)))

    assert_close(sent, gradient_of(NETWORK, [(2 / 16, REAL), (2 / 16, CACHED)]))
