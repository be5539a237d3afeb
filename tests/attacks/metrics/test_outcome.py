"""An outcome counts every real image once and every usable candidate once, and pooling keeps both."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attacks.metrics.identity import Gallery
from attacks.metrics.nulls import guess_mean
from attacks.metrics.outcome import CandidateTruth, Outcome, measure, measure_null, pool
from attacks.metrics.pairing import pair_by_best, pair_by_hungarian, pair_by_oracle
from attacks.metrics.quality import measure_psnr, measure_ssim
from federation.errors import DataError
from tests.attacks.metrics.made_up_images import at_psnr, make_images, make_nothing


def oracle(*positions: int):
    return pair_by_oracle(np.array(positions))


def test_one_nan_candidate_fails_its_own_image_and_spoils_no_other() -> None:
    real = make_images(4, 0)
    candidates = at_psnr(real, 35.0)
    candidates[2, 0, 0, 0] = math.nan

    outcome = measure(real, candidates, oracle(0, 1, 2, 3), gallery=Gallery(images=real, positions=np.arange(4)))

    clean = measure_ssim(real, at_psnr(real, 35.0))
    assert outcome.psnr_db == pytest.approx([35.0, 35.0, 0.0, 35.0])
    assert outcome.answered.tolist() == [True, True, False, True]
    assert outcome.ssim == pytest.approx([clean[0], clean[1], 0.0, clean[3]])
    assert outcome.identified is not None
    assert outcome.identified.tolist() == [True, True, False, True]
    assert outcome.candidates.non_empty == 3


def test_each_image_is_measured_against_the_candidate_it_is_paired_with() -> None:
    real, candidates = make_images(3, 0), make_images(5, 1)

    outcome = measure(real, candidates, oracle(4, 0, 4))

    assert outcome.psnr_db.tolist() == measure_psnr(real, candidates[[4, 0, 4]]).capped_db.tolist()
    assert outcome.raw_psnr_db.tolist() == measure_psnr(real, candidates[[4, 0, 4]]).raw_db.tolist()
    assert outcome.ssim.tolist() == measure_ssim(real, candidates[[4, 0, 4]]).tolist()
    assert outcome.identified is None


@pytest.mark.parametrize(("psnr_db", "real_count"), [(29.9, 0), (30.1, 2)])
def test_candidate_shows_a_real_image_when_it_matches_one_at_30_db(psnr_db: float, real_count: int) -> None:
    real = make_images(2, 0)
    candidates = np.concatenate([at_psnr(real, psnr_db), make_images(3, 1), make_nothing(2)])

    counts = measure(real, candidates, oracle(-1, -1)).candidates

    assert (counts.non_empty, counts.real, counts.basis) == (5, real_count, "match-at-30-db")
    assert (counts.isolated, counts.isolated_real) == (None, None)


def test_what_the_harness_knows_of_candidates_goes_before_their_looks() -> None:
    candidates = np.concatenate([make_images(4, 1), make_nothing(1)])
    truth = CandidateTruth(
        isolated=np.array([True, True, False, True, True]), shows_real=np.array([True, False, True, False, True])
    )

    counts = measure(make_images(2, 0), candidates, oracle(0, 1), truth=truth).candidates

    assert (counts.non_empty, counts.real, counts.isolated, counts.isolated_real) == (4, 2, 3, 1)
    assert counts.basis == "occupants"


@pytest.mark.parametrize("mask", [np.array([True]), np.array([1, 0])])
def test_truth_that_does_not_fit_the_candidates_is_refused(mask: np.ndarray) -> None:
    images = make_images(2, 0)

    with pytest.raises(DataError, match="truth as booleans of shape"):
        measure(images, images, oracle(0, 1), truth=CandidateTruth(isolated=mask))


def test_pairing_of_another_number_of_images_is_refused() -> None:
    with pytest.raises(DataError, match="each of 2 images, found 1"):
        measure(make_images(2, 0), make_images(2, 0), oracle(0))


def test_null_is_measured_as_the_reconstruction_that_it_would_be() -> None:
    real, auxiliary = make_images(3, 0), make_images(9, 1)

    outcome = measure_null(real, guess_mean(real, auxiliary))

    mean = np.repeat(auxiliary.mean(axis=0, keepdims=True), 3, axis=0)
    assert outcome.psnr_db == pytest.approx(measure_psnr(real, mean).capped_db)
    assert outcome.pairing == "oracle"


def measured(count: int, seed: int) -> Outcome:
    real = make_images(count, seed)
    candidates = np.concatenate([at_psnr(real, 20.0 + 10 * seed), make_nothing(1)])
    truth = CandidateTruth(isolated=np.arange(count + 1) == 0)
    gallery = Gallery(images=real, positions=np.arange(count))
    return measure(real, candidates, pair_by_hungarian(real, candidates), truth=truth, gallery=gallery)


def test_pooled_outcome_holds_every_image_and_every_candidate_once() -> None:
    parts = [measured(2, 1), measured(5, 2), pool([measured(1, 0), measured(2, 0)])]

    whole = pool(parts)

    assert whole.pairing == "hungarian"
    assert whole.batches == 4
    for name in ("psnr_db", "raw_psnr_db", "ssim", "answered", "identified"):
        assert getattr(whole, name).tolist() == [value for part in parts for value in getattr(part, name)], name
    for name in ("non_empty", "real", "isolated", "isolated_real"):
        assert getattr(whole.candidates, name) == sum(getattr(part.candidates, name) for part in parts), name
    assert (whole.candidates.non_empty, whole.candidates.isolated) == (10, 4)
    assert whole.candidates.basis == "match-at-30-db"


def test_outcomes_of_different_pairings_are_not_pooled() -> None:
    real = make_images(2, 0)
    outcomes = [measure(real, real, pair(real, real)) for pair in (pair_by_hungarian, pair_by_best)]

    with pytest.raises(DataError, match="measured in one way, found 2"):
        pool(outcomes)


@pytest.mark.parametrize(
    "other",
    [
        {"truth": CandidateTruth(isolated=np.array([True, True]))},
        {"truth": CandidateTruth(shows_real=np.array([True, True]))},
        {"gallery": Gallery(images=make_images(2, 0), positions=np.arange(2))},
    ],
)
def test_outcomes_that_know_different_things_are_not_pooled(other: dict) -> None:
    real = make_images(2, 0)

    with pytest.raises(DataError, match="measured in one way, found 2"):
        pool([measure(real, real, oracle(0, 1)), measure(real, real, oracle(0, 1), **other)])


def test_pooling_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="found 0"):
        pool([])
