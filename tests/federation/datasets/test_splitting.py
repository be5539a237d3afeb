"""The stratified split of pooled data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.config import DataConfig
from federation.datasets import DatasetInfo, ImageSet, Task
from federation.datasets.splitting import split_pool
from federation.errors import DataError

INFO = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=1, width=2)


def toy_pool(labels):
    labels = np.asarray(labels, dtype=np.int64)
    number = np.arange(len(labels))
    pixels = np.stack([number // 256, number % 256], axis=1).astype(np.uint8)
    return ImageSet(images=pixels.reshape(-1, 1, 1, 2), labels=labels)


def numbers(split):
    high, low = split.images.reshape(-1, 2).astype(int).T
    return (256 * high + low).tolist()


def split_toy(labels, seed=0, validation=0.1, test=0.2):
    data = DataConfig(validation_fraction=validation, test_fraction=test)
    return split_pool(toy_pool(labels), INFO, data, seed=seed)


@given(
    labels=st.lists(st.integers(0, 4), min_size=40, max_size=300),
    seed=st.integers(0, 99),
    validation=st.floats(0.05, 0.45),
    test=st.floats(0.05, 0.45),
)
def test_every_image_is_in_one_split_and_every_class_is_split_alike(labels, seed, validation, test):
    dataset = split_toy(labels, seed, validation, test)

    splits = (dataset.train, dataset.validation, dataset.test)
    assert sorted(number for split in splits for number in numbers(split)) == list(range(len(labels)))
    assert abs(len(dataset.validation) - validation * len(labels)) <= 1
    assert abs(len(dataset.test) - test * len(labels)) <= 1
    for label in set(labels):
        assert abs((dataset.validation.labels == label).sum() - validation * labels.count(label)) <= 2
        assert abs((dataset.test.labels == label).sum() - test * labels.count(label)) <= 2


def test_labels_stay_with_their_images():
    labels = np.random.default_rng(0).integers(0, 3, size=400)

    dataset = split_toy(labels)

    for split in (dataset.train, dataset.validation, dataset.test):
        assert split.labels.tolist() == labels[numbers(split)].tolist()


def test_the_same_seed_splits_alike_and_another_seed_does_not():
    labels = [0, 1] * 50

    first, again, other = (numbers(split_toy(labels, seed).test) for seed in (7, 7, 8))

    assert first == again
    assert first != other


def test_held_out_images_are_drawn_at_random_within_a_class():
    distances = np.diff(numbers(split_toy([0] * 1000).test))

    assert np.unique(distances).size > 5


@pytest.mark.parametrize("seed", range(4))
def test_images_with_several_labels_are_stratified_by_their_combination(seed):
    labels = np.array([[0, 0], [1, 0], [1, 1]] * 40)

    dataset = split_toy(labels, seed)

    _, frequency = np.unique(dataset.test.labels, axis=0, return_counts=True)
    assert frequency.tolist() == [8, 8, 8]


def test_a_pool_too_small_for_three_splits_is_refused():
    with pytest.raises(DataError, match=r"at least one validation image, found none of 4 .*fraction=0\.1"):
        split_toy([0, 1, 0, 1])
