"""The synchronous rule samples uniformly and, in whatever order answers come, neither loses nor doubles an update."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from federation.config import AggregationConfig
from server_app.aggregation.fedavg import FedAvg, sample_hospitals
from server_app.aggregation.rule import NEVER, Situation, Update

# The value that chi-square with 9 degrees of freedom exceeds once in a hundred thousand times.
CHI_SQUARE_9_LIMIT = 39.3


def hospitals(count: int) -> list[str]:
    return [f"hospital-{index:03d}" for index in range(count)]


def update_of(name: str, version: int = 0) -> Update:
    return Update(number=1, hospital_id=name, base_version=version, examples=1, load=lambda: {"w": torch.zeros(1)})


def rule_with(seed: int = 0, first_round: int = 0, **settings: Any) -> FedAvg:
    return FedAvg(AggregationConfig(**settings), seed=seed, first_round=first_round)


def choose(fedavg: FedAvg, idle: list[str], now: float) -> list[str]:
    return fedavg.choose(Situation(now=now, version=0, idle=idle))


def sample(names: list[str], *, seed: int = 0, round_number: int = 0, **settings: Any) -> list[str]:
    return sample_hospitals(names, AggregationConfig(**settings), seed=seed, round_number=round_number)


@pytest.mark.parametrize(
    ("count", "settings", "size"),
    [
        (10, {}, 10),
        (10, {"sample_fraction": 0.3}, 3),
        (10, {"sample_fraction": 0.01}, 1),
        (10, {"sample_fraction": 0.26}, 3),
        (10, {"sample_fraction": 0.24}, 2),
        (1, {"sample_fraction": 0.1}, 1),
        (10, {"sample_count": 4}, 4),
        (10, {"sample_count": 4, "sample_fraction": 0.9}, 4),
        (10, {"sample_count": 10}, 10),
        (3, {"sample_count": 10}, 3),
    ],
)
def test_sample_has_the_size_that_count_or_else_fraction_says(count: int, settings: Any, size: int) -> None:
    assert len(sample(hospitals(count), **settings)) == size


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 2**32), st.integers(0, 1000))
def test_sample_is_sorted_without_repetition_and_out_of_the_given(
    count: int, wanted: int, seed: int, round_number: int
) -> None:
    names = hospitals(count)

    found = sample(names, sample_count=wanted, seed=seed, round_number=round_number)

    assert found == sorted(set(found))
    assert set(found) <= set(names)
    assert len(found) == min(wanted, count)
    assert all(type(name) is str for name in found)


def test_sample_depends_on_seed_and_round_and_not_on_the_order_given() -> None:
    names = hospitals(20)

    found = sample(names, sample_count=5, seed=1, round_number=2)

    assert sample(names[::-1], sample_count=5, seed=1, round_number=2) == found
    assert sample(names, sample_count=5, seed=2, round_number=2) != found
    assert sample(names, sample_count=5, seed=1, round_number=3) != found


def test_every_hospital_is_sampled_equally_often() -> None:
    names, rounds, wanted = hospitals(10), 2000, 3

    counts = Counter(
        name for number in range(rounds) for name in sample(names, sample_count=wanted, round_number=number)
    )

    expected, spread = rounds * wanted / 10, 1 - wanted / 10
    # Sampling without replacement: each count is binomial, and the sum over all is fixed.
    statistic = sum((counts[name] - expected) ** 2 for name in names) / (expected * spread) * 9 / 10
    assert statistic < CHI_SQUARE_9_LIMIT


def test_every_pair_of_hospitals_is_sampled_equally_often() -> None:
    names, seeds = hospitals(5), 2000

    counts = Counter(tuple(sample(names, sample_count=2, seed=seed)) for seed in range(seeds))

    pairs = list(itertools.combinations(names, 2))
    statistic = sum((counts[pair] - seeds / 10) ** 2 for pair in pairs) / (seeds / 10)
    assert set(counts) == set(pairs)
    assert statistic < CHI_SQUARE_9_LIMIT


def test_resumed_rule_samples_as_the_unbroken_one() -> None:
    unbroken, resumed = rule_with(sample_count=3), rule_with(sample_count=3, first_round=2)
    names = hospitals(12)
    for _ in range(2):
        for name in choose(unbroken, names, 0.0):
            unbroken.lose(name)
        unbroken.take()

    assert choose(unbroken, names, 0.0) == choose(resumed, names, 0.0)


def test_open_round_asks_nobody_else() -> None:
    fedavg = rule_with()

    assert choose(fedavg, hospitals(2), 0.0) == hospitals(2)
    assert choose(fedavg, hospitals(5), 1.0) == []


def test_round_does_not_open_while_nobody_is_idle() -> None:
    fedavg = rule_with(deadline_s=5.0)

    assert choose(fedavg, [], 0.0) == []
    assert not fedavg.is_due(100.0)
    assert fedavg.next_deadline() == NEVER
    assert choose(fedavg, hospitals(1), 100.0) == hospitals(1)
    assert fedavg.next_deadline() == 105.0


def test_without_a_deadline_the_rule_waits_for_ever() -> None:
    fedavg = rule_with()

    choose(fedavg, hospitals(1), 0.0)

    assert fedavg.next_deadline() == NEVER
    assert not fedavg.is_due(1e300)


def test_round_is_due_at_its_deadline_and_not_before() -> None:
    fedavg = rule_with(deadline_s=5.0)

    choose(fedavg, hospitals(2), 10.0)

    assert fedavg.next_deadline() == 15.0
    assert not fedavg.is_due(14.999)
    assert fedavg.is_due(15.0)


def test_second_update_of_a_hospital_in_one_round_is_turned_away() -> None:
    fedavg = rule_with()
    first, _ = choose(fedavg, hospitals(2), 0.0)
    update = update_of(first)

    assert fedavg.offer(update)
    assert not fedavg.offer(update_of(first))
    assert [taken is update for taken in fedavg.take()] == [True]


def test_update_of_a_hospital_that_was_not_asked_is_turned_away() -> None:
    fedavg = rule_with()
    choose(fedavg, hospitals(2), 0.0)

    assert not fedavg.offer(update_of("stranger"))
    assert fedavg.take() == []


def test_late_update_does_not_count_in_the_next_round() -> None:
    fedavg = rule_with(deadline_s=5.0, sample_count=2)
    late, punctual = choose(fedavg, hospitals(2), 0.0)
    fedavg.offer(update_of(punctual))
    fedavg.take()

    between_rounds = fedavg.offer(update_of(late))
    choose(fedavg, [punctual], 5.0)
    in_the_next_round = fedavg.offer(update_of(late))

    assert (between_rounds, in_the_next_round) == (False, False)
    assert not fedavg.is_due(6.0)
    assert fedavg.offer(update_of(punctual))
    assert [update.hospital_id for update in fedavg.take()] == [punctual]


def test_updates_that_wait_are_a_round_by_themselves_when_nobody_is_idle_or_at_work() -> None:
    fedavg = rule_with()
    fedavg.restore(update_of("a"))

    assert fedavg.choose(Situation(now=0.0, version=0, idle=[], at_work=1)) == []
    assert not fedavg.is_due(0.0)
    assert fedavg.choose(Situation(now=0.0, version=0, idle=[])) == []
    assert fedavg.is_due(0.0)


def test_several_updates_that_wait_of_one_hospital_count_for_one_round_after_another() -> None:
    fedavg = rule_with()
    first, second, third = (replace(update_of("a"), number=number) for number in (1, 2, 3))
    other = update_of("b")
    for update in (first, second, other, third):
        fedavg.restore(update)

    taken = []
    while fedavg.waiting():
        choose(fedavg, ["a"], 0.0)
        taken.append(fedavg.take())

    assert taken == [[first, other], [second], [third]]


def late_rule(*names: str) -> FedAvg:
    """Return a rule whose first round had the update of "a" at its deadline, which was too few: it waits."""
    fedavg = rule_with(deadline_s=5.0, min_updates=2)
    choose(fedavg, [*names], 0.0)
    fedavg.offer(update_of("a"))
    for update in fedavg.take():
        fedavg.restore(update)
    return fedavg


def test_no_round_opens_with_nobody_to_ask_while_somebody_is_at_work_and_too_few_updates_wait() -> None:
    fedavg = late_rule("a", "b")

    assert fedavg.choose(Situation(now=5.0, version=0, idle=["a"], at_work=1)) == []
    assert not fedavg.is_due(5.0)
    assert fedavg.next_deadline() == NEVER


def test_round_opens_with_nobody_to_ask_when_whoever_is_at_work_takes_too_long() -> None:
    fedavg = late_rule("a", "b")

    fedavg.choose(Situation(now=200.0, version=0, idle=["a"], at_work=2, overdue=frozenset({"b"})))
    before = fedavg.is_due(200.0)
    fedavg.choose(Situation(now=200.0, version=0, idle=["a"], at_work=1, overdue=frozenset({"b"})))

    assert (before, fedavg.is_due(200.0)) == (False, True)


def test_late_update_joins_those_that_wait_for_the_same_version() -> None:
    fedavg = late_rule("a", "b", "c")

    accepted = fedavg.offer(update_of("b"))
    again = fedavg.offer(update_of("b"))
    chosen = fedavg.choose(Situation(now=7.0, version=0, idle=["a", "b"], at_work=1))

    assert (accepted, again, chosen) == (True, False, [])
    assert fedavg.is_due(7.0)
    assert [update.hospital_id for update in fedavg.take()] == ["a", "b"]
    assert not fedavg.expects("c")


def test_nobody_waits_for_a_late_update_once_others_can_be_asked() -> None:
    fedavg = late_rule("a", "b")

    assert choose(fedavg, ["a", "c"], 5.0) == ["c"]
    fedavg.offer(update_of("c"))

    assert fedavg.is_due(5.0)
    assert [update.hospital_id for update in fedavg.take()] == ["a", "c"]
    assert not fedavg.offer(update_of("b"))


def test_late_hospital_stays_expected_through_several_rounds_that_are_too_small_until_it_is_lost() -> None:
    fedavg = late_rule("a", "b")
    choose(fedavg, ["a", "c"], 5.0)
    fedavg.lose("c")
    for update in fedavg.take():
        fedavg.restore(update)

    before = fedavg.expects("b")
    fedavg.lose("b")

    assert (before, fedavg.expects("b"), fedavg.expects("c")) == (True, False, False)


def test_lone_update_completes_a_round_only_where_one_is_enough() -> None:
    enough, too_few = rule_with(), rule_with(min_updates=2)
    for fedavg in (enough, too_few):
        choose(fedavg, ["a"], 0.0)

    assert (enough.completes("a"), too_few.completes("a")) == (True, False)


class FedAvgMachine(RuleBasedStateMachine):
    """Plays the engine with answers in any order, and keeps its own books beside the rule's."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.open = False
        self.asked: set[str] = set()
        self.waiting: set[str] = set()
        self.accepted: dict[str, Update] = {}
        self.taken: list[Update] = []
        self.all_accepted: list[Update] = []
        self.opened_at = 0.0

    @initialize(deadline_s=st.sampled_from([0.0, 7.0]), wanted=st.integers(0, 6))
    def begin(self, deadline_s: float, wanted: int) -> None:
        self.deadline_s = deadline_s
        self.fedavg = rule_with(deadline_s=deadline_s, sample_count=wanted)

    @rule(idle=st.sets(st.sampled_from(hospitals(6))))
    def choose(self, idle: set[str]) -> None:
        chosen = choose(self.fedavg, sorted(idle), self.now)
        if self.open or not idle:
            assert chosen == []
        else:
            assert chosen
            assert set(chosen) <= idle
            self.open, self.opened_at = True, self.now
            self.asked, self.waiting = set(chosen), set(chosen)

    @rule(name=st.sampled_from([*hospitals(6), "stranger"]))
    def offer(self, name: str) -> None:
        update = update_of(name)
        taken = self.fedavg.offer(update)
        assert taken == (name in self.waiting)
        if taken:
            self.waiting.discard(name)
            self.accepted[name] = update
            self.all_accepted.append(update)

    @rule(name=st.sampled_from([*hospitals(6), "stranger"]))
    def lose(self, name: str) -> None:
        self.fedavg.lose(name)
        self.waiting.discard(name)

    @rule(seconds=st.floats(0.1, 9))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.open and self.fedavg.is_due(self.now))
    @rule()
    def take(self) -> None:
        updates = self.fedavg.take()
        assert [update.hospital_id for update in updates] == sorted(self.accepted)
        assert all(update is self.accepted[update.hospital_id] for update in updates)
        self.taken += updates
        self.open, self.waiting, self.accepted = False, set(), {}

    @invariant()
    def round_is_due_exactly_when_nobody_is_awaited_or_time_is_up(self) -> None:
        if not hasattr(self, "fedavg"):
            return
        time_is_up = bool(self.deadline_s) and self.now >= self.opened_at + self.deadline_s
        assert self.fedavg.is_due(self.now) == (self.open and (not self.waiting or time_is_up))
        expected = self.opened_at + self.deadline_s if self.open and self.deadline_s else NEVER
        assert self.fedavg.next_deadline() == expected

    @invariant()
    def every_accepted_update_is_taken_or_still_held_and_none_twice(self) -> None:
        held = len(self.accepted)
        assert len(self.taken) + held == len(self.all_accepted)
        assert len({id(update) for update in self.taken}) == len(self.taken)


TestFedAvgInAnyOrder = FedAvgMachine.TestCase
