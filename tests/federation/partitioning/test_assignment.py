"""What holds for every method: each image at one hospital, every hospital supplied, the same seed the same division."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.config import DataConfig
from federation.datasets import Dataset, DatasetInfo, ImageSet, Task
from federation.errors import PartitionError
from federation.partitioning import SiteIndices, assign, partition

METHODS = ("iid", "dirichlet", "classes", "quantity")
SPLITS = ("train", "validation", "test")


def toy_split(sizes, offset=0):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    pixels = (np.arange(len(labels)) + offset).astype(np.uint8)
    return ImageSet(images=pixels.reshape(-1, 1, 1, 1), labels=labels)


def toy_dataset(train, validation, test):
    names = tuple(f"class {number}" for number in range(len(train)))
    info = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=names, channels=1, height=1, width=1)
    return Dataset(info=info, train=toy_split(train), validation=toy_split(validation), test=toy_split(test))


def indices_of(assigned, split):
    return [getattr(site, split) for site in assigned]


def classes_held(dataset, site):
    held = [getattr(dataset, split).labels[getattr(site, split)] for split in SPLITS]
    return set(np.concatenate(held).tolist())


@st.composite
def requests(draw, methods=METHODS):
    classes = draw(st.integers(2, 6))
    row = st.lists(st.integers(0, 15), min_size=classes, max_size=classes)
    dataset = toy_dataset(*(draw(row) for _ in SPLITS))
    data = DataConfig(
        partition=draw(st.sampled_from(methods)),
        dirichlet_alpha=draw(st.sampled_from([1e-6, 0.1, 0.5, 10.0])),
        classes_per_hospital=draw(st.integers(1, 7)),
        quantity_exponent=draw(st.sampled_from([0.0, 1.0, 4.0])),
        min_examples=draw(st.integers(1, 3)),
    )
    return dataset, data, draw(st.integers(1, 9)), draw(st.integers(0, 1000))


def assign_or_skip(dataset, data, sites, seed):
    try:
        return assign(dataset, data, sites=sites, seed=seed)
    except PartitionError:
        return None


@given(requests())
def test_every_image_goes_to_exactly_one_hospital(request):
    dataset, data, sites, seed = request

    assigned = assign_or_skip(dataset, data, sites, seed)

    if assigned is not None:
        for split in SPLITS:
            everything = np.concatenate(indices_of(assigned, split))
            assert sorted(everything.tolist()) == list(range(len(getattr(dataset, split))))


@given(requests())
def test_every_hospital_gets_the_minimum_in_every_split(request):
    dataset, data, sites, seed = request

    assigned = assign_or_skip(dataset, data, sites, seed)

    if assigned is not None:
        assert len(assigned) == sites
        smallest = min(len(part) for split in SPLITS for part in indices_of(assigned, split))
        assert smallest >= data.min_examples


@given(requests(methods=("classes",)))
def test_no_hospital_holds_more_classes_than_allowed_over_all_its_splits(request):
    dataset, data, sites, seed = request

    assigned = assign_or_skip(dataset, data, sites, seed)

    if assigned is not None:
        assert max(len(classes_held(dataset, site)) for site in assigned) <= data.classes_per_hospital


@given(requests(methods=("iid", "dirichlet", "quantity")))
def test_methods_without_exclusions_refuse_only_what_the_numbers_forbid(request):
    dataset, data, sites, seed = request
    smallest = min(len(getattr(dataset, split)) for split in SPLITS)

    assigned = assign_or_skip(dataset, data, sites, seed)

    assert (assigned is None) == (smallest < sites * data.min_examples)


@given(requests())
def test_the_same_seed_gives_the_same_division(request):
    dataset, data, sites, seed = request

    first = assign_or_skip(dataset, data, sites, seed)
    second = assign_or_skip(dataset, data, sites, seed)

    if first is None:
        assert second is None
        return
    assert second is not None
    for split in SPLITS:
        for one, other in zip(indices_of(first, split), indices_of(second, split), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("split", SPLITS)
def test_another_seed_gives_another_division_of_every_split(method, split):
    dataset = toy_dataset([30, 40, 50], [20, 20, 20], [30, 20, 40])
    data = DataConfig(partition=method, classes_per_hospital=2)

    divisions = [indices_of(assign(dataset, data, sites=4, seed=seed), split) for seed in (0, 1)]

    assert any(one.tolist() != other.tolist() for one, other in zip(*divisions, strict=True))


def test_splits_of_equal_labels_are_not_dealt_alike():
    dataset = toy_dataset([20, 20], [20, 20], [20, 20])

    site = assign(dataset, DataConfig(partition="iid"), sites=2, seed=0)[0]

    assert site.train.tolist() != site.validation.tolist()
    assert site.validation.tolist() != site.test.tolist()


def test_a_part_is_made_of_the_images_and_labels_at_its_indices():
    dataset = toy_dataset([5, 5], [3, 3], [2, 4])
    indices = SiteIndices(train=np.array([1, 7]), validation=np.array([0]), test=np.array([5, 2]))

    part = indices.take(dataset)

    assert part.info == dataset.info
    assert part.train.images.ravel().tolist() == [1, 7]
    assert part.train.labels.tolist() == [0, 1]
    assert part.validation.images.ravel().tolist() == [0]
    assert part.test.labels.tolist() == [1, 1]


def test_partition_takes_what_assign_chose():
    dataset = toy_dataset([9, 9], [6, 6], [6, 6])
    data = DataConfig(partition="dirichlet")

    parts = partition(dataset, data, sites=3, seed=5)

    for part, indices in zip(parts, assign(dataset, data, sites=3, seed=5), strict=True):
        np.testing.assert_array_equal(part.train.images.ravel(), indices.train.astype(np.uint8))
        np.testing.assert_array_equal(part.test.labels, dataset.test.labels[indices.test])


def test_too_few_images_are_refused_with_the_numbers_and_the_largest_possible_request():
    dataset = toy_dataset([300, 300], [40, 38], [100, 100])

    with pytest.raises(
        PartitionError, match=r"2 x 50 = 100 validation images for 50 .* found 78: simulate at most 39 "
    ):
        assign(dataset, DataConfig(partition="iid", min_examples=2), sites=50, seed=0)


@pytest.mark.parametrize("sites", [0, -3])
def test_fewer_than_one_hospital_is_refused(sites):
    dataset = toy_dataset([3, 3], [3, 3], [3, 3])

    with pytest.raises(PartitionError, match=f"Expected sites={sites} >= 1"):
        assign(dataset, DataConfig(), sites=sites, seed=0)


def test_by_file_is_refused_because_nothing_is_left_to_divide():
    dataset = toy_dataset([3, 3], [3, 3], [3, 3])

    with pytest.raises(PartitionError, match=r"found data\.partition='by-file'"):
        assign(dataset, DataConfig(partition="by-file"), sites=2, seed=0)


def multilabel_dataset():
    info = DatasetInfo(name="many", task=Task.MULTILABEL, class_names=("a", "b"), channels=1, height=1, width=1)
    split = ImageSet(images=np.zeros((8, 1, 1, 1), np.uint8), labels=np.zeros((8, 2), np.int64))
    return Dataset(info=info, train=split, validation=split, test=split)


@pytest.mark.parametrize("method", ["dirichlet", "classes"])
def test_methods_by_class_refuse_images_with_several_labels(method):
    with pytest.raises(
        PartitionError, match=rf"'{method}', found the multi-label data set 'many'.* 'iid' or 'quantity'"
    ):
        assign(multilabel_dataset(), DataConfig(partition=method), sites=2, seed=0)


@pytest.mark.parametrize("method", ["iid", "quantity"])
def test_methods_without_classes_divide_images_with_several_labels(method):
    parts = partition(multilabel_dataset(), DataConfig(partition=method), sites=2, seed=0)

    assert sum(len(part.train) for part in parts) == 8
    assert parts[0].train.labels.shape[1:] == (2,)
