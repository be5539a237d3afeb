"""Images, labels and patients stay together, whatever is taken from a set or joined to it."""

from __future__ import annotations

import numpy as np

from federation.datasets.image_set import ImageSet


def numbered(count: int, *, patients: bool = True) -> ImageSet:
    """Return `count` one-pixel images whose grey value is their label, two images a patient."""
    numbers = np.arange(count)
    return ImageSet(
        images=numbers.astype(np.uint8).reshape(count, 1, 1, 1),
        labels=numbers,
        patients=numbers // 2 if patients else None,
    )


def test_taken_images_keep_their_labels_and_patients() -> None:
    taken = numbered(6).take([5, 0, 3])

    assert taken.images.ravel().tolist() == taken.labels.tolist() == [5, 0, 3]
    assert taken.patients is not None
    assert taken.patients.tolist() == [2, 0, 1]


def test_images_of_unknown_patients_stay_of_unknown_patients() -> None:
    assert numbered(6, patients=False).take([1]).patients is None


def test_joined_sets_keep_patients_where_every_part_knows_them() -> None:
    joined = ImageSet.concatenate([numbered(2), numbered(4)])

    assert joined.patients is not None
    assert joined.patients.tolist() == [0, 0, 0, 0, 1, 1]


def test_joined_sets_of_which_one_knows_no_patients_know_none() -> None:
    assert ImageSet.concatenate([numbered(2), numbered(2, patients=False)]).patients is None
