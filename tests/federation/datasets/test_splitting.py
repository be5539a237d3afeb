"""The split of pooled data: files by what they are, phantoms by their class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from federation.config import DataConfig
from federation.datasets import Dataset, DatasetInfo, ImageSet, Task
from federation.datasets.splitting import split_pool, split_stratified
from federation.errors import DataError

INFO = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=1, width=2)
HALVES = DataConfig(validation_fraction=0.3, test_fraction=0.3)
MANY = 300

Place = dict[int, str]


def pool_of(numbers: ArrayLike, labels: ArrayLike = 0, patients: ArrayLike | None = None) -> ImageSet:
    """Return one image of two pixels for each of `numbers`; the same number gives the same image."""
    shown = np.asarray(numbers, dtype=np.int64)
    pixels = np.stack([shown // 256, shown % 256], axis=1).astype(np.uint8)
    classes = np.asarray(labels, dtype=np.int64)
    return ImageSet(
        images=pixels.reshape(-1, 1, 1, 2),
        labels=classes if classes.ndim else np.full(len(shown), classes),
        patients=None if patients is None else np.asarray(patients, dtype=np.int64),
    )


def numbers(split: ImageSet) -> NDArray[np.int64]:
    high, low = split.images.reshape(-1, 2).astype(np.int64).T
    return np.asarray(256 * high + low)


def splits_of(dataset: Dataset) -> dict[str, ImageSet]:
    return {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}


def places(dataset: Dataset) -> Place:
    """Return each image's split."""
    return {int(number): name for name, split in splits_of(dataset).items() for number in numbers(split)}


def divide(pool: ImageSet, seed: int = 0, data: DataConfig = HALVES) -> Dataset:
    return split_pool(pool, INFO, data, seed=seed)


def stratify(labels: ArrayLike, seed: int = 0, validation: float = 0.1, test: float = 0.2) -> Dataset:
    data = DataConfig(validation_fraction=validation, test_fraction=test)
    return split_stratified(pool_of(np.arange(len(np.asarray(labels))), labels), INFO, data, seed=seed)


@given(shown=st.sets(st.integers(0, 65535), min_size=80, max_size=160), extra=st.integers(0, 65535), seed=st.integers())
def test_one_image_more_or_less_leaves_every_other_image_in_its_split(shown: set[int], extra: int, seed: int) -> None:
    without = sorted(shown - {extra})
    middle = len(without) // 2

    small = places(divide(pool_of(without), seed))
    large = places(divide(pool_of([*without[:middle], extra, *without[middle:]]), seed))

    assert large.keys() == {*without, extra}
    assert {number: large[number] for number in without} == small


@given(
    sizes=st.lists(st.integers(1, 4), min_size=60, max_size=90), left_out=st.integers(0, 59), seed=st.integers(0, 2**62)
)
def test_one_patient_more_or_less_leaves_every_other_patient_in_one_split(
    sizes: Sequence[int], left_out: int, seed: int
) -> None:
    patients = np.repeat(np.arange(len(sizes)) * 7 - 100, sizes)
    kept = patients != left_out * 7 - 100
    shown = np.arange(len(patients))

    everybody = divide(pool_of(shown, patients=patients), seed)
    others = places(divide(pool_of(shown[kept], patients=patients[kept]), seed))

    seen = [set(split.patients.tolist()) for split in splits_of(everybody).values() if split.patients is not None]
    assert sum(map(len, seen)) == len(set.union(*seen)) == len(sizes)
    assert {number: name for number, name in places(everybody).items() if kept[number]} == others


def test_images_added_to_a_patient_join_the_patients_split() -> None:
    patients = np.arange(MANY) // 2
    first = places(divide(pool_of(np.arange(MANY), patients=patients)))

    more = places(divide(pool_of(np.arange(2 * MANY), patients=np.concatenate([patients, patients]))))

    assert all(more[number] == more[number + MANY] == name for number, name in first.items())


@given(order=st.permutations(range(100)), seed=st.integers(0, 99))
def test_order_of_the_files_decides_nothing_and_is_kept(order: list[int], seed: int) -> None:
    shuffled = divide(pool_of(order), seed)

    assert places(shuffled) == places(divide(pool_of(range(100)), seed))
    for split in splits_of(shuffled).values():
        assert numbers(split).tolist() == [number for number in order if number in set(numbers(split).tolist())]


def test_copies_of_an_image_share_a_split_whatever_their_label() -> None:
    shown = np.tile(np.arange(100), 3)

    dataset = divide(pool_of(shown, labels=np.arange(MANY) % 2))

    for split in splits_of(dataset).values():
        assert (np.unique(numbers(split), return_counts=True)[1] == 3).all()


