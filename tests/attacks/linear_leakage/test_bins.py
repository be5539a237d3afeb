"""Bins hold what their thresholds say, are filled evenly by images like the server's, and rise in float32."""

from __future__ import annotations

import dataclasses
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score

from attacks.linear_leakage.bins import Bins, DirectionName, ThresholdRule, make_bins
from attacks.threat_model import ServerView
from federation.errors import DataError
from tests.attacks.made_up_worlds import make_info, make_view

DIRECTIONS: list[DirectionName] = ["mean", "dct", "random", "learned"]
RULES: list[ThresholdRule] = ["gaussian", "empirical", "kde"]
SMALL = make_view(auxiliary=300, generated=200)
numbers = st.floats(-2, 2, width=32)


def bins_at(*thresholds: float, top: float = 10.0) -> Bins:
    return Bins(direction=np.ones(1), thresholds=np.array(thresholds), top=top)


def view_of(images: NDArray[np.float32], generated: NDArray[np.float32] | None = None, seed: int = 0) -> ServerView:
    _, channels, height, width = images.shape
    info = make_info((channels, height, width))
    return ServerView(info=info, stream=np.random.default_rng(seed), auxiliary=images, generated=generated)


def measure(bins: Bins, images: NDArray[np.floating]) -> NDArray[np.float64]:
    return images.reshape(len(images), -1).astype(np.float64) @ bins.direction


@given(
    thresholds=st.lists(numbers, min_size=2, max_size=12, unique=True).map(sorted),
    measured=st.lists(numbers, min_size=1, max_size=20),
)
def test_each_measurement_lies_above_its_bins_threshold_and_not_above_the_next(
    thresholds: list[float], measured: list[float]
) -> None:
    ends = [-np.inf, *thresholds, np.inf]

    places = bins_at(*thresholds).place(np.array([*measured, *thresholds]))

    for value, place in zip([*measured, *thresholds], places, strict=True):
        assert ends[place + 1] < value <= ends[place + 2]


@settings(deadline=None, max_examples=40)
@given(
    direction=st.sampled_from(DIRECTIONS),
    rule=st.sampled_from(RULES),
    capacity=st.integers(2, 200),
    seed=st.integers(0, 1000),
)
def test_bins_rise_in_float32_and_take_in_every_image_of_the_servers(
    direction: DirectionName, rule: ThresholdRule, capacity: int, seed: int
) -> None:
    view = dataclasses.replace(SMALL, stream=np.random.default_rng(seed))

    bins = make_bins(view, capacity, direction=direction, rule=rule)

    measured = measure(bins, view.require_auxiliary())
    places = bins.place(measured)
    assert len(bins) == capacity
    assert (np.diff(bins.thresholds.astype(np.float32)) > 0).all()
    assert (places >= 0).all()
    assert (bins.thresholds[places] < measured).all()
    assert (measured <= np.append(bins.thresholds[1:], bins.top)[places]).all()


@pytest.mark.parametrize("capacity", [2, 7, 64, 1024])
def test_gaussian_thresholds_are_the_quantiles_of_the_fitted_normal(capacity: int) -> None:
    bins = make_bins(SMALL, capacity)

    measured = measure(bins, SMALL.require_auxiliary())
    fitted = NormalDist(float(measured.mean()), float(measured.std()))
    expected = [fitted.inv_cdf(level / capacity) for level in range(1, capacity)]
    assert bins.thresholds[1:] == pytest.approx(expected, abs=2e-6 * fitted.stdev * capacity)
    assert np.abs(bins.thresholds[1] - expected[0]) < 1e-5 * fitted.stdev


def test_empirical_thresholds_are_the_quantiles_of_the_measurements() -> None:
    bins = make_bins(SMALL, 4, rule="empirical")

    ordered = np.sort(measure(bins, SMALL.require_auxiliary()))
    counts = [(ordered <= threshold).sum() for threshold in bins.thresholds]
    assert counts == [0, 75, 150, 225]


@pytest.mark.parametrize("rule", RULES)
def test_normal_measurements_fill_all_bins_alike(rule: ThresholdRule) -> None:
    values = np.random.default_rng(3).normal(0.5, 0.1, size=(16_000, 1, 1, 1)).astype(np.float32)
    bins = make_bins(view_of(values[:8000]), 16, rule=rule)

    counts = np.bincount(bins.place(measure(bins, values[8000:])), minlength=16)

    assert counts.sum() == 8000
    assert np.abs(counts - 500).max() < 5 * np.sqrt(500 * 2)


