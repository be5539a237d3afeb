"""One hospital's data: its share, its scanner, its own file, and the union of all tests."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from federation.config import DataConfig
from federation.datasets import load_dataset, sites
from federation.datasets.sites import load_own_folder, load_site, load_union_test, site_shift
from federation.errors import ConfigurationError, DataError, PartitionError

PHANTOM = DataConfig(phantom_examples=300)


def write_archive(path, classes=2, side=3, count=30, value=0, names=None):
    """Write `count` different images whose first pixel is `value`."""
    images = np.full((count, side, side), value, np.uint8)
    images[:, -1, -1] = np.arange(count)
    arrays = {"images": images, "labels": np.arange(count) % classes}
    if names is not None:
        arrays["class_names"] = np.array(names)
    np.savez(path, **arrays)


def by_file(root, **options):
    return DataConfig(name="npz", root=str(root), partition="by-file", **options)


def test_the_hospitals_together_hold_the_whole_data_set():
    whole = load_dataset(PHANTOM, seed=1)

    parts = [load_site(PHANTOM, site=site, sites=5, seed=1) for site in range(5)]

    for split in ("train", "validation", "test"):
        images = np.concatenate([getattr(part, split).images for part in parts])
        assert sorted(map(bytes, images)) == sorted(map(bytes, getattr(whole, split).images))
    assert all(part.info == whole.info for part in parts)


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_the_union_test_is_the_hospitals_tests_in_site_order(shift):
    data = PHANTOM.model_copy(update={"site_shift": shift})

    union = load_union_test(data, sites=4, seed=1)

    tests = [load_site(data, site=site, sites=4, seed=1).test for site in range(4)]
    np.testing.assert_array_equal(union.images, np.concatenate([test.images for test in tests]))
    np.testing.assert_array_equal(union.labels, np.concatenate([test.labels for test in tests]))


def test_many_hospitals_of_one_process_load_and_divide_once(monkeypatch):
    calls = []
    for name in ("load_dataset", "assign"):
        original = getattr(sites, name)

        def count(*args, name=name, original=original, **kwargs):
            calls.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(sites, name, count)
    data = DataConfig(phantom_examples=301)

    for site in range(10):
        load_site(data, site=site, sites=10, seed=77)
    load_union_test(data, sites=10, seed=77)

    assert sorted(calls) == ["assign", "load_dataset"]


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_no_hospital_can_write_to_what_it_is_given(shift):
    data = PHANTOM.model_copy(update={"site_shift": shift})

    part = load_site(data, site=0, sites=2, seed=1)
    union = load_union_test(data, sites=2, seed=1)

    for split in (part.train, part.validation, part.test, union):
        assert not split.images.flags.writeable
        assert not split.labels.flags.writeable


@pytest.mark.parametrize("site", [-1, 3, 4])
def test_a_site_out_of_range_is_refused(site):
    with pytest.raises(PartitionError, match=f"0 <= site={site} < sites=3"):
        load_site(PHANTOM, site=site, sites=3, seed=0)


def test_fewer_than_one_hospital_is_refused():
    with pytest.raises(PartitionError, match="Expected sites=0 >= 1"):
        load_union_test(PHANTOM, sites=0, seed=0)


def test_a_shift_of_strength_zero_returns_the_same_array():
    images = np.arange(12, dtype=np.uint8)

    assert site_shift(images, strength=0.0, site=3, seed=0) is images


def test_a_shift_is_a_clipped_gain_and_offset_that_differ_by_site_and_seed():
    images = np.arange(256, dtype=np.uint8)
    before = images.copy()

    shifted = [site_shift(images, strength=0.4, site=site, seed=seed) for site, seed in ((0, 0), (1, 0), (0, 1))]
    again = site_shift(images, strength=0.4, site=0, seed=0)

    np.testing.assert_array_equal(images, before)
    np.testing.assert_array_equal(shifted[0], again)
    assert len({bytes(curve) for curve in shifted}) == 3
    for curve in shifted:
        inside = np.flatnonzero((curve > 0) & (curve < 255))
        slope, offset = np.polyfit(inside, curve[inside].astype(float), 1)
        assert abs(slope - 1) <= 0.5 * 0.4 + 0.01
        assert abs(offset) <= 64 * 0.4 + 1
        np.testing.assert_allclose(curve, np.clip(slope * images.astype(float) + offset, 0, 255), atol=1)


def test_a_strong_shift_clips_and_never_wraps_around():
    images = np.arange(256, dtype=np.uint8)

    for site in range(50):
        curve = site_shift(images, strength=1.0, site=site, seed=0).astype(int)
        assert (np.diff(curve) >= 0).all()


def test_the_shift_is_applied_to_every_split_of_a_hospital():
    shifted_data = PHANTOM.model_copy(update={"site_shift": 0.5})

    plain = load_site(PHANTOM, site=1, sites=3, seed=2)
    shifted = load_site(shifted_data, site=1, sites=3, seed=2)

    for split in ("train", "validation", "test"):
        expected = site_shift(getattr(plain, split).images, strength=0.5, site=1, seed=2)
        np.testing.assert_array_equal(getattr(shifted, split).images, expected)
        assert not np.array_equal(getattr(plain, split).images, expected)


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_patients_stay_with_their_images_at_a_simulated_hospital(tmp_path, shift):
    labels = np.arange(60) % 2
    images = np.arange(60, dtype=np.uint8)[:, None, None] * np.ones((4, 4), np.uint8)
    np.savez(tmp_path / "all.npz", images=images, labels=labels, patients=np.arange(60) * 3)
    data = DataConfig(name="npz", root=str(tmp_path), site_shift=shift, partition="iid")
    plain = data.model_copy(update={"site_shift": 0.0})

    parts = [load_site(data, site=site, sites=2, seed=0).train for site in range(2)]

    for site, part in enumerate(parts):
        grey_values = load_site(plain, site=site, sites=2, seed=0).train.images[:, 0, 0, 0]
        assert part.patients is not None
        assert part.patients.tolist() == (grey_values.astype(int) * 3).tolist()
        assert not part.patients.flags.writeable


def test_by_file_gives_each_hospital_one_file_in_name_order(tmp_path):
    for name, value in (("b", 20), ("a", 10), ("c", 30)):
        write_archive(tmp_path / f"{name}.npz", value=value)

    parts = [load_site(by_file(tmp_path), site=site, sites=3, seed=0) for site in range(3)]

    assert [int(part.train.images[0, 0, 0, 0]) for part in parts] == [10, 20, 30]
    union = load_union_test(by_file(tmp_path), sites=3, seed=0)
    assert union.images[:, 0, 0, 0].tolist() == [
        value for part, value in zip(parts, (10, 20, 30), strict=True) for _ in range(len(part.test))
    ]


def test_by_file_gives_each_hospital_one_folder_of_images(tmp_path):
    for hospital, value in (("north", 10), ("south", 20)):
        for name in ("benign", "malignant"):
            (tmp_path / hospital / name).mkdir(parents=True)
            for number in range(30):
                image = Image.new("L", (3, 3), value)
                image.putpixel((2, 2), number)
                image.save(tmp_path / hospital / name / f"{number}.png")
    data = DataConfig(name="folder", root=str(tmp_path), partition="by-file")

    parts = [load_site(data, site=site, sites=2, seed=0) for site in range(2)]

    assert [int(part.test.images[0, 0, 0, 0]) for part in parts] == [10, 20]


def test_by_file_refuses_more_hospitals_than_files(tmp_path):
    write_archive(tmp_path / "a.npz")

    with pytest.raises(PartitionError, match=r"at most 1 hospitals, .* found sites=2"):
        load_site(by_file(tmp_path), site=0, sites=2, seed=0)


@pytest.mark.parametrize("difference", [{"classes": 3}, {"side": 4}, {"names": ["x", "y"]}])
def test_by_file_refuses_a_hospital_whose_classes_or_shape_differ_from_the_first(tmp_path, difference):
    write_archive(tmp_path / "a.npz")
    write_archive(tmp_path / "b.npz", **difference)

    with pytest.raises(DataError, match=r"to match .*\['0', '1'\] .*\(1, 3, 3\) of .*a\.npz, found .* in .*b\.npz"):
        load_site(by_file(tmp_path), site=1, sites=2, seed=0)


def test_by_file_refuses_a_hospital_below_the_minimum(tmp_path):
    write_archive(tmp_path / "a.npz")

    found = len(load_own_folder(by_file(tmp_path / "a.npz"), seed=0).validation)

    with pytest.raises(PartitionError, match=rf"{found + 1} validation images for 1 .*, found {found}"):
        load_site(by_file(tmp_path, min_examples=found + 1), site=0, sites=1, seed=0)


def test_by_file_refuses_data_that_are_not_files_of_hospitals(tmp_path):
    data = DataConfig(name="pneumoniamnist", root=str(tmp_path), partition="by-file")

    with pytest.raises(PartitionError, match=r"'folder' or 'npz' .*, found 'pneumoniamnist'"):
        load_site(data, site=0, sites=1, seed=0)


def test_a_deployed_hospital_reads_its_own_data_whole_and_unshifted(tmp_path):
    write_archive(tmp_path / "own.npz", value=90)
    data = DataConfig(name="npz", root=str(tmp_path), partition="by-file", site_shift=1.0)

    dataset = load_own_folder(data, seed=0)

    images = np.concatenate([split.images for split in (dataset.train, dataset.validation, dataset.test)])
    assert sorted(images[:, 0, -1, -1].tolist()) == list(range(30))
    assert (images[:, 0, 0] == 90).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DataConfig(name="npz"), "Expected data.root to say where the 'npz' data are"),
        (DataConfig(name="pneumoniamnist"), "Expected data.root to say where the 'pneumoniamnist' data are"),
        (DataConfig(name="phantom"), "found 'phantom', which reads none"),
    ],
)
def test_a_deployed_hospital_without_data_of_its_own_is_refused(data, message):
    with pytest.raises(ConfigurationError, match=message):
        load_own_folder(data, seed=0)
