"""The official MedMNIST files: the table of facts, checksums, downloads that cannot happen, and real files."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from federation.config import DataConfig
from federation.datasets import Task, load_dataset, medmnist
from federation.datasets.medmnist_catalogue import MEDMNIST_2D, download_url
from federation.errors import DataError

TEST_DATA = os.environ.get("AEGIS_TEST_DATA", "")
needs_data = pytest.mark.skipif(not TEST_DATA, reason="AEGIS_TEST_DATA does not name the folder with real data")


def write_breast_file(folder, monkeypatch, sizes=(6, 4, 2)):
    """Write a small file and let the catalogue expect its checksum."""
    path = folder / "breastmnist.npz"
    arrays: dict[str, Any] = {}
    for split, size in zip(("train", "val", "test"), sizes, strict=True):
        arrays[f"{split}_images"] = np.full((size, 28, 28), size, dtype=np.uint8)
        arrays[f"{split}_labels"] = (np.arange(size) % 2)[:, None].astype(np.uint8)
    np.savez(path, **arrays)
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(MEDMNIST_2D, "breastmnist", replace(MEDMNIST_2D["breastmnist"], md5=md5))
    return path


def test_the_catalogue_agrees_with_the_medmnist_package():
    package = pytest.importorskip("medmnist", reason="the medmnist package is not installed")
    official = {name: info for name, info in package.INFO.items() if not name.endswith("3d")}

    assert MEDMNIST_2D.keys() == official.keys()
    for name, info in official.items():
        facts = MEDMNIST_2D[name]
        assert facts.md5 == info["MD5"]
        assert facts.channels == info["n_channels"]
        assert facts.class_names == tuple(info["label"][str(number)] for number in range(len(info["label"])))
        assert (facts.task is Task.MULTILABEL) == info["task"].startswith("multi-label")
        assert download_url(name) == info["url"]


@pytest.mark.parametrize("as_file", [False, True])
def test_an_official_file_is_found_by_its_folder_and_by_its_own_path(tmp_path, monkeypatch, as_file):
    path = write_breast_file(tmp_path, monkeypatch)

    dataset = load_dataset(DataConfig(name="breastmnist", root=str(path if as_file else tmp_path)), seed=0)

    assert [len(split) for split in (dataset.train, dataset.validation, dataset.test)] == [6, 4, 2]
    assert dataset.info.class_names == ("malignant", "normal, benign")


def test_a_file_with_another_checksum_is_refused_with_both_checksums(tmp_path, monkeypatch):
    path = write_breast_file(tmp_path, monkeypatch)
    expected = MEDMNIST_2D["breastmnist"].md5
    path.write_bytes(path.read_bytes() + b" ")
    found = hashlib.md5(path.read_bytes()).hexdigest()

    with pytest.raises(DataError, match=f"md5 {expected} .*, found {found} at .*zenodo"):
        load_dataset(DataConfig(name="breastmnist", root=str(tmp_path)), seed=0)


def test_a_missing_file_is_refused_with_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"the file .*octmnist\.npz, found nothing there: get https://zenodo.*octmnist"):
        load_dataset(DataConfig(name="octmnist", root=str(tmp_path)), seed=0)


def test_a_missing_root_is_refused(tmp_path):
    with pytest.raises(DataError, match="found nothing there: correct the path"):
        load_dataset(DataConfig(name="octmnist", root=str(tmp_path / "absent")), seed=0)


def test_without_the_package_the_error_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "medmnist", None)

    with pytest.raises(DataError, match=r"pip install aegis-fl\[data\]`, or set data\.root"):
        load_dataset(DataConfig(name="breastmnist"), seed=0)


def fake_package(monkeypatch, folder, download):
    package = SimpleNamespace(INFO={"breastmnist": {"python_class": "BreastMNIST"}}, BreastMNIST=download)
    monkeypatch.setitem(sys.modules, "medmnist", package)
    monkeypatch.setitem(sys.modules, "medmnist.info", SimpleNamespace(DEFAULT_ROOT=str(folder)))


def test_without_a_network_the_error_says_how_to_get_the_file_by_hand(tmp_path, monkeypatch):
    def fail(split, download):
        raise RuntimeError("Automatic download failed!")

    fake_package(monkeypatch, tmp_path, fail)

    with pytest.raises(
        DataError, match=r"get https://zenodo.org/.*/breastmnist\.npz\S* with a browser.*set data\.root"
    ):
        load_dataset(DataConfig(name="breastmnist"), seed=0)


def test_with_an_empty_root_the_package_downloads_into_its_own_folder(tmp_path, monkeypatch):
    asked = []

    published = write_breast_file(tmp_path, monkeypatch)
    folder = tmp_path / "package"
    folder.mkdir()

    def fetch(split, download):
        asked.append(download)
        shutil.copy(published, folder)

    fake_package(monkeypatch, folder, fetch)

    dataset = load_dataset(DataConfig(name="breastmnist"), seed=0)

    assert asked == [True]
    assert len(dataset.train) == 6


def test_several_labels_stay_one_column_each(tmp_path, monkeypatch):
    path = tmp_path / "chestmnist.npz"
    labels = np.zeros((5, 14), np.uint8)
    labels[:, 3] = 1
    arrays: dict[str, Any] = {f"{split}_labels": labels for split in ("train", "val", "test")}
    arrays |= {f"{split}_images": np.zeros((5, 28, 28), np.uint8) for split in ("train", "val", "test")}
    np.savez(path, **arrays)
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(MEDMNIST_2D, "chestmnist", replace(MEDMNIST_2D["chestmnist"], md5=md5))

    dataset = load_dataset(DataConfig(name="chestmnist", root=str(path)), seed=0)

    assert dataset.info.task is Task.MULTILABEL
    assert dataset.info.classes == 14
    assert dataset.test.labels.dtype == np.int64
    assert dataset.test.labels.sum(axis=0).tolist() == [0, 0, 0, 5] + [0] * 10


@pytest.mark.data
@needs_data
@pytest.mark.parametrize(
    ("name", "sizes", "channels", "classes"),
    [
        ("pneumoniamnist", (4708, 524, 624), 1, 2),
        ("organamnist", (34561, 6491, 17778), 1, 11),
        ("breastmnist", (546, 78, 156), 1, 2),
        ("retinamnist", (1080, 120, 400), 3, 5),
    ],
)
def test_real_files_have_their_published_sizes_and_every_class(name, sizes, channels, classes):
    dataset = load_dataset(DataConfig(name=name, root=str(Path(TEST_DATA) / "medmnist")), seed=0)

    assert tuple(len(split) for split in (dataset.train, dataset.validation, dataset.test)) == sizes
    assert dataset.train.images.shape[1:] == (channels, 28, 28)
    assert dataset.info.channels == MEDMNIST_2D[name].channels == channels
    assert np.unique(dataset.test.labels).tolist() == list(range(classes))
    assert dataset.info.classes == classes


@pytest.mark.data
@needs_data
def test_a_real_file_with_one_changed_byte_is_refused(tmp_path):
    path = tmp_path / "breastmnist.npz"
    shutil.copyfile(Path(TEST_DATA) / "medmnist" / "breastmnist.npz", path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    with pytest.raises(DataError, match="Expected md5 750601b1f35ba3300ea97c75c52ff8f6"):
        load_dataset(DataConfig(name="breastmnist", root=str(path)), seed=0)


@pytest.mark.data
@needs_data
def test_real_images_equal_those_of_the_medmnist_package():
    package = pytest.importorskip("medmnist", reason="the medmnist package is not installed")
    root = str(Path(TEST_DATA) / "medmnist")
    official = package.RetinaMNIST(split="val", root=root, download=False)

    dataset = load_dataset(DataConfig(name="retinamnist", root=root), seed=0)

    np.testing.assert_array_equal(dataset.validation.images.transpose(0, 2, 3, 1), official.imgs)
    np.testing.assert_array_equal(dataset.validation.labels, official.labels[:, 0])


def test_the_checksum_is_read_in_pieces(tmp_path, monkeypatch):
    path = write_breast_file(tmp_path, monkeypatch)
    monkeypatch.setattr(Path, "read_bytes", None)

    assert medmnist.load_medmnist(DataConfig(name="breastmnist", root=str(path))).info.name == "breastmnist"
