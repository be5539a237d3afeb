"""What is read of a planted layer's gradient, against closed forms: the gradient is written down, not computed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from attacks.linear_leakage.bins import Bins
from attacks.linear_leakage.planted_network import Kind
from attacks.linear_leakage.read_out import Moved, Normalisation, read_bins

KINDS: list[Kind] = ["cumulative", "sparse"]
WAYS: list[Normalisation] = ["bias", "direction"]
SIZE = 12
BINS = Bins(direction=np.full(SIZE, 1 / SIZE), thresholds=np.linspace(0.0, 0.9, 10), top=1.0)
Rows = NDArray[np.float64]
coefficients = st.floats(1e-6, 1e3)
multiples = st.floats(1e-6, 1e6).flatmap(lambda size: st.sampled_from([size, -size]))


def images_in(*homes: int, seed: int = 0) -> Rows:
    """Return one random image in the middle of each of the bins named; it is as bright as that middle."""
    noise = np.random.default_rng(seed).normal(0, 0.05, size=(len(homes), SIZE))
    wanted = BINS.thresholds[list(homes)] + 0.05
    return noise - noise.mean(axis=1, keepdims=True) + wanted[:, None]


def gradient_of(images: Rows, slopes: Rows, kind: Kind) -> Moved:
    """Return the layer's gradient where image n adds `slopes[n]` to each bin that it reaches, by definition."""
    measured = images @ BINS.direction
    reached = measured[:, None] > BINS.thresholds
    if kind == "sparse":
        reached &= measured[:, None] <= np.append(BINS.thresholds[1:], BINS.top)
    weights = reached * slopes[:, None]
    return Moved(weight=weights.T @ images, bias=weights.sum(axis=0))


def times(moved: Moved, factor: float) -> Moved:
    return Moved(weight=moved.weight * factor, bias=moved.bias * factor)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", WAYS)
def test_images_alone_in_their_bins_are_read_exactly_and_empty_bins_are_nan(kind: Kind, by: Normalisation) -> None:
    homes = [2, 5, 6, 8]
    images = images_in(*homes)
    moved = gradient_of(images, np.array([0.3, 1.0, 2.5, 0.01]), kind)

    found = read_bins(moved, BINS, kind, by=by)

    assert found[homes] == pytest.approx(images, rel=1e-9)
    assert np.isnan(np.delete(found, homes, axis=0)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_outermost_bins_are_read_too(kind: Kind) -> None:
    images = images_in(0, 9)

    found = read_bins(gradient_of(images, np.array([1.0, 1.0]), kind), BINS, kind)

    assert found[[0, 9]] == pytest.approx(images, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@given(slopes=st.tuples(coefficients, coefficients, coefficients))
def test_images_that_share_a_bin_are_read_as_their_mean_weighted_by_what_they_add(
    kind: Kind, slopes: tuple[float, float, float]
) -> None:
    images = images_in(4, 4, 4)

    found = read_bins(gradient_of(images, np.array(slopes), kind), BINS, kind)

    assert found[4] == pytest.approx(np.average(images, axis=0, weights=slopes), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", WAYS)
@given(factor=multiples)
def test_multiple_of_the_gradient_reads_the_same_whatever_its_sign(
    kind: Kind, by: Normalisation, factor: float
) -> None:
    moved = gradient_of(images_in(1, 3, 3, 9), np.array([1.0, 0.5, 2.0, 1.5]), kind)

    found = read_bins(times(moved, factor), BINS, kind, by=by)

    expected = read_bins(moved, BINS, kind, by=by)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("by", WAYS)
def test_sparse_and_cumulative_bins_read_the_same_images(by: Normalisation) -> None:
    images, slopes = images_in(1, 3, 3, 7, 9), np.array([1.0, 0.5, 2.0, 1.5, 0.2])

    sparse, cumulative = (read_bins(gradient_of(images, slopes, kind), BINS, kind, by=by) for kind in KINDS[::-1])

    np.testing.assert_allclose(sparse, cumulative, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_by_direction_an_image_off_the_middle_is_read_as_bright_as_the_middle(kind: Kind) -> None:
    image = images_in(4) + 0.03

    found = read_bins(gradient_of(image, np.ones(1), kind), BINS, kind, by="direction")

    assert found[4] == pytest.approx(image[0] * 0.45 / 0.48, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_by_direction_biases_do_not_count(kind: Kind) -> None:
    images = images_in(2, 5)
    moved = gradient_of(images, np.ones(2), kind)
    spoilt = Moved(weight=moved.weight, bias=np.random.default_rng(0).normal(size=len(BINS)))

    found = read_bins(spoilt, BINS, kind, by="direction")

    assert found[[2, 5]] == pytest.approx(images, rel=1e-9)
    assert np.isnan(np.delete(found, [2, 5], axis=0)).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", WAYS)
def test_rounding_to_float32_leaves_empty_bins_empty(kind: Kind, by: Normalisation) -> None:
    homes = [0, 3, 7]
    exact = gradient_of(images_in(*homes), np.array([1.0, 1 / 3, 0.1]), kind)
    draw = np.random.default_rng(0)
    shaken = Moved(
        weight=exact.weight * (1 + 6e-8 * draw.uniform(-1, 1, exact.weight.shape)),
        bias=exact.bias * (1 + 6e-8 * draw.uniform(-1, 1, exact.bias.shape)),
    )

    found = read_bins(shaken, BINS, kind, by=by)

    assert np.flatnonzero(np.isfinite(found).all(axis=1)).tolist() == homes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", WAYS)
def test_image_that_adds_a_thousandth_of_another_is_heard(kind: Kind, by: Normalisation) -> None:
    images = images_in(2, 6)

    found = read_bins(gradient_of(images, np.array([1.0, 1e-3]), kind), BINS, kind, by=by)

    assert found[6] == pytest.approx(images[1], rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", WAYS)
def test_layer_that_did_not_move_says_nothing(kind: Kind, by: Normalisation) -> None:
    still = Moved(weight=np.zeros((10, SIZE)), bias=np.zeros(10))

    assert np.isnan(read_bins(still, BINS, kind, by=by)).all()


def test_tensors_are_taken_in_float64() -> None:
    moved = Moved.of(torch.tensor([[1.5, 2.0]]), torch.tensor([0.25]))

    assert [str(part.dtype) for part in (moved.weight, moved.bias)] == ["float64", "float64"]
    assert (moved.weight.tolist(), moved.bias.tolist()) == ([[1.5, 2.0]], [0.25])
