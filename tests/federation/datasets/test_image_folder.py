"""Folders of PNG and JPEG files: both layouts, and every way in which a folder can be wrong."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from federation.config import DataConfig
from federation.datasets import load_dataset
from federation.errors import ConfigurationError, DataError


def write_image(path, value=0, size=(6, 5), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = value if mode in ("L", "P", "I;16") else (value, 255 - value, 7)[: len(mode)]
    Image.new(mode, size, colour).save(path)


def write_class(folder, count, start=0, suffix=".png", mode="L"):
    for number in range(count):
        write_image(folder / f"{number:03d}{suffix}", value=start + number, mode=mode)


def write_pool(root, count=20):
    write_class(root / "benign", count)
    write_class(root / "malignant", count, start=100)


def load(root, seed=0):
    return load_dataset(DataConfig(name="folder", root=str(root)), seed=seed)


def test_pooled_images_are_split_and_their_classes_named_by_folder(tmp_path):
    write_pool(tmp_path)

    dataset = load(tmp_path)

    assert dataset.info.class_names == ("benign", "malignant")
    assert (dataset.info.channels, dataset.info.height, dataset.info.width) == (1, 5, 6)
    shown = []
    for split in (dataset.train, dataset.validation, dataset.test):
        assert split.images.shape[1:] == (1, 5, 6)
        np.testing.assert_array_equal(split.labels, split.images[:, 0, 0, 0] >= 100)
        shown += split.images[:, 0, 0, 0].tolist()
    assert sorted(shown) == [*range(20), *range(100, 120)]


def test_images_added_and_files_renamed_move_no_image_between_splits(tmp_path):
    write_pool(tmp_path)
    before = load(tmp_path)
    for number, path in enumerate(sorted((tmp_path / "benign").iterdir())):
        path.rename(path.with_name(f"z{-number % 20:03d}.png"))
    write_class(tmp_path / "benign", 7, start=200)

    after = load(tmp_path)

    for split in ("train", "validation", "test"):
        first, second = ({*getattr(dataset, split).images[:, 0, 0, 0].tolist()} for dataset in (before, after))
        assert first == second - {*range(200, 207)}


def test_existing_splits_are_kept(tmp_path):
    for split, count in (("train", 5), ("val", 3), ("test", 2)):
        write_class(tmp_path / split / "a", count, start=10 * count)
        write_class(tmp_path / split / "b", count, start=100 + 10 * count)

    dataset = load(tmp_path)

    assert dataset.train.images[:, 0, 0, 0].tolist() == [50, 51, 52, 53, 54, 150, 151, 152, 153, 154]
    assert dataset.validation.images[:, 0, 0, 0].tolist() == [30, 31, 32, 130, 131, 132]
    assert dataset.test.labels.tolist() == [0, 0, 1, 1]


def test_colours_become_three_channels_in_order(tmp_path):
    write_class(tmp_path / "a", 10, start=20, mode="RGB")
    write_class(tmp_path / "b", 10, start=60, mode="RGB")

    dataset = load(tmp_path)

    red, green, blue = dataset.train.images[0, :, 0, 0].tolist()
    assert dataset.info.channels == 3
    assert (green, blue) == (255 - red, 7)


@pytest.mark.parametrize("suffix", [".png", ".PNG", ".jpg", ".jpeg", ".JPEG"])
def test_png_and_jpeg_files_are_read_whatever_the_case_of_their_suffix(tmp_path, suffix):
    write_class(tmp_path / "a", 10, suffix=suffix)
    write_class(tmp_path / "b", 10, suffix=suffix)

    dataset = load(tmp_path)
    assert sum(map(len, (dataset.train, dataset.validation, dataset.test))) == 20


def test_hidden_folders_and_other_files_are_passed_over(tmp_path):
    write_pool(tmp_path)
    (tmp_path / ".thumbnails").mkdir()
    (tmp_path / "benign" / "notes.txt").write_text("none", encoding="utf-8")
    (tmp_path / "LICENSE").write_text("none", encoding="utf-8")

    dataset = load(tmp_path)

    assert dataset.info.class_names == ("benign", "malignant")
    assert sum(map(len, (dataset.train, dataset.validation, dataset.test))) == 40


@pytest.mark.parametrize("names", [(), ("only",)])
def test_fewer_than_two_classes_are_refused(tmp_path, names):
    for name in names:
        write_class(tmp_path / name, 5)

    with pytest.raises(DataError, match=rf"two or more class folders in .*, found \[{', '.join(map(repr, names))}\]"):
        load(tmp_path)


def test_a_class_without_images_is_refused(tmp_path):
    write_pool(tmp_path)
    (tmp_path / "normal").mkdir()

    with pytest.raises(DataError, match=r"file in the class folder .*normal, found none"):
        load(tmp_path)


def test_an_image_of_another_size_is_named_with_both_sizes(tmp_path):
    write_pool(tmp_path)
    write_image(tmp_path / "malignant" / "odd.png", size=(8, 5))

    with pytest.raises(DataError, match=r"to be 5x6 pixels with 1 .* found 5x8 pixels with 1 .* in .*odd\.png"):
        load(tmp_path)


def test_an_image_with_other_channels_is_named_with_both_numbers(tmp_path):
    write_pool(tmp_path)
    write_image(tmp_path / "malignant" / "odd.png", mode="RGB")

    with pytest.raises(DataError, match=r"pixels with 1 channel.* found 5x6 pixels with 3 channel.* in .*odd\.png"):
        load(tmp_path)


def test_images_of_the_test_split_must_have_the_size_of_the_training_images(tmp_path):
    for split in ("train", "val", "test"):
        write_class(tmp_path / split / "a", 2)
        write_class(tmp_path / split / "b", 2)
    for number in range(2):
        write_image(tmp_path / "test" / "a" / f"{number:03d}.png", size=(9, 9))

    with pytest.raises(DataError, match=r"found 9x9 pixels .*000\.png"):
        load(tmp_path)


@pytest.mark.parametrize("mode", ["RGBA", "P", "I;16", "LA"])
def test_an_image_that_is_neither_grey_nor_rgb_is_refused_rather_than_converted(tmp_path, mode):
    write_pool(tmp_path)
    write_image(tmp_path / "malignant" / "odd.png", mode=mode)

    with pytest.raises(DataError, match=rf"in .*odd\.png, found mode {mode}: convert it"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no image", None])
def test_an_unreadable_image_is_named(tmp_path, content):
    write_pool(tmp_path)
    broken = tmp_path / "benign" / "broken.png"
    pixels = np.random.default_rng(0).integers(0, 256, size=(64, 64), dtype=np.uint8)
    Image.fromarray(pixels).save(broken)
    broken.write_bytes(broken.read_bytes()[:300] if content is None else content)

    with pytest.raises(DataError, match=r"readable image at .*broken\.png, found"):
        load(tmp_path)


def _shorten_first_chunk_of_pixels(path):
    content = path.read_bytes()
    start = content.index(b"IDAT")
    path.write_bytes(content[: start - 4] + (10).to_bytes(4, "big") + content[start:])


def _add_text_that_inflates_to_two_megabytes(path):
    text = PngInfo()
    text.add_text("comment", "x" * 2_000_000, zip=True)
    Image.new("L", (6, 5)).save(path, pnginfo=text)


@pytest.mark.parametrize("damage", [_shorten_first_chunk_of_pixels, _add_text_that_inflates_to_two_megabytes])
def test_a_malformed_png_is_named(tmp_path, damage):
    write_pool(tmp_path)
    Image.effect_noise((64, 64), 50).save(tmp_path / "benign" / "broken.png")
    damage(tmp_path / "benign" / "broken.png")

    with pytest.raises(DataError, match=r"readable image at .*broken\.png, found"):
        load(tmp_path)


def test_an_image_of_absurd_size_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    write_pool(tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)

    with pytest.raises(DataError, match=r"readable image at .*000\.png, found: Image size \(30 pixels\)"):
        load(tmp_path)


def test_an_incomplete_set_of_splits_is_refused(tmp_path):
    write_class(tmp_path / "train" / "a", 2)
    write_class(tmp_path / "test" / "a", 2)

    with pytest.raises(DataError, match=r"exactly the folders train, val and test .*, found \['test', 'train'\]"):
        load(tmp_path)


def test_splits_with_different_classes_are_refused(tmp_path):
    for split, other in (("train", "b"), ("val", "b"), ("test", "c")):
        write_class(tmp_path / split / "a", 2)
        write_class(tmp_path / split / other, 2)

    with pytest.raises(DataError, match=r"classes \['a', 'b'\] of train in .*test, found \['a', 'c'\]"):
        load(tmp_path)


def test_a_file_as_root_is_refused(tmp_path):
    write_image(tmp_path / "one.png")

    with pytest.raises(DataError, match="Expected a folder at"):
        load(tmp_path / "one.png")


def test_a_relative_root_is_refused():
    with pytest.raises(ConfigurationError, match="an absolute path, found 'images'"):
        load("images")
