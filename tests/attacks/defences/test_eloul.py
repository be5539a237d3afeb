"""The loss is the mean squared error, its gradient is autograd's, and a batch has one label."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from attacks.defences.eloul import Eloul
from federation.datasets.image_set import Task
from tests.attacks.defences.made_up_steps import CLASSES, gradient_of, make_network, make_step


@pytest.mark.parametrize("task", list(Task))
def test_gradient_is_that_of_the_mean_squared_error(task: Task) -> None:
    network = make_network()
    step = make_step(network, task=task)
    wanted = step.labels if task is Task.MULTILABEL else torch.eye(CLASSES)[step.labels]
    loss = functional.mse_loss(network(step.images), wanted)

    found = gradient_of(step, Eloul())

    for name, expected in zip(found, torch.autograd.grad(loss, list(network.parameters())), strict=True):
        torch.testing.assert_close(found[name], expected)


def test_losses_are_one_per_image() -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 3.0]])

    assert Eloul().losses(logits, torch.tensor([0, 0]), Task.MULTICLASS).tolist() == [0.0, 5.0]


def test_batch_has_one_label_and_no_image_twice() -> None:
    labels = np.random.default_rng(0).integers(0, 3, size=300)

    for seed in range(20):
        chosen = Eloul().choose(labels, 64, np.random.default_rng(seed))
        assert len(chosen) == len(set(chosen.tolist())) == 64
        assert len(set(labels[chosen])) == 1


def test_every_label_with_enough_images_is_drawn_and_no_other() -> None:
    labels = np.repeat([0, 1, 2], [50, 100, 64])

    drawn = {int(labels[Eloul().choose(labels, 64, np.random.default_rng(seed))[0]]) for seed in range(40)}

    assert drawn == {1, 2}


def test_every_image_of_the_label_can_be_drawn() -> None:
    labels = np.zeros(20, np.int64)

    drawn = {int(index) for seed in range(60) for index in Eloul().choose(labels, 5, np.random.default_rng(seed))}

    assert drawn == set(range(20))


def test_rows_of_several_labels_agree() -> None:
    labels = np.array([[0, 1], [1, 1], [0, 1], [0, 0], [0, 1]])

    assert set(Eloul().choose(labels, 3, np.random.default_rng(0)).tolist()) == {0, 2, 4}


def test_batch_is_all_of_the_most_frequent_label_where_none_has_enough() -> None:
    labels = np.array([0, 0, 1, 1, 1, 2])

    assert set(Eloul().choose(labels, 64, np.random.default_rng(0)).tolist()) == {2, 3, 4}


def test_equal_seeds_choose_equal_batches() -> None:
    labels = np.random.default_rng(0).integers(0, 3, size=300)

    first, again, other = (Eloul().choose(labels, 64, np.random.default_rng(seed)) for seed in (1, 1, 2))

    assert first.tolist() == again.tolist() != other.tolist()
