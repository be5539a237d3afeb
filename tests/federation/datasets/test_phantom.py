"""Phantom images: reproducible, balanced, learnable, and harder where asked to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from federation.config import DataConfig
from federation.datasets import Task
from federation.datasets.phantom import CLASS_NAMES, load_phantom


def everything(dataset):
    return np.concatenate([split.images for split in (dataset.train, dataset.validation, dataset.test)])


def test_phantom_images_are_grey_bytes_of_28_pixels_in_every_split():
    dataset = load_phantom(DataConfig(phantom_examples=200), seed=0)

    assert [len(split) for split in (dataset.train, dataset.validation, dataset.test)] == [140, 20, 40]
    assert dataset.train.images.dtype == np.uint8
    assert dataset.train.images.shape == (140, 1, 28, 28)
    assert dataset.train.labels.dtype == np.int64
    assert (dataset.info.channels, dataset.info.height, dataset.info.width) == (1, 28, 28)
    assert dataset.info.task is Task.MULTICLASS


@pytest.mark.parametrize("classes", [2, 4, 8])
def test_phantom_classes_are_named_and_equally_frequent_in_every_split(classes):
    dataset = load_phantom(DataConfig(phantom_examples=400, phantom_classes=classes), seed=0)

    assert dataset.info.class_names == CLASS_NAMES[:classes]
    for split in (dataset.train, dataset.validation, dataset.test):
        frequency = np.bincount(split.labels, minlength=classes)
        assert frequency.max() - frequency.min() <= 2


def test_the_same_seed_draws_the_same_phantoms_and_another_seed_others():
    data = DataConfig(phantom_examples=120)

    first, again, other = (load_phantom(data, seed=seed) for seed in (3, 3, 4))

    np.testing.assert_array_equal(everything(first), everything(again))
    np.testing.assert_array_equal(first.test.labels, again.test.labels)
    assert not np.array_equal(everything(first), everything(other))


def test_no_phantom_is_drawn_twice_even_across_blocks():
    images = everything(load_phantom(DataConfig(phantom_examples=4500), seed=0))

    assert len(np.unique(images.reshape(len(images), -1), axis=0)) == 4500


def test_the_largest_lesion_brightens_a_nodule_and_darkens_a_cavity():
    dataset = load_phantom(DataConfig(phantom_examples=1200, phantom_classes=3, phantom_difficulty=0.0), seed=0)

    centre = dataset.train.images[:, 0, 8:20, 8:20].mean(axis=(1, 2))
    clear, nodule, cavity = (centre[dataset.train.labels == label].mean() for label in range(3))

    assert nodule > clear + 10
    assert cavity < clear - 10


def small_network(classes):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def accuracy_after_five_epochs(difficulty):
    dataset = load_phantom(DataConfig(phantom_difficulty=difficulty), seed=0)
    images = torch.tensor(dataset.train.images).float() / 255
    labels = torch.tensor(dataset.train.labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = small_network(dataset.info.classes)
        optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
        for _ in range(5):
            for batch in torch.randperm(len(images)).split(32):
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
                optimizer.step()
    with torch.no_grad():
        predicted = network(torch.tensor(dataset.test.images).float() / 255).argmax(1)
    return float((predicted == torch.tensor(dataset.test.labels)).float().mean())


def test_a_small_network_learns_phantoms_in_five_epochs_and_learns_hard_ones_less_well():
    default, hardest = accuracy_after_five_epochs(0.4), accuracy_after_five_epochs(1.0)

    assert default > 0.8
    assert 0.3 < hardest < default - 0.1
