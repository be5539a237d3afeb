"""Poisson samples of images or patients, and their division into what fits into memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from client_app.dp_sgd.units import Sample, count_units, group_units
from federation.config import PrivacyConfig
from federation.datasets.image_set import ImageSet
from federation.errors import SiteError, SiteErrorCode
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.streams import Seeded, Silent, images_of_patients

RECORD = PrivacyConfig(mechanism="dp-sgd")


def patient(images_per_patient: int = 1) -> PrivacyConfig:
    return PrivacyConfig(mechanism="dp-sgd", unit="patient", images_per_patient=images_per_patient)


def test_every_image_is_a_unit_of_its_own_unless_patients_are_protected() -> None:
    images = images_of_patients([4, 4, 9, 4, -2])

    assert count_units(images, RECORD) == 5
    assert count_units(images, patient()) == 3


def test_each_unit_is_sampled_independently_with_the_probability() -> None:
    units, noise = group_units(make_images(400), RECORD), Seeded(0)

    drawn = np.zeros((2000, 400), dtype=bool)
    for row in drawn:
        row[units.sample(0.1, noise).indices] = True

    # Binomial tails: 400 units at 5 standard deviations each, and the spread of the sizes.
    assert np.abs(drawn.mean(axis=0) - 0.1).max() < 5 * np.sqrt(0.09 / 2000)
    assert drawn.sum(axis=1).var() == pytest.approx(400 * 0.09, rel=0.15)
    correlation = np.corrcoef(drawn[:, :50].T.astype(float)) - np.eye(50)
    assert np.abs(correlation).max() < 5 / np.sqrt(2000)


def test_sample_follows_the_private_stream_alone() -> None:
    noise = Seeded(3)

    sample = group_units(make_images(50), RECORD).sample(0.3, noise)

    assert sample.indices.tolist() == torch.nonzero(noise.drawn[0] < 0.3).flatten().tolist()
    assert sample.sizes.tolist() == [1] * len(sample.indices)


@pytest.mark.parametrize("privacy", [RECORD, patient(), patient(3)])
def test_sample_may_be_empty(privacy: PrivacyConfig) -> None:
    sample = group_units(images_of_patients([1, 1, 2]), privacy).sample(0.5, Silent(drawn=0.5))

    assert len(sample.indices) == len(sample.sizes) == 0
    assert list(sample.pieces(8)) == []


def test_probability_of_one_samples_everybody_whatever_is_drawn() -> None:
    largest_below_one = float(np.nextafter(1.0, 0.0))

    assert len(group_units(make_images(7), RECORD).sample(1.0, Silent(drawn=largest_below_one)).indices) == 7


@given(
    patients=st.lists(st.integers(-3, 6), min_size=1, max_size=40),
    limit=st.integers(1, 5),
    probability=st.floats(0, 1),
    seed=st.integers(0, 2**20),
)
def test_sampled_patients_bring_their_own_images_and_never_more_than_the_limit(
    patients: list[int], limit: int, probability: float, seed: int
) -> None:
    noise = Seeded(seed)

    sample = group_units(images_of_patients(patients), patient(limit)).sample(probability, noise)

    names = np.unique(patients)
    expected = names[noise.drawn[0].numpy() < probability]
    blocks = np.split(sample.indices, np.cumsum(sample.sizes)[:-1]) if len(sample.sizes) else []
    assert [set(np.array(patients)[block]) for block in blocks] == [{name} for name in expected]
    assert sample.sizes.tolist() == [min(limit, patients.count(name)) for name in expected]
    assert len(set(sample.indices.tolist())) == len(sample.indices)


def test_each_image_of_a_patient_is_chosen_equally_often() -> None:
    units, noise = group_units(images_of_patients([1, 2, 1, 1, 1, 2, 1]), patient(2)), Seeded(0)

    counts = np.zeros(7)
    for _ in range(4000):
        counts[units.everyone(noise).indices] += 1

    assert counts[[1, 5]].tolist() == [4000, 4000]
    assert np.abs(counts[[0, 2, 3, 4, 6]] / 4000 - 2 / 5).max() < 5 * np.sqrt(0.24 / 4000)


@given(sizes=st.lists(st.integers(1, 6), max_size=30), largest=st.integers(1, 12))
def test_pieces_are_whole_units_in_order_and_no_larger_than_asked(sizes: list[int], largest: int) -> None:
    sample = Sample(indices=np.arange(sum(sizes)), sizes=np.array(sizes, dtype=np.int64))

    pieces = list(sample.pieces(largest))

    assert [place for piece in pieces for place in piece.indices] == list(range(sum(sizes)))
    assert [size for piece in pieces for size in piece.sizes] == sizes
    assert all(len(piece.indices) == piece.sizes.sum() for piece in pieces)
    assert all(len(piece.indices) <= largest or len(piece.sizes) == 1 for piece in pieces)
    joined = [len(left.indices) + int(right.sizes[0]) for left, right in itertools.pairwise(pieces)]
    assert all(total > largest for total in joined)


def test_patients_without_numbers_are_refused_with_the_remedy() -> None:
    with pytest.raises(SiteError, match=r"patient's number .* add the array train_patients") as refused:
        group_units(make_images(3), patient())

    assert refused.value.code is SiteErrorCode.CONFIGURATION


def test_split_without_images_is_refused() -> None:
    empty = ImageSet(images=np.zeros((0, 1, 4, 4), np.uint8), labels=np.zeros(0, np.int64))

    with pytest.raises(SiteError, match="at least 1 image") as refused:
        count_units(empty, RECORD)

    assert refused.value.code is SiteErrorCode.EMPTY_SPLIT
