"""Factors land in their own field, only where they are asked for; their products make the step they ought to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.config import AggregationConfig
from server_app.aggregation.norm_history import NormHistory
from server_app.aggregation.rule import Update
from server_app.aggregation.weighing import Weighing, Weight, explain_weightless

ASYNCHRONOUS = ["fedasync", "buffered", "semi-synchronous"]
EVERYTHING: dict[str, Any] = {
    "rule": "buffered",
    "staleness": "exponential",
    "staleness_alpha": 0.5,
    "noise_weighting": True,
    "shifts": "a=0.25",
    "anomaly_threshold": 3.5,
    "direction_scaling": True,
    "balance": 1.0,
}


def update_of(name: str = "a", **values: Any) -> Update:
    fields: dict[str, Any] = {"number": 0, "base_version": 10, "examples": 100, "load": dict, **values}
    return Update(hospital_id=name, **fields)


def weighing_with(examples: Mapping[str, int] | None = None, **settings: Any) -> Weighing:
    enrolled = {"a": 100, "b": 100} if examples is None else examples
    return Weighing(AggregationConfig.model_validate(settings), lambda: enrolled)


def weigh(
    weighing: Weighing,
    updates: Sequence[Update],
    *,
    applied: Mapping[str, int] | None = None,
    norms: NormHistory | None = None,
    least_variance: float = 0.0,
) -> list[Weight]:
    return weighing.weigh(
        updates, version=10, applied=applied or {}, norms=norms or NormHistory(), least_variance=least_variance
    )


def history_with(count: int, *, norm: float = 1.0, variance: float = 0.0) -> NormHistory:
    history = NormHistory()
    for number in range(count):
        history.note(f"h{number}", variance=variance, norm=norm)
    return history


def test_weight_without_factors_is_one() -> None:
    assert Weight().product == 1.0


def test_weight_is_the_product_of_all_its_factors() -> None:
    weight = Weight(size=2.0, staleness=3.0, noise=5.0, shift=7.0, anomaly=11.0, direction=13.0, balance=17.0)

    assert weight.product == 2 * 3 * 5 * 7 * 11 * 13 * 17
    assert weight.as_row() == {
        "size": 2.0,
        "staleness": 3.0,
        "noise": 5.0,
        "shift": 7.0,
        "anomaly": 11.0,
        "direction": 13.0,
        "balance": 17.0,
    }


@pytest.mark.parametrize("rule", ["fedavg", *ASYNCHRONOUS])
def test_default_weighs_by_size_and_age_only(rule: str) -> None:
    odd = update_of(noise_variance=9.0, norm=1e9, cosine=-0.9, base_version=7)

    (weight,) = weigh(weighing_with(rule=rule), [odd], norms=history_with(20, variance=9.0), least_variance=1.0)

    assert weight == Weight(size=100.0, staleness=0.5)


@pytest.mark.parametrize(
    ("values", "factors"),
    [
        ({}, {}),
        ({"examples": 7}, {"size": 7.0}),
        ({"base_version": 8}, {"staleness": 0.25}),
        ({"noise_variance": 8.0}, {"noise": 0.25}),
        ({"norm": 9.0}, {"anomaly": 3.5 * 1.4826 * 0.02 / 8.0}),
        ({"cosine": -0.5}, {"direction": 0.5}),
        ({"name": "a"}, {"shift": 0.75}),
        # With this update 2 of 12, whose mean is 4 a hospital; the others are at 5.
        ({"name": "rare"}, {"balance": 2.0}),
    ],
)
def test_each_property_of_an_update_moves_its_own_factor_and_no_other(
    values: dict[str, Any], factors: dict[str, float]
) -> None:
    weighing = weighing_with({"a": 1, "b": 1, "rare": 1}, **EVERYTHING)
    update = update_of(**{"name": "b", "norm": 1.0, **values})
    others = 5 if update.hospital_id == "rare" else 2
    applied = {"a": others, "b": others, "rare": others} | {update.hospital_id: 1}

    (weight,) = weigh(weighing, [update], applied=applied, norms=history_with(20), least_variance=2.0)

    assert weight.as_row() == pytest.approx(Weight(size=100.0).as_row() | factors)


def test_norm_is_compared_within_its_noise_level_only() -> None:
    weighing = weighing_with(anomaly_threshold=3.5)
    noisy = update_of(norm=500.0, noise_variance=4.0)

    (alone,) = weigh(weighing, [noisy], norms=history_with(20))
    (among_its_own,) = weigh(weighing, [noisy], norms=history_with(20, norm=500.0, variance=4.0))
    (too_large,) = weigh(weighing, [noisy], norms=history_with(20, norm=100.0, variance=4.0))

    assert (alone.anomaly, among_its_own.anomaly) == (1.0, 1.0)
    assert too_large.anomaly < 0.05


def test_hospital_that_declares_slightly_more_noise_than_all_others_does_not_escape_comparison() -> None:
    weighing = weighing_with(anomaly_threshold=3.5)
    history = history_with(8, norm=100.0, variance=400.0)

    (found,) = weigh(weighing, [update_of("dodger", norm=1e6, noise_variance=420.0)], norms=history)
    (honest,) = weigh(weighing, [update_of("honest", norm=102.0, noise_variance=420.0)], norms=history)

    assert found.anomaly < 1e-4
    assert honest.anomaly == 1.0


def test_first_step_is_guarded_by_the_norms_of_its_own_updates() -> None:
    weighing = weighing_with(anomaly_threshold=3.5)
    updates = [update_of(f"h{number}", norm=1.0 + number / 100) for number in range(7)]

    *honest, forged = weigh(weighing, [*updates, update_of("forger", norm=1e6)])

    assert [weight.anomaly for weight in honest] == [1.0] * 7
    assert forged.anomaly < 1e-5


def test_norms_that_are_not_finite_weigh_nothing_and_are_no_measure_for_the_others() -> None:
    weighing = weighing_with(anomaly_threshold=3.5)
    honest = [update_of(f"h{number}", norm=1.0) for number in range(8)]

    *weights, forged = weigh(weighing, [*honest, *[update_of("x", norm=math.inf)] * 20, update_of("y", norm=1e6)])

    assert [weight.anomaly for weight in weights] == [1.0] * 8 + [0.0] * 20
    assert 0 < forged.anomaly < 1e-5


def test_noise_is_compared_with_the_least_of_the_step_and_of_before() -> None:
    weighing = weighing_with(noise_weighting=True)
    updates = [update_of("a", noise_variance=8.0), update_of("b", noise_variance=4.0)]

    assert [weight.noise for weight in weigh(weighing, updates)] == [0.5, 1.0]
    assert [weight.noise for weight in weigh(weighing, updates, least_variance=2.0)] == [0.25, 0.5]
    assert [weight.noise for weight in weigh(weighing, updates, least_variance=6.0)] == [0.5, 1.0]


def test_update_that_declares_no_noise_does_not_silence_the_others() -> None:
    weighing = weighing_with(noise_weighting=True)

    weights = weigh(weighing, [update_of("a"), update_of("b", noise_variance=4.0)])

    assert [weight.noise for weight in weights] == [1.0, 1.0]


def test_balance_counts_enrolled_hospitals_that_gave_nothing_and_every_update_of_the_step() -> None:
    weighing = weighing_with({"a": 1, "b": 1, "c": 1, "d": 1}, balance=1.0, balance_limit=100.0)

    weights = weigh(weighing, [update_of("a"), update_of("b"), update_of("a")], applied={"a": 4, "b": 1, "gone": 900})

    # After the step: 6, 2, 0 and 0, whose mean is 2; who is not enrolled any more does not count.
    assert [weight.balance for weight in weights] == pytest.approx([2 / 6, 2 / 2, 2 / 6])


def test_balance_of_a_hospital_that_has_left_meanwhile_counts_it() -> None:
    (weight,) = weigh(weighing_with({"b": 1}, balance=1.0), [update_of("gone")], applied={"b": 5, "gone": 1})

    assert weight.balance == pytest.approx(3.5 / 2)


def test_weighing_changes_nothing_it_is_given() -> None:
    applied, norms = {"a": 1}, history_with(3)
    weighing = weighing_with(**EVERYTHING)

    once = weigh(weighing, [update_of("a"), update_of("b")], applied=applied, norms=norms)

    assert (applied, norms) == ({"a": 1}, history_with(3))
    assert weigh(weighing, [update_of("a"), update_of("b")], applied=applied, norms=norms) == once


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.sampled_from(["examples", "uniform", "sqrt"]))
def test_synchronous_coefficients_have_the_bits_of_factor_over_total(sizes: list[int], weighting: str) -> None:
    weighing = weighing_with(weighting=weighting)
    weights = weigh(weighing, [update_of(f"h{number}", examples=size) for number, size in enumerate(sizes)])
    factors = {"examples": float, "uniform": lambda _: 1.0, "sqrt": math.sqrt}[weighting]

    found = weighing.coefficients(weights)

    # Federated averaging as the first server of this project computed it.
    assert found == [factors(size) / sum(factors(one) for one in sizes) for size in sizes]


WEIGHTS = st.lists(
    st.builds(Weight, size=st.floats(1, 1e6), staleness=st.floats(0.01, 1), shift=st.floats(0.01, 1)),
    min_size=1,
    max_size=8,
)


@given(WEIGHTS)
def test_synchronous_step_is_a_convex_mean(weights: list[Weight]) -> None:
    found = weighing_with().coefficients(weights)

    assert sum(found) == pytest.approx(1.0)
    assert all(0 < coefficient <= 1 for coefficient in found)


@pytest.mark.parametrize("rule", ASYNCHRONOUS)
def test_asynchronous_step_is_shortened_by_damping(rule: str) -> None:
    weighing = weighing_with(rule=rule)

    fresh = weighing.coefficients([Weight(size=100.0), Weight(size=100.0)])
    stale = weighing.coefficients([Weight(size=100.0, staleness=0.5), Weight(size=100.0)])

    assert fresh == [0.5, 0.5]
    assert stale == [0.25, 0.5]


@pytest.mark.parametrize("rule", ASYNCHRONOUS)
@given(weights=WEIGHTS)
def test_asynchronous_coefficient_does_not_depend_on_the_other_weights(rule: str, weights: list[Weight]) -> None:
    found = weighing_with({"a": 50, "b": 150}, rule=rule, balance_limit=1e9).coefficients(weights)

    assert found == pytest.approx([weight.product / (100.0 * len(weights)) for weight in weights])


@pytest.mark.parametrize("rule", ASYNCHRONOUS)
@given(weights=WEIGHTS, limit=st.floats(1, 10))
def test_updates_of_a_step_weigh_as_much_as_the_limit_at_most_and_keep_their_proportions(
    rule: str, weights: list[Weight], limit: float
) -> None:
    sizes = {"a": 50.0, "b": 150.0}
    found = weighing_with({"a": 50, "b": 150}, rule=rule, balance_limit=limit).coefficients(weights, sizes=sizes)
    free = weighing_with({"a": 50, "b": 150}, rule=rule, balance_limit=1e9).coefficients(weights, sizes=sizes)

    assert sum(found) == pytest.approx(min(limit, sum(free)))
    assert [one / sum(found) for one in found] == pytest.approx([one / sum(free) for one in free])


def test_rare_update_of_a_hospital_that_holds_nearly_everything_is_no_giant_step() -> None:
    weighing = weighing_with(dict.fromkeys("abcdefg", 10) | {"giant": 100_000}, rule="fedasync", balance=1.0)
    sizes = dict.fromkeys("abcdefg", 10.0) | {"giant": 1e5}
    applied = dict.fromkeys("abcdefg", 100)

    weights = weigh(weighing, [update_of("giant", examples=100_000)], applied=applied)

    assert weights[0].product == 4 * 1e5
    assert weighing.coefficients(weights, sizes=sizes) == [4.0]


@pytest.mark.parametrize("rule", ASYNCHRONOUS)
def test_hospital_that_invents_images_and_sends_nothing_does_not_silence_the_others(rule: str) -> None:
    honest = {"a": 80, "b": 100, "c": 120}
    weighing = weighing_with(honest | {"forger": 10**8}, rule=rule)

    (found,) = weighing.coefficients([Weight(size=100.0)], sizes={name: float(size) for name, size in honest.items()})

    # It counts as four times the median hospital.
    assert found == pytest.approx(100 / ((80 + 100 + 120 + 4 * 100) / 4))


def test_hospital_counts_by_the_images_behind_its_updates_and_not_by_those_it_enrolled_with() -> None:
    weighing = weighing_with({"a": 100, "forger": 10**8}, rule="fedasync")

    assert weighing.coefficients([Weight(size=100.0)], sizes={"a": 100.0, "forger": 100.0}) == [1.0]


def test_slow_hospital_that_has_not_answered_yet_counts_as_large_as_it_is() -> None:
    weighing = weighing_with({"fast": 50, "faster": 100, "slow": 390}, rule="fedasync")

    assert weighing.coefficients([Weight(size=90.0)], sizes={"fast": 50.0}) == [0.5]


def test_single_update_weighs_by_its_size_relative_to_the_mean_hospital() -> None:
    weighing = weighing_with({"small": 50, "large": 150}, rule="fedasync")

    assert weighing.coefficients([Weight(size=50.0)]) == [0.5]
    assert weighing.coefficients([Weight(size=150.0)]) == [1.5]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.sampled_from(["examples", "uniform", "sqrt"]))
def test_step_of_every_hospital_once_is_the_same_with_and_without_rounds(sizes: list[int], weighting: str) -> None:
    enrolled = {f"h{number}": size for number, size in enumerate(sizes)}
    updates = [update_of(name, examples=size) for name, size in enrolled.items()]
    synchronous = weighing_with(enrolled, weighting=weighting)
    buffered = weighing_with(enrolled, weighting=weighting, rule="buffered")

    expected = synchronous.coefficients(weigh(synchronous, updates))

    weights = weigh(buffered, updates)
    known = {name: weight.size for name, weight in zip(enrolled, weights, strict=True)}
    assert buffered.coefficients(weights, sizes=known) == pytest.approx(expected)


@pytest.mark.parametrize("enrolled", [{}, {"a": 0}])
def test_updates_are_their_own_measure_when_nobody_with_images_is_enrolled(enrolled: dict[str, int]) -> None:
    weighing = weighing_with(enrolled, rule="buffered")

    assert weighing.coefficients([Weight(size=10.0), Weight(size=30.0)]) == [0.25, 0.75]
    assert weighing.coefficients([]) == []


def test_mean_hospital_is_that_of_the_moment() -> None:
    enrolled = {"a": 100}
    weighing = Weighing(AggregationConfig(rule="fedasync"), lambda: enrolled)

    before = weighing.coefficients([Weight(size=100.0)])
    enrolled["b"] = 300

    assert (before, weighing.coefficients([Weight(size=100.0)])) == ([1.0], [0.5])


def test_round_that_weighs_nothing_moves_nothing_and_the_key_that_made_it_so_is_named() -> None:
    weighing = weighing_with(shifts="a=1,b=1")
    weights = weigh(weighing, [update_of("a"), update_of("b")])

    assert weighing.coefficients(weights) == [0.0, 0.0]
    assert explain_weightless(weights) == (
        "Expected an update that weighs more than 0, found 2 that weigh nothing; see aggregation.shifts."
    )


@pytest.mark.parametrize("rule", ASYNCHRONOUS)
def test_asynchronous_update_that_weighs_nothing_does_not_move_the_model(rule: str) -> None:
    assert weighing_with(rule=rule).coefficients([Weight(size=100.0, shift=0.0)]) == [0.0]
