"""Divisions of real sets as experiments ask for them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from federation.config import DataConfig
from federation.datasets import load_dataset
from federation.errors import PartitionError
from federation.partitioning import assign

TEST_DATA = os.environ.get("AEGIS_TEST_DATA", "")
SPLITS = ("train", "validation", "test")

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not TEST_DATA, reason="AEGIS_TEST_DATA does not name the folder with real data"),
]


@cache
def real_set(name):
    return load_dataset(DataConfig(name=name, root=str(Path(TEST_DATA) / "medmnist")), seed=0)


def held_classes(dataset, site):
    return np.unique(np.concatenate([getattr(dataset, split).labels[getattr(site, split)] for split in SPLITS]))


@pytest.mark.parametrize(
    ("name", "sites", "options"),
    [
        ("organamnist", 100, {"partition": "classes", "classes_per_hospital": 5}),
        ("organamnist", 10, {"partition": "dirichlet", "dirichlet_alpha": 0.5}),
        ("pneumoniamnist", 6, {"partition": "dirichlet", "dirichlet_alpha": 0.5}),
        ("breastmnist", 50, {"partition": "dirichlet"}),
        ("breastmnist", 50, {"partition": "classes", "classes_per_hospital": 1}),
        ("breastmnist", 78, {"partition": "classes", "classes_per_hospital": 1}),
        ("retinamnist", 20, {"partition": "quantity"}),
    ],
)
def test_real_sets_supply_every_hospital_with_every_image_used_once(name, sites, options):
    dataset = real_set(name)

    assigned = assign(dataset, DataConfig(**options), sites=sites, seed=1)

    for split in SPLITS:
        parts = [getattr(site, split) for site in assigned]
        assert min(len(part) for part in parts) >= 1
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(getattr(dataset, split))))


def test_a_hundred_hospitals_hold_at_most_five_of_eleven_organs_each():
    dataset = real_set("organamnist")

    assigned = assign(dataset, DataConfig(partition="classes", classes_per_hospital=5), sites=100, seed=1)

    held = [held_classes(dataset, site) for site in assigned]
    assert max(len(classes) for classes in held) <= 5
    assert len({tuple(classes.tolist()) for classes in held}) > 20
    assert np.unique(np.concatenate(held)).size == 11


def test_a_hospitals_test_images_resemble_its_training_images():
    dataset = real_set("organamnist")

    assigned = assign(dataset, DataConfig(partition="dirichlet", dirichlet_alpha=0.5), sites=10, seed=1)

    for site in assigned:
        train, test = (
            np.bincount(getattr(dataset, split).labels[getattr(site, split)], minlength=11)
            / np.bincount(getattr(dataset, split).labels, minlength=11)
            for split in ("train", "test")
        )
        np.testing.assert_allclose(train, test, atol=0.002)


def test_more_hospitals_than_validation_images_are_refused():
    with pytest.raises(
        PartitionError, match=r"1 x 100 = 100 validation images for 100 .* found 78: simulate at most 78"
    ):
        assign(real_set("breastmnist"), DataConfig(), sites=100, seed=0)
