"""The report counts against all real images, and its rates, subsets and excesses follow from the images' PSNRs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.metrics.identity import Gallery
from attacks.metrics.intervals import Share
from attacks.metrics.nulls import NullName
from attacks.metrics.outcome import CandidateCounts, Outcome, measure, pool
from attacks.metrics.pairing import pair_by_oracle
from attacks.metrics.recovery import RecoveryReport, report
from federation.errors import DataError
from tests.attacks.metrics.made_up_images import at_psnr, make_images, make_nothing

thorough = settings(max_examples=60, deadline=None)
decibels = st.lists(st.floats(0, 100), min_size=1, max_size=30)


def outcome_of(psnr_db: list[float], *, identified: list[bool] | None = None) -> Outcome:
    """Return an outcome with these PSNRs and SSIMs of a hundredth of them."""
    values = np.array(psnr_db, dtype=np.float64)
    return Outcome(
        pairing="oracle",
        batches=1,
        answered=values > 0,
        psnr_db=values,
        raw_psnr_db=np.where(values == 100, np.inf, values),
        ssim=values / 100,
        identified=None if identified is None else np.array(identified),
        candidates=CandidateCounts(non_empty=8, real=2, isolated=4, isolated_real=1, basis="occupants"),
    )


def hits_of(found: RecoveryReport) -> list[int]:
    return [rate.recovered.hits for rate in found.rates]


def test_rates_count_images_above_each_threshold_against_all_images() -> None:
    found = report(outcome_of([0.0, 18.0, 18.1, 24.1, 30.0, 30.1, 40.0, 100.0]), tau_star_db=26.7)

    assert [rate.threshold_db for rate in found.rates] == [18.0, 24.0, 30.0, 40.0, 26.7]
    assert [rate.calibrated for rate in found.rates] == [False, False, False, False, True]
    assert [rate.recovered for rate in found.rates] == [Share.of(hits, 8) for hits in (6, 5, 3, 1, 4)]
    assert (found.images, found.unanswered, found.exact_copies) == (8, 1, 1)


def test_unanswered_images_stay_in_the_denominator() -> None:
    real = make_images(4, 0)
    candidates = np.concatenate([at_psnr(real[:1], 35.0), make_nothing(1)])

    found = report(measure(real, candidates, pair_by_oracle(np.array([0, 1, -1, -1]))))

    assert found.rates[0].recovered == Share.of(1, 4)
    assert found.unanswered == 3
    assert found.psnr_db == pytest.approx(35.0 / 4)
    assert found.raw_psnr_db == pytest.approx(35.0 / 4)


@thorough
@given(psnr_db=decibels)
def test_rate_never_rises_with_the_threshold(psnr_db: list[float]) -> None:
    hits = hits_of(report(outcome_of(psnr_db)))

    assert hits == sorted(hits, reverse=True)


@thorough
@given(psnr_db=decibels, tau=st.floats(0, 99))
def test_subsets_average_to_the_mean_over_all(psnr_db: list[float], tau: float) -> None:
    found = report(outcome_of(psnr_db), tau_star_db=tau)

    for rate in found.rates:
        hits, rest = rate.recovered.hits, found.images - rate.recovered.hits
        assert (rate.success_psnr_db is None, rate.success_ssim is None) == (hits == 0, hits == 0)
        assert (rate.failure_psnr_db is None, rate.failure_ssim is None) == (rest == 0, rest == 0)
        psnr_sum = hits * (rate.success_psnr_db or 0) + rest * (rate.failure_psnr_db or 0)
        ssim_sum = hits * (rate.success_ssim or 0) + rest * (rate.failure_ssim or 0)
        assert psnr_sum / found.images == pytest.approx(found.psnr_db, abs=1e-9)
        assert ssim_sum / found.images == pytest.approx(found.ssim, abs=1e-9)


def test_subsets_are_split_at_their_threshold() -> None:
    rate = report(outcome_of([10.0, 16.0, 20.0, 50.0])).rates[0]

    assert (rate.failure_psnr_db, rate.success_psnr_db) == pytest.approx((13.0, 35.0))
    assert (rate.failure_ssim, rate.success_ssim) == pytest.approx((0.13, 0.35))


@thorough
@given(psnr_db=decibels, tau=st.floats(0, 99))
def test_excess_of_a_null_over_itself_is_zero(psnr_db: list[float], tau: float) -> None:
    outcome = outcome_of(psnr_db)

    found = report(outcome, tau_star_db=tau, nulls={"mean": outcome})

    assert [rate.excess for rate in found.rates] == [{"mean": 0.0}] * 5


def test_excess_is_the_rate_less_that_of_each_null() -> None:
    nulls: dict[NullName, Outcome] = {
        "mean": outcome_of([0.0, 0.0, 19.0, 19.0]),
        "best-foreign": outcome_of([20.0, 20.0, 20.0, 41.0]),
    }

    found = report(outcome_of([17.0, 25.0, 31.0, 31.0]), nulls=nulls)

    assert [rate.excess["mean"] for rate in found.rates] == [0.25, 0.75, 0.5, 0.0]
    assert [rate.excess["best-foreign"] for rate in found.rates] == [-0.25, 0.5, 0.25, -0.25]


def test_null_about_other_images_is_refused() -> None:
    with pytest.raises(DataError, match="null mean of 2 images, found 1"):
        report(outcome_of([1.0, 2.0]), nulls={"mean": outcome_of([1.0])})


@pytest.mark.parametrize("tau", [-0.1, 100.0, math.nan])
def test_threshold_that_nothing_or_everything_passes_is_refused(tau: float) -> None:
    with pytest.raises(DataError, match="tau_star_db"):
        report(outcome_of([1.0]), tau_star_db=tau)


@thorough
@given(parts=st.lists(decibels, min_size=1, max_size=4))
def test_pooled_report_is_that_of_all_images_at_once(parts: list[list[float]]) -> None:
    pooled = report(pool([outcome_of(part) for part in parts]))

    whole = report(outcome_of([value for part in parts for value in part]))
    assert pooled.rates == whole.rates
    assert pooled.histogram == whole.histogram
    assert pooled.batches == len(parts)
    assert pooled.psnr_db == pytest.approx(whole.psnr_db)


def test_precision_is_of_candidates_and_identification_of_real_images() -> None:
    found = report(outcome_of([1.0, 2.0, 3.0], identified=[True, False, True]))

    assert found.precision.non_empty == Share.of(2, 8)
    assert found.precision.isolated == Share.of(1, 4)
    assert found.precision.basis == "occupants"
    assert found.identified == Share.of(2, 3)


def test_histogram_holds_every_image_in_its_step() -> None:
    found = report(outcome_of([0.0, 1.9, 2.0, 98.0, 100.0]))

    assert found.histogram_width_db == 2.0
    assert len(found.histogram) == 50
    assert (found.histogram[0], found.histogram[1], found.histogram[49], sum(found.histogram)) == (2, 1, 2, 5)


def test_exact_copy_is_capped_in_means_and_null_in_raw_json() -> None:
    real = make_images(2, 0)
    found = report(measure(real, np.concatenate([real[:1], at_psnr(real[1:], 50.0)]), pair_by_oracle(np.arange(2))))

    content = json.loads(json.dumps(found.as_dict(), allow_nan=False))

    assert found.raw_psnr_db == math.inf
    assert content["raw-psnr-db"] is None
    assert content["psnr-db"] == pytest.approx(75.0)
    assert content["exact-copies"] == 1


def test_raw_mean_of_near_copies_is_told_without_the_cap() -> None:
    real = make_images(1, 0)

    content = report(measure(real, at_psnr(real, 130.0), pair_by_oracle(np.arange(1)))).as_dict()

    assert content["raw-psnr-db"] == pytest.approx(130.0, abs=1e-6)
    assert content["psnr-db"] == 100.0


def test_dictionary_has_kebab_case_keys_at_every_depth_and_survives_json() -> None:
    real = make_images(2, 0)
    outcome = measure(
        real, real, pair_by_oracle(np.array([0, -1])), gallery=Gallery(images=real, positions=np.arange(2))
    )
    content = report(outcome, tau_star_db=26.7, nulls={"same-bin": outcome}).as_dict()

    text = json.dumps(content, allow_nan=False)

    assert json.loads(text) == content
    assert "_" not in text
    assert content["pairing"] == "oracle"
    assert content["rates"][4]["threshold-db"] == 26.7
    assert content["rates"][0]["excess"] == {"same-bin": 0.0}
    assert content["rates"][0]["recovered"]["share"] == 0.5
    assert content["identified"]["hits"] == 1
    assert content["precision"]["isolated"] is None
