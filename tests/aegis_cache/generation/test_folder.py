"""Images that already exist: how they are drawn, and every way in which a folder or an archive can be wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from aegis_cache.generation.folder import FolderGenerator
from aegis_cache.store.provenance import Provenance, Source
from federation.errors import GenerationError

NAMES = ("benign", "malignant")


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def write_folder(root, counts=(6, 4), mode="L", size=(5, 3)):
    """Grey values tell the images apart: 0, 1, ... are benign, 100, 101, ... malignant."""
    for label, (name, count) in enumerate(zip(NAMES, counts, strict=True)):
        (root / name).mkdir(parents=True)
        for number in range(count):
            value = 100 * label + number
            Image.new(mode, size, value if mode == "L" else (value, 7, 9)).save(root / name / f"{number:02d}.png")
    return root


def write_archive(path, classes=(0, 0, 1, 1, 0), **changes):
    values = np.array([100 * label + place for place, label in enumerate(np.ravel(classes))], dtype=np.uint8)
    arrays = {"images": np.tile(values[:, None, None], (1, 3, 5)), "labels": np.array(classes)} | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def greys(images):
    return (images[:, 0, 0, 0] * 255).round().int().tolist()


def test_images_are_those_of_their_class_and_none_comes_twice(tmp_path):
    generator = FolderGenerator.read(write_folder(tmp_path), NAMES)

    images = generator.generate(torch.tensor([1, 0, 1]), 2, stream())

    assert images.shape == (6, 1, 3, 5)
    assert images.dtype == torch.float32
    drawn = greys(images)
    assert len(set(drawn)) == 6
    assert [grey >= 100 for grey in drawn] == [True, True, False, False, True, True]


def test_the_whole_stock_can_be_drawn_at_once(tmp_path):
    generator = FolderGenerator.read(write_folder(tmp_path), NAMES)

    images = generator.generate(torch.tensor([0]), 6, stream())

    assert sorted(greys(images)) == [0, 1, 2, 3, 4, 5]


def test_more_than_the_stock_is_refused_with_the_class_and_both_numbers(tmp_path):
    generator = FolderGenerator.read(write_folder(tmp_path), NAMES)

    with pytest.raises(GenerationError, match=r"at least 6 images of class 'malignant'.* found 4"):
        generator.generate(torch.tensor([1, 0, 1]), 3, stream())


def test_the_random_generator_decides_the_order(tmp_path):
    generator = FolderGenerator.read(write_folder(tmp_path, (40, 40)), NAMES)
    labels = torch.tensor([0, 1])

    first, again, other = (greys(generator.generate(labels, 20, stream(seed))) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_labels_follow_the_given_names_and_not_the_alphabet(tmp_path):
    generator = FolderGenerator.read(write_folder(tmp_path), NAMES[::-1])

    images = generator.generate(torch.tensor([0]), 4, stream())

    assert sorted(greys(images)) == [100, 101, 102, 103]


def test_colour_images_and_jpeg_keep_their_channels(tmp_path):
    write_folder(tmp_path, mode="RGB")
    Image.new("RGB", (5, 3), (200, 200, 200)).save(tmp_path / "benign" / "more.JPG")

    images = FolderGenerator.read(tmp_path, NAMES).generate(torch.tensor([0]), 7, stream())

    assert images.shape == (7, 3, 3, 5)
    assert sorted(greys(images)) == [0, 1, 2, 3, 4, 5, 200]
    np.testing.assert_allclose(images[greys(images).index(3), :, 0, 0] * 255, [3, 7, 9], atol=1e-4)


def test_identity_is_public_and_its_digest_follows_content_and_classes(tmp_path):
    write_folder(tmp_path / "a")
    write_folder(tmp_path / "b")
    write_folder(tmp_path / "c")
    Image.new("L", (5, 3), 77).save(tmp_path / "c" / "benign" / "03.png")

    first, same, changed = (FolderGenerator.read(tmp_path / name, NAMES).identity for name in "abc")
    turned = FolderGenerator.read(tmp_path / "a", NAMES[::-1]).identity

    assert (first.kind, first.name, first.settings) == ("folder", "a", {"licence": "licensed", "images": 10})
    assert first.provenance == Provenance.public()
    assert first.digest == same.digest
    assert len({first.digest, changed.digest, turned.digest}) == 3


def test_caller_says_licence_and_provenance(tmp_path):
    given = Provenance(source=Source.PRIVATE_FILTERED, uses=("Images were chosen by hand.",))

    identity = FolderGenerator.read(write_folder(tmp_path), NAMES, licence="CC-BY-4.0", provenance=given).identity

    assert identity.settings["licence"] == "CC-BY-4.0"
    assert identity.provenance == given


def test_missing_and_extra_class_folders_are_listed(tmp_path):
    write_folder(tmp_path)
    (tmp_path / ".cache").mkdir()

    with pytest.raises(GenerationError, match=r"missing \['normal'\], not known \['malignant'\]"):
        FolderGenerator.read(tmp_path, ("benign", "normal"))


def test_class_without_images_is_named(tmp_path):
    write_folder(tmp_path, counts=(3, 0))
    (tmp_path / "malignant" / "notes.txt").touch()

    with pytest.raises(GenerationError, match=r"found none of \['malignant'\]"):
        FolderGenerator.read(tmp_path, NAMES)


def test_file_that_changed_since_it_was_indexed_is_refused(tmp_path):
    generator = FolderGenerator.read(write_folder(tmp_path), NAMES)
    Image.new("L", (5, 3), 77).save(tmp_path / "benign" / "03.png")

    with pytest.raises(GenerationError, match=r"03\.png as it was"):
        generator.generate(torch.tensor([0]), 6, stream())


def test_file_that_is_gone_is_refused(tmp_path):
    generator = FolderGenerator.read(write_folder(tmp_path), NAMES)
    (tmp_path / "benign" / "03.png").unlink()

    with pytest.raises(GenerationError, match=r"readable image at .*03\.png"):
        generator.generate(torch.tensor([0]), 6, stream())


def test_truncated_file_is_refused(tmp_path):
    write_folder(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (3, 5), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "benign" / "03.png")
    content = (tmp_path / "benign" / "03.png").read_bytes()
    (tmp_path / "benign" / "03.png").write_bytes(content[:50])
    generator = FolderGenerator.read(tmp_path, NAMES)

    with pytest.raises(GenerationError, match=r"readable image at .*03\.png"):
        generator.generate(torch.tensor([0]), 6, stream())


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: Image.new("L", (4, 3)).save(path), r"= \(1, 3, 5\) like the first, found \(1, 3, 4\)"),
        (lambda path: Image.new("RGB", (5, 3)).save(path), r"found \(3, 3, 5\)"),
        (lambda path: Image.new("I;16", (5, 3)).save(path), "mode I;16"),
        (lambda path: path.write_bytes(b"no image"), "readable image"),
    ],
)
def test_image_unlike_the_others_is_named(tmp_path, write, message):
    write_folder(tmp_path)
    write(tmp_path / "malignant" / "odd.png")

    with pytest.raises(GenerationError, match=message) as caught:
        FolderGenerator.read(tmp_path, NAMES)

    assert "odd.png" in str(caught.value)


@pytest.mark.parametrize("labels", [(0, 0, 1, 1, 0), ((0,), (0,), (1,), (1,), (0,))])
def test_archive_is_drawn_from_like_a_folder(tmp_path, labels):
    generator = FolderGenerator.read(write_archive(tmp_path / "stock.npz", labels), NAMES)

    images = generator.generate(torch.tensor([1, 0]), 2, stream())

    assert images.shape == (4, 1, 3, 5)
    assert sorted(greys(images)[:2]) == [102, 103]
    assert set(greys(images)[2:]) < {0, 1, 4}


def test_class_names_of_an_archive_decide_what_its_labels_mean(tmp_path):
    path = write_archive(tmp_path / "stock.npz", class_names=np.array(NAMES[::-1]))

    images = FolderGenerator.read(path, NAMES).generate(torch.tensor([0]), 2, stream())

    assert sorted(greys(images)) == [102, 103]


def test_digest_of_an_archive_follows_its_pixels(tmp_path):
    first = write_archive(tmp_path / "a.npz")
    second = write_archive(tmp_path / "b.npz", images=np.zeros((5, 3, 5), np.uint8))

    digests = {FolderGenerator.read(path, NAMES).identity.digest for path in (first, second)}

    assert len(digests) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": None}, "arrays images and labels"),
        ({"images": np.zeros((5, 3, 5))}, "uint8 .* found float64"),
        ({"images": np.zeros((5, 3, 5, 2), np.uint8)}, "uint8 of shape"),
        ({"labels": np.array([0, 0, 1, 1])}, "found 4 labels"),
        ({"labels": np.array([0, 0, 1, 1, 2])}, r"from 0 to 1 .* \[0, 1, 2\]"),
        ({"labels": np.array([0, 0, 1, 1, -1])}, r"from 0 to 1 .* \[-1, 0, 1\]"),
        ({"labels": np.array([0.0, 0, 1, 1, 1])}, "whole numbers"),
        ({"labels": np.zeros((5, 2), np.int64)}, r"whole numbers .*\(5, 2\)"),
        ({"labels": np.array(3)}, "found 1 labels"),
        ({"labels": np.zeros(5, np.int64)}, r"found none of \['malignant'\]"),
        ({"class_names": np.array(["benign", "normal"])}, r"missing \['malignant'\], not known \['normal'\]"),
    ],
)
def test_archive_of_another_kind_is_refused(tmp_path, changes, message):
    path = write_archive(tmp_path / "stock.npz", **changes)

    with pytest.raises(GenerationError, match=message):
        FolderGenerator.read(path, NAMES)


def test_path_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(GenerationError, match="NPZ archive"):
        FolderGenerator.read(tmp_path / "nowhere", NAMES)


def test_label_that_names_no_class_is_refused(tmp_path):
    generator = FolderGenerator.read(write_folder(tmp_path), NAMES)

    with pytest.raises(GenerationError, match=r"found \[2\]"):
        generator.generate(torch.tensor([2]), 1, stream())