def test_labels_stay_with_their_images() -> None:
    labels = np.random.default_rng(0).integers(0, 3, size=MANY)

    dataset = divide(pool_of(np.arange(MANY), labels))

    assert len(places(dataset)) == MANY
    for split in splits_of(dataset).values():
        assert split.labels.tolist() == labels[numbers(split)].tolist()


@pytest.mark.parametrize("patients", [None, np.arange(20000)], ids=["images", "patients"])
@pytest.mark.parametrize(("validation", "test"), [(0.1, 0.2), (0.45, 0.05), (0.3, 0.69)])
def test_sizes_are_those_of_independent_draws(
    patients: NDArray[np.int64] | None, validation: float, test: float
) -> None:
    data = DataConfig(validation_fraction=validation, test_fraction=test)
    held = [validation, test]

    dataset = divide(pool_of(np.arange(20000), patients=patients), data=data)

    found = [len(dataset.train), len(dataset.validation), len(dataset.test)]
    expected = 20000 * np.array([1 - sum(held), *held])
    assert stats.chisquare(found, expected).pvalue > 1e-3


def test_neighbouring_images_and_seeds_draw_independently() -> None:
    held = [np.array([name == "test" for _, name in sorted(places(divide(pool_of(range(9000)), seed)).items())])
            for seed in (7, 8)]  # fmt: skip

    both, after = np.mean(held[0] & held[1]), np.mean(held[0][1:] & held[0][:-1])

    assert abs(both - 0.09) < 0.015
    assert abs(after - 0.09) < 0.015


def test_the_same_seed_splits_alike() -> None:
    pool = pool_of(range(MANY))

    assert places(divide(pool, 7)) == places(divide(pool, 7)) != places(divide(pool, 8))


def test_layout_of_images_in_memory_decides_nothing() -> None:
    plain = np.random.default_rng(0).integers(0, 256, (MANY, 3, 4, 5), dtype=np.uint8)
    turned = np.ascontiguousarray(plain.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
    labels = np.arange(MANY)

    found = [divide(ImageSet(images=images, labels=labels)).train.labels.tolist() for images in (plain, turned)]

    assert found[0] == found[1]


def test_split_that_fractions_decide_is_no_split_of_the_data() -> None:
    assert divide(pool_of(range(MANY))).given_split is False
    assert stratify([0, 1] * 50).given_split is False


@pytest.mark.parametrize("patients", [None, [5] * 200], ids=["images", "one patient"])
def test_pool_that_leaves_a_split_empty_is_refused_with_the_remedy(patients: list[int] | None) -> None:
    shown = [3] * 200 if patients is None else np.arange(200)

    with pytest.raises(DataError, match=r"at least one .* image, found none of 200 .*fraction=0\.3: add images or"):
        divide(pool_of(shown, patients=patients))


@given(
    labels=st.lists(st.integers(0, 4), min_size=40, max_size=300),
    seed=st.integers(0, 99),
    validation=st.floats(0.05, 0.45),
    test=st.floats(0.05, 0.45),
)
def test_stratified_split_puts_every_image_in_one_split_and_splits_every_class_alike(
    labels: list[int], seed: int, validation: float, test: float
) -> None:
    dataset = stratify(labels, seed, validation, test)

    assert sorted(places(dataset)) == list(range(len(labels)))
    for split, fraction in ((dataset.validation, validation), (dataset.test, test)):
        assert abs(len(split) - fraction * len(labels)) <= 1
        for label in set(labels):
            assert abs((split.labels == label).sum() - fraction * labels.count(label)) <= 2


def test_stratified_split_follows_its_seed() -> None:
    first, again, other = (places(stratify([0, 1] * 50, seed)) for seed in (7, 7, 8))

    assert first == again != other


def test_stratified_split_draws_at_random_within_a_class() -> None:
    distances = np.diff(numbers(stratify([0] * 1000).test))

    assert np.unique(distances).size > 5


@pytest.mark.parametrize("seed", range(4))
def test_images_with_several_labels_are_stratified_by_their_combination(seed: int) -> None:
    labels = np.array([[0, 0], [1, 0], [1, 1]] * 40)

    dataset = stratify(labels, seed)

    _, frequency = np.unique(dataset.test.labels, axis=0, return_counts=True)
    assert frequency.tolist() == [8, 8, 8]


def test_pool_too_small_to_be_stratified_is_refused() -> None:
    with pytest.raises(DataError, match=r"at least one validation image, found none of 4 .*fraction=0\.1"):
        stratify([0, 1, 0, 1])
