"""NPZ archives: both layouts, and every way in which a file can be wrong."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from federation.config import DataConfig
from federation.datasets import Task, load_dataset
from federation.errors import ConfigurationError, DataError
from tests.client_app.calls import save_own_images

TEST_DATA = os.environ.get("AEGIS_TEST_DATA", "")


def grey(count, side=4):
    return np.random.default_rng(0).integers(0, 256, size=(count, side, side), dtype=np.uint8)


def pooled(count=30, classes=3):
    return {"images": grey(count), "labels": np.arange(count) % classes}


def in_splits():
    sizes = {"train": 6, "val": 4, "test": 2}
    images = {f"{split}_images": grey(size) for split, size in sizes.items()}
    labels = {f"{split}_labels": (np.arange(size) % 2)[:, None].astype(np.uint8) for split, size in sizes.items()}
    return images | labels


def load(tmp_path, arrays, seed=0):
    path = tmp_path / "data.npz"
    np.savez(path, **arrays)
    return load_dataset(DataConfig(name="npz", root=str(path)), seed=seed)


def test_an_archive_in_split_layout_keeps_its_splits(tmp_path):
    dataset = load(tmp_path, in_splits())

    assert [len(split) for split in (dataset.train, dataset.validation, dataset.test)] == [6, 4, 2]
    np.testing.assert_array_equal(dataset.validation.images[:, 0], grey(4))
    assert dataset.train.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert dataset.train.labels.dtype == np.int64
    assert dataset.info.class_names == ("0", "1")


def test_a_pooled_archive_is_split_by_the_configured_fractions(tmp_path):
    dataset = load(tmp_path, pooled(count=1000))

    found = [len(split) for split in (dataset.train, dataset.validation, dataset.test)]
    assert sum(found) == 1000
    np.testing.assert_allclose(found, [700, 100, 200], atol=60)
    assert dataset.info.classes == 3


def test_one_image_more_in_an_archive_moves_no_other(tmp_path):
    images, labels = grey(101), np.arange(101) % 2

    without, with_it = (load(tmp_path, {"images": images[first:], "labels": labels[first:]}) for first in (1, 0))

    for split in ("train", "validation", "test"):
        before, after = ({*map(bytes, getattr(dataset, split).images)} for dataset in (without, with_it))
        assert before == after - {images[0].tobytes()}


def test_colour_channels_come_first_in_memory_and_last_in_the_file(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, size=(30, 4, 5, 3), dtype=np.uint8)

    dataset = load(tmp_path, pooled() | {"images": images})

    assert dataset.train.images.shape[1:] == (3, 4, 5)
    assert (dataset.info.channels, dataset.info.height, dataset.info.width) == (3, 4, 5)
    np.testing.assert_array_equal(np.sort(dataset.test.images[:, 2].ravel())[0], dataset.test.images[:, 2].min())
    assert any(np.array_equal(dataset.train.images[0], image.transpose(2, 0, 1)) for image in images)


def test_class_names_may_include_classes_that_the_file_has_no_image_of(tmp_path):
    dataset = load(tmp_path, pooled(classes=2) | {"class_names": np.array(["benign", "malignant", "unclear"])})

    assert dataset.info.class_names == ("benign", "malignant", "unclear")


def test_several_columns_of_zero_and_one_are_several_labels(tmp_path):
    dataset = load(tmp_path, {"images": grey(30), "labels": np.eye(3, dtype=np.uint8)[np.arange(30) % 3]})

    assert dataset.info.task is Task.MULTILABEL
    assert dataset.info.classes == 3
    assert (np.concatenate([dataset.train.labels, dataset.test.labels]).sum(axis=1) == 1).all()


def test_a_folder_with_one_archive_stands_for_the_archive(tmp_path):
    np.savez(tmp_path / "only.npz", **pooled())

    of_folder, of_file = (
        load_dataset(DataConfig(name="npz", root=str(root)), seed=0) for root in (tmp_path, tmp_path / "only.npz")
    )

    np.testing.assert_array_equal(of_folder.train.images, of_file.train.images)


def test_a_folder_with_two_archives_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", **pooled())
    np.savez(tmp_path / "b.npz", **pooled())

    with pytest.raises(DataError, match=r"one \.npz file in .*, found 2: .*'by-file'"):
        load_dataset(DataConfig(name="npz", root=str(tmp_path)), seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": grey(30).astype(np.float32)}, "dtype uint8 of images in .*, found float32: rescale"),
        ({"images": grey(30).reshape(30, 16)}, r"found \(30, 16\): channels come last"),
        ({"images": np.zeros((30, 3, 4, 4), np.uint8)}, r"found \(30, 3, 4, 4\): channels come last"),
        ({"images": grey(29)}, "found 29 images and 30 labels"),
        ({"images": grey(0), "labels": np.zeros(0, int)}, "one or more images, found 0 images"),
        ({"labels": np.arange(30) / 2}, "whole numbers .*, found float64"),
        ({"labels": np.zeros((30, 2, 2), int)}, r"found int64 of shape \(30, 2, 2\)"),
        ({"labels": np.zeros((30, 0), int)}, r"found int64 of shape \(30, 0\)"),
        ({"labels": np.arange(60).reshape(30, 2)}, "only 0 and 1 in labels .*, found values from 0 to 59"),
        ({"labels": np.arange(30) % 2 * 2}, r"without gaps .*, found \[0, 2\]: renumber"),
        ({"labels": np.arange(30) % 2 - 1}, r"without gaps .*, found \[-1, 0\]"),
        ({"labels": np.zeros(30, int)}, r"two or more classes .*, found \[0\]"),
        ({"class_names": np.array(["a", "b"])}, "fit the 2 class_names .*, found 0 to 2"),
        ({"class_names": np.array(["a", "b"]), "labels": np.arange(30) % 2 - 1}, "2 class_names .*, found -1 to 0"),
        ({"class_names": np.array(["a", "a", "b"])}, "two or more different texts"),
        ({"class_names": np.array([1, 2, 3])}, "two or more different texts .* found int64"),
        ({"class_names": np.array(["a", "b", "c"]), "labels": np.eye(2, dtype=int)[np.arange(30) % 2]}, "2 columns"),
    ],
)
def test_a_wrong_array_is_refused_with_what_was_expected_and_found(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        load(tmp_path, pooled() | change)


def test_splits_of_different_image_sizes_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"as in train, found \(\(1, 5, 5\), \(\)\) in validation"):
        load(tmp_path, in_splits() | {"val_images": grey(4, side=5)})


def test_a_missing_array_is_named(tmp_path):
    arrays = in_splits()
    del arrays["val_labels"]

    with pytest.raises(DataError, match=r"add \['val_labels'\]"):
        load(tmp_path, arrays)


def test_an_archive_with_pickled_objects_is_refused_without_unpickling_them(tmp_path):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "exploded",)

    labels = np.array([Bomb()] * 30, dtype=object)

    with pytest.raises(DataError, match="NPZ archive of plain arrays"):
        load(tmp_path, {"images": grey(30), "labels": labels})

    assert not (tmp_path / "exploded").exists()


def _cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def _empty(path):
    path.write_bytes(b"")


def _encrypt(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)


def _flip(path):
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF
    path.write_bytes(content)


def _garble_compressed_data(path):
    content = bytearray(path.read_bytes())
    content[60:120] = b"\xff" * 60
    path.write_bytes(content)


def _text(path):
    path.write_text("not an archive", encoding="utf-8")


def _single_array(path):
    with path.open("wb") as file:
        np.save(file, grey(3))


@pytest.mark.parametrize("damage", [_cut, _empty, _encrypt, _flip, _garble_compressed_data, _text, _single_array])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, **pooled())
    damage(path)

    with pytest.raises(DataError, match=r"NPZ archive of plain arrays at .*data\.npz, found"):
        load_dataset(DataConfig(name="npz", root=str(path)), seed=0)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="found nothing there"):
        load_dataset(DataConfig(name="npz", root=str(tmp_path / "absent.npz")), seed=0)


@pytest.mark.parametrize(
    ("root", "message"), [("", "found nothing: set it"), ("some/file.npz", "an absolute path, found")]
)
def test_an_empty_or_relative_root_is_refused(root, message):
    with pytest.raises(ConfigurationError, match=message):
        load_dataset(DataConfig(name="npz", root=root), seed=0)


@pytest.mark.data
@pytest.mark.skipif(not TEST_DATA, reason="AEGIS_TEST_DATA does not name the folder with real data")
def test_a_real_archive_without_training_images_is_refused():
    path = Path(TEST_DATA) / "medmnist" / "pathmnist_test718.npz"

    with pytest.raises(DataError, match=r"add \['train_images', 'train_labels', 'val_images', 'val_labels'\]"):
        load_dataset(DataConfig(name="npz", root=str(path)), seed=0)


def test_patients_stay_with_their_images_through_the_split_of_a_pooled_archive(tmp_path):
    images = np.arange(30, dtype=np.uint8)[:, None, None] * np.ones((4, 4), np.uint8)

    dataset = load(tmp_path, pooled() | {"images": images, "patients": np.arange(30) // 2 + 100})

    for split in (dataset.train, dataset.validation, dataset.test):
        assert split.patients.tolist() == (split.images[:, 0, 0, 0] // 2 + 100).tolist()
        assert split.patients.dtype == np.int64
        assert not split.patients.flags.writeable


def test_patients_may_be_given_for_some_splits_only(tmp_path):
    dataset = load(tmp_path, in_splits() | {"train_patients": np.array([7, 7, 8, 9, 9, 9], dtype=np.uint16)})

    assert dataset.train.patients.tolist() == [7, 7, 8, 9, 9, 9]
    assert dataset.validation.patients is None


@pytest.mark.parametrize(
    "patients", [np.arange(29), np.arange(30)[:, None], np.arange(30) / 2, np.array(["a"] * 30)], ids=str
)
def test_patients_that_are_not_one_whole_number_per_image_are_refused(tmp_path, patients):
    with pytest.raises(DataError, match=r"whole numbers of shape \(30,\) as patients .*: number the patients"):
        load(tmp_path, pooled() | {"patients": patients})


@pytest.mark.parametrize("given_split", [True, False])
def test_data_set_says_whether_its_split_came_with_it(tmp_path: Path, given_split: bool) -> None:
    path = save_own_images(tmp_path, given_split=given_split)

    assert load_dataset(DataConfig(name="npz", root=str(path)), seed=0).given_split is given_split
