"""What every rule promises the engine: no update lost or taken twice, and no waiting for what cannot come."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from server_app.aggregation.rule import NEVER
from tests.server_app.aggregation.bench import Bench, update_of


class RuleContract:
    """The promises of one rule; a subclass names it."""

    settings: ClassVar[dict[str, Any]]

    def bench(self, hospitals: int = 3, **settings: Any) -> Bench:
        return Bench(hospitals, **self.settings | settings)

    def test_hospitals_that_are_at_work_away_or_paused_are_not_asked(self) -> None:
        bench = self.bench(5)
        bench.scoring, bench.away, bench.paused = {"hospital-001"}, {"hospital-002"}, {"hospital-003"}

        assert bench.choose() == ["hospital-000", "hospital-004"]
        assert bench.choose() == []

    def test_every_update_is_taken_once(self) -> None:
        bench = self.bench()
        bench.drive(5)

        numbers = [update.number for updates in bench.taken for update in updates]
        assert len(numbers) == len(set(numbers)) >= 5

    def test_update_of_a_hospital_that_was_not_asked_is_turned_away(self) -> None:
        bench = self.bench()
        bench.choose()

        assert not bench.rule.expects("stranger")
        assert not bench.rule.offer(update_of("stranger"))

    def test_second_update_for_one_task_is_turned_away(self) -> None:
        bench = self.bench()
        bench.choose()
        bench.answer("hospital-000")

        assert not bench.rule.offer(update_of("hospital-000"))
        assert [update.hospital_id for update in bench.rule.take()] == ["hospital-000"]

    def test_nothing_is_due_before_anybody_was_asked(self) -> None:
        bench = self.bench()

        assert not bench.rule.is_due(1e9)
        assert bench.rule.next_deadline() == NEVER

    def test_without_hospitals_nothing_is_due_and_whoever_comes_is_asked(self) -> None:
        bench = self.bench()
        bench.away = set(bench.hospitals)
        bench.choose()

        due_before = bench.rule.is_due(bench.now)
        bench.away = {"hospital-000", "hospital-002"}

        assert not due_before
        assert bench.choose() == ["hospital-001"]

    def test_nobody_is_expected_once_the_last_version_is_made(self) -> None:
        bench = self.bench()
        bench.choose()

        bench.rule.close()

        assert not any(bench.answer(name) for name in bench.hospitals)

    def test_failed_hospital_is_asked_again_after_the_next_version(self) -> None:
        bench = self.bench()
        bench.choose()

        bench.fail("hospital-001")
        asked_at_once = bench.choose()
        bench.drive(1)
        bench.turn()

        assert asked_at_once == []
        assert "hospital-001" in bench.at_work

    def test_when_everybody_fails_it_is_due_and_everybody_is_asked_again(self) -> None:
        bench = self.bench()
        bench.choose()
        for name in bench.hospitals:
            bench.fail(name)

        bench.choose()

        assert bench.settle()
        assert bench.taken == [[]]
        assert bench.choose() == bench.hospitals

    def test_too_few_updates_are_given_up_and_their_hospitals_asked_again(self) -> None:
        if self.settings["rule"] == "fedasync":
            pytest.skip("One update is always enough.")
        bench = self.bench(**{"min-updates": 2, "buffer-size": 3})
        bench.choose()
        bench.answer("hospital-000")
        for name in bench.hospitals[1:]:
            bench.fail(name)

        bench.turn()

        assert [len(updates) for updates in bench.taken] == [1]
        assert bench.version == 0
        assert bench.at_work.keys() == set(bench.hospitals)
        bench.drive(1)

    def test_update_that_waited_during_a_restart_is_taken_and_its_hospital_not_asked_for_another(self) -> None:
        bench = self.bench(2, **{"buffer-size": 2})
        kept = update_of("hospital-000", number=7, base_version=0)
        bench.rule.restore(kept)
        bench.waiting = [kept]

        chosen = bench.choose()
        if bench.version == 0 and "hospital-001" in bench.at_work:
            bench.answer("hospital-001")
        bench.now = 1e6
        bench.turn()

        assert "hospital-000" not in chosen
        assert [update for updates in bench.taken for update in updates][0] == kept  # noqa: RUF015

    def test_draws_depend_on_the_seed_and_on_nothing_else(self) -> None:
        def chosen(seed: int) -> list[str]:
            bench = Bench(12, seed=seed, **self.settings | {"sample-count": 4})
            return bench.choose()

        assert chosen(1) == chosen(1)
        assert len({tuple(chosen(seed)) for seed in range(5)}) > 1
        assert all(len(chosen(seed)) == 4 for seed in range(5))

    def test_whatever_happens_nothing_is_lost_doubled_or_waited_for_in_vain(self) -> None:
        machine = type("Machine", (AnyOrder,), {"fixed": self.settings})
        limits = hypothesis_settings(max_examples=25, stateful_step_count=30, deadline=None)
        run_state_machine_as_test(machine, settings=limits)


class AsynchronousContract(RuleContract):
    """What the asynchronous rules promise beside that."""

    def test_hospital_works_on_a_version_once(self) -> None:
        bench = self.bench(2, **{"buffer-size": 2, "period-s": 1e6})
        bench.choose()
        bench.answer("hospital-000")

        if bench.rule.is_due(bench.now):  # A version by itself.
            bench.settle()
            assert bench.choose() == ["hospital-000"]
        else:
            assert bench.choose() == []

    def test_hospital_that_is_late_is_still_expected(self) -> None:
        bench = self.bench(3, **{"buffer-size": 2, "period-s": 10.0})
        bench.choose()
        for _ in range(4):
            for name in bench.hospitals[:2]:
                if name in bench.at_work:
                    bench.answer(name)
            bench.now += 10.0
            bench.turn()

        assert bench.version >= 4
        assert bench.answer("hospital-002")
        assert bench.waiting[-1].base_version == 0

    def test_no_more_work_than_may(self) -> None:
        bench = self.bench(6, **{"sample-count": 2})
        bench.drive(6)

        assert len(bench.at_work) <= 2
        assert len({update.hospital_id for updates in bench.taken for update in updates}) > 1

    def test_without_a_count_the_fraction_says_how_many_may_work(self) -> None:
        bench = self.bench(10, **{"sample-fraction": 0.3})

        assert len(bench.choose()) == 3

    def test_update_of_a_hospital_at_work_since_before_a_restart_is_expected(self) -> None:
        bench = self.bench()
        bench.at_work = {"hospital-001": 0}
        bench.version = 3

        bench.rule.resend("hospital-001", 0)

        assert bench.choose() == ["hospital-000", "hospital-002"]
        assert bench.answer("hospital-001")

    def test_hospital_too_far_ahead_waits_for_the_others(self) -> None:
        bench = self.bench(3, **{"max-lead": 2, "buffer-size": 1, "period-s": 1.0})
        bench.choose()
        while "hospital-000" in bench.at_work:
            bench.answer("hospital-000")
            bench.now += 1.0
            bench.turn()

        assert bench.given == {"hospital-000": 2}
        bench.answer("hospital-001")
        bench.answer("hospital-002")
        bench.now += 1.0
        bench.turn()
        assert "hospital-000" in bench.at_work

    def test_hospital_too_far_ahead_is_asked_all_the_same_where_there_would_be_no_version_without_it(self) -> None:
        if self.settings["rule"] == "fedasync":
            pytest.skip("One update is always enough.")
        bench = self.bench(2, **{"max-lead": 1, "min-updates": 2, "buffer-size": 2})
        bench.given["hospital-001"] = 5

        asked = bench.choose()
        bench.answer("hospital-000")

        assert asked == ["hospital-000"]
        assert bench.choose() == ["hospital-001"]


class TestFedAvg(RuleContract):
    settings: ClassVar[dict[str, Any]] = {"rule": "fedavg"}


class TestFedAvgWithADeadline(RuleContract):
    settings: ClassVar[dict[str, Any]] = {"rule": "fedavg", "deadline-s": 50.0}

    def test_whatever_happens_nothing_is_lost_doubled_or_waited_for_in_vain(self) -> None:
        super().test_whatever_happens_nothing_is_lost_doubled_or_waited_for_in_vain()


class TestFedAsync(AsynchronousContract):
    settings: ClassVar[dict[str, Any]] = {"rule": "fedasync"}


class TestBuffered(AsynchronousContract):
    settings: ClassVar[dict[str, Any]] = {"rule": "buffered", "buffer-size": 3}


class TestSemiSynchronous(AsynchronousContract):
    settings: ClassVar[dict[str, Any]] = {"rule": "semi-synchronous", "period-s": 5.0}


HOSPITALS = 5


class AnyOrder(RuleBasedStateMachine):
    """Answers, failures, absences and evaluations in any order; afterwards the rule must still make versions."""

    fixed: ClassVar[dict[str, Any]]

    @initialize(
        count=st.integers(0, 3), lead=st.integers(0, 2), buffer=st.integers(1, HOSPITALS), least=st.integers(1, 2)
    )
    def begin(self, count: int, lead: int, buffer: int, least: int) -> None:
        rule_name = self.fixed["rule"]
        if rule_name == "fedasync" or count == 1 or (rule_name == "buffered" and buffer == 1):
            least = 1
        free = {"sample-count": count, "max-lead": lead, "min-updates": least, "buffer-size": buffer}
        self.bench = Bench(HOSPITALS, **self.fixed | free)
        self.bench.turn()

    @rule(place=st.integers(0, HOSPITALS - 1))
    def answer(self, place: int) -> None:
        if self.bench.at_work:
            names = sorted(self.bench.at_work)
            self.bench.answer(names[place % len(names)])
        self.bench.turn()

    @rule(place=st.integers(0, HOSPITALS - 1))
    def fail(self, place: int) -> None:
        if self.bench.at_work:
            names = sorted(self.bench.at_work)
            self.bench.fail(names[place % len(names)])
        self.bench.turn()

    @rule(place=st.integers(0, HOSPITALS - 1))
    def come_or_go(self, place: int) -> None:
        self.bench.away ^= {self.bench.hospitals[place]}
        self.bench.turn()

    @rule(place=st.integers(0, HOSPITALS - 1))
    def begin_or_end_to_score(self, place: int) -> None:
        name = self.bench.hospitals[place]
        if name not in self.bench.at_work:
            self.bench.scoring ^= {name}
        self.bench.turn()

    @rule(place=st.integers(0, HOSPITALS - 1))
    def spend_the_budget(self, place: int) -> None:
        if len(self.bench.paused) < HOSPITALS - 2:
            self.bench.paused.add(self.bench.hospitals[place])
        self.bench.turn()

    @rule(seconds=st.floats(0.1, 9))
    def let_time_pass(self, seconds: float) -> None:
        self.bench.now += seconds
        self.bench.turn()

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.away.clear()
            self.bench.scoring.clear()
            self.bench.drive(2)
            numbers = [update.number for updates in self.bench.taken for update in updates]
            assert len(numbers) == len(set(numbers))