def test_kernel_density_follows_two_separate_groups_where_a_gaussian_leaves_a_gap() -> None:
    draws = np.random.default_rng(0).normal([0.2, 0.8], 0.05, size=(2000, 2)).ravel()
    groups = draws.reshape(-1, 1, 1, 1).astype(np.float32)

    counts = [
        np.bincount(bins.place(measure(bins, groups[2000:])), minlength=12)
        for bins in (make_bins(view_of(groups[:2000]), 12, rule=rule) for rule in ("kde", "gaussian"))
    ]

    assert np.ptp(counts[0]) < 0.5 * np.ptp(counts[1])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_colour_images_are_measured_over_all_channels(direction: DirectionName) -> None:
    view = make_view(shape=(3, 5, 4), auxiliary=200, generated=200)

    bins = make_bins(view, 10, direction=direction)

    channels = bins.direction.reshape(3, -1)
    counts = np.bincount(bins.place(measure(bins, view.require_auxiliary())), minlength=10)
    assert bins.direction.shape == (60,)
    assert (np.abs(channels).sum(axis=1) > 0).all()
    assert counts.min() > 0


def test_mean_direction_measures_brightness_from_black_to_white() -> None:
    bins = make_bins(SMALL, 8)
    ends = np.stack([np.zeros((1, 8, 8)), np.ones((1, 8, 8))]).astype(np.float32)

    measured = measure(bins, ends)

    assert measured == pytest.approx([0, 1])
    assert bins.place(measured).tolist() == [0, 7]
    assert bins.top >= 1


@pytest.mark.parametrize("direction", ["dct", "random"])
def test_directions_without_mean_have_unit_length_and_see_no_brightness(direction: DirectionName) -> None:
    view = make_view()

    first, second = (make_bins(view, 4, direction=direction).direction for _ in range(2))

    assert np.linalg.norm(first) == pytest.approx(1)
    assert first.sum() == pytest.approx(0, abs=1e-9)
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize("direction", ["dct", "random", "learned"])
def test_bins_reach_six_standard_deviations_beyond_the_servers_own_images(direction: DirectionName) -> None:
    bins = make_bins(SMALL, 50, direction=direction)

    measured = measure(bins, SMALL.require_auxiliary())
    assert bins.thresholds[0] < measured.min() - 6 * measured.std()
    assert bins.top >= measured.max() + 6 * measured.std()


def test_learned_direction_separates_what_differs_in_one_corner_as_fishers_discriminant_does() -> None:
    draw = np.random.default_rng(4)
    real, generated = draw.random((2, 1500, 1, 4, 4)).astype(np.float32)
    generated[:, 0, 0, 0] = 0.5 * generated[:, 0, 0, 0]
    generated[:, 0, 3, 3] = 0.5 + 0.5 * generated[:, 0, 3, 3]
    half = view_of(real[:750], generated[:750])

    learned, mean = (make_bins(half, 8, direction=name) for name in ("learned", "mean"))

    told = np.repeat([1, 0], 750)
    fresh = np.concatenate([real[750:], generated[750:]])
    fitted = LinearDiscriminantAnalysis(solver="lsqr").fit(
        np.concatenate([real[:750], generated[:750]]).reshape(1500, -1), told
    )
    reference = fitted.coef_[0] / np.linalg.norm(fitted.coef_)
    assert learned.direction @ reference > 0.99
    assert roc_auc_score(told, measure(learned, fresh)) > 0.8
    assert abs(roc_auc_score(told, measure(mean, fresh)) - 0.5) < 0.05


def test_learned_direction_is_refused_without_a_generator() -> None:
    view = dataclasses.replace(SMALL, generated=None)

    with pytest.raises(DataError, match="Expected images of the hospital's generator"):
        make_bins(view, 8, direction="learned")


@pytest.mark.parametrize("direction", ["mean", "dct", "random"])
def test_other_directions_need_no_generator(direction: DirectionName) -> None:
    view = dataclasses.replace(SMALL, generated=None)

    bins = make_bins(view, 8, direction=direction)

    assert len(bins) == 8


def test_bins_are_refused_without_auxiliary_images() -> None:
    with pytest.raises(DataError, match="Expected auxiliary images"):
        make_bins(dataclasses.replace(SMALL, auxiliary=None), 8)


@pytest.mark.parametrize("capacity", [1, 0, -3])
def test_fewer_than_two_bins_are_refused(capacity: int) -> None:
    with pytest.raises(DataError, match=f"Expected at least 2 bins, found {capacity}"):
        make_bins(SMALL, capacity)


@pytest.mark.parametrize("rule", ["gaussian", "empirical"])
def test_images_of_one_brightness_still_give_rising_thresholds(rule: ThresholdRule) -> None:
    bins = make_bins(view_of(np.full((20, 1, 2, 2), 0.5, dtype=np.float32)), 16, rule=rule)

    assert (np.diff(bins.thresholds.astype(np.float32)) > 0).all()


def test_middle_of_a_bin_lies_between_its_thresholds_and_of_outer_ones_at_the_inner_end() -> None:
    bins = bins_at(-3.0, 1.0, 2.0, 4.0)

    assert bins.middles.tolist() == [1.0, 1.5, 3.0, 4.0]
