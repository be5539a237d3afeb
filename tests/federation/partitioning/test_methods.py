"""What each method promises of its own, checked against its formula."""

from __future__ import annotations

import numpy as np
import pytest

from federation.errors import PartitionError
from federation.partitioning.classes import share_by_classes
from federation.partitioning.dirichlet import share_by_dirichlet
from federation.partitioning.iid import share_equally
from federation.partitioning.quantity import share_by_rank
from federation.partitioning.shares import Shares, apportion, deal


def stream(seed=0):
    return np.random.default_rng(seed)


def even_sizes(*per_class):
    return np.tile(np.array(per_class), (3, 1))


@pytest.mark.parametrize(("images", "sites"), [(10, 3), (100, 7), (78, 50), (5, 5)])
def test_iid_hospitals_differ_by_one_image_at_most(images, sites):
    counts = apportion(np.array([images]), share_equally(sites))

    assert counts.sum() == images
    assert counts.max() - counts.min() <= 1


def test_quantity_shares_follow_the_power_law():
    shares = share_by_rank(4, 2.0).values[:, 0]

    np.testing.assert_allclose(shares / shares[0], [1, 1 / 4, 1 / 9, 1 / 16])
    assert shares.sum() == pytest.approx(1)


def test_quantity_with_exponent_zero_is_equal_shares():
    np.testing.assert_allclose(share_by_rank(5, 0.0).values, share_equally(5).values)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 5.0])
def test_dirichlet_shares_have_the_mean_and_variance_of_the_distribution(alpha):
    sites = 4

    shares = share_by_dirichlet(20_000, sites, alpha, stream()).values

    np.testing.assert_allclose(shares.sum(axis=0), 1)
    np.testing.assert_allclose(shares.mean(axis=1), 1 / sites, rtol=0.05)
    # A symmetric Dirichlet of J components: variance (J - 1) / (J^2 (J alpha + 1)).
    np.testing.assert_allclose(shares.var(axis=1), (sites - 1) / (sites**2 * (sites * alpha + 1)), rtol=0.05)


@pytest.mark.parametrize("alpha", [1e-300, 1e-6, 1e6, 1e300])
def test_dirichlet_gives_finite_shares_at_extreme_concentrations(alpha):
    shares = share_by_dirichlet(50, 10, alpha, stream()).values

    np.testing.assert_allclose(shares.sum(axis=0), 1)


@pytest.mark.parametrize(("sites", "per_site", "sizes"), [(100, 5, (50,) * 11), (6, 1, (30, 5, 9)), (4, 3, (7, 7, 7))])
def test_classes_gives_every_hospital_its_full_number_of_classes_and_every_class_a_hospital(sites, per_site, sizes):
    shares = share_by_classes(even_sizes(*sizes), sites, per_site, 1, stream())

    assert (shares.allowed.sum(axis=1) == per_site).all()
    assert shares.allowed.any(axis=0).all()
    np.testing.assert_allclose(shares.values.sum(axis=0), 1)


def test_classes_shares_are_equal_among_the_holders_of_a_class():
    shares = share_by_classes(even_sizes(60, 30, 10), 10, 1, 1, stream()).values

    for column in shares.T:
        assert np.unique(column[column > 0]).size == 1


def test_classes_gives_a_class_holders_in_proportion_to_its_size():
    shares = share_by_classes(even_sizes(60, 30, 10), 10, 1, 1, stream())

    assert shares.allowed.sum(axis=0).tolist() == [6, 3, 1]


def test_classes_counts_the_split_in_which_a_class_is_scarcest():
    sizes = np.array([[50, 50], [4, 16], [50, 50]])

    shares = share_by_classes(sizes, 5, 1, 1, stream())

    assert shares.allowed.sum(axis=0).tolist() == [1, 4]


def test_one_class_each_never_gives_a_class_more_holders_than_it_has_images():
    sizes = np.array([[90, 10], [90, 10], [3, 7]])

    shares = share_by_classes(sizes, 10, 1, 1, stream())

    assert shares.allowed.sum(axis=0).tolist() == [3, 7]


def test_classes_draws_other_holders_from_another_seed():
    first, second = (share_by_classes(even_sizes(9, 9, 9, 9), 8, 2, 1, stream(seed)).allowed for seed in (0, 1))

    assert not np.array_equal(first, second)


def test_classes_leaves_out_a_class_without_images():
    shares = share_by_classes(even_sizes(10, 0, 10), 4, 2, 1, stream())

    assert not shares.allowed[:, 1].any()
    assert (shares.allowed.sum(axis=1) == 2).all()


def test_more_classes_than_all_hospitals_can_hold_are_refused():
    with pytest.raises(PartitionError, match=r"sites=2 x classes-per-hospital=3 = 6 >= 7 classes"):
        share_by_classes(even_sizes(*[9] * 7), 2, 3, 1, stream())


def test_one_class_each_is_refused_where_a_class_is_absent_from_a_split():
    sizes = np.array([[50, 50], [9, 0], [50, 50]])

    with pytest.raises(PartitionError, match=r"at most \[4, 0\] hospitals per class, of 4"):
        share_by_classes(sizes, 4, 1, 2, stream())


def test_cumulated_shares_are_rounded_to_within_one_image():
    shares = Shares(values=stream().dirichlet(np.full(30, 0.3), size=6).T)
    sizes = np.array([0, 1, 2, 17, 400, 1234])

    counts = apportion(sizes, shares)

    np.testing.assert_array_equal(counts.sum(axis=0), sizes)
    assert counts.min() >= 0
    assert np.abs(counts - shares.values * sizes).max() <= 1


def test_thirds_of_ten_images_are_three_four_and_three():
    assert apportion(np.array([10]), share_equally(3)).ravel().tolist() == [3, 4, 3]


def test_no_image_is_apportioned_to_a_share_of_zero():
    values = np.array([[0.0, 0.3], [0.1, 0.0], [0.9, 0.7], [0.0, 0.0]])

    counts = apportion(np.array([7, 7]), Shares(values=values, exclusive=True))

    assert (counts[values == 0] == 0).all()
    assert counts.sum() == 14


def test_hands_are_dealt_by_stratum_in_ascending_order():
    strata = np.array([0, 1, 0, 1, 0, 1, 1])
    counts = np.array([[1, 3], [2, 1]])

    hands = deal(strata, counts, stream())

    assert [np.bincount(strata[hand], minlength=2).tolist() for hand in hands] == counts.tolist()
    assert all((np.diff(hand) > 0).all() for hand in hands)
