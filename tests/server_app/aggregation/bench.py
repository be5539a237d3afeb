"""A bench on which any aggregation rule is tried: it plays the engine, and keeps books of its own beside the rule's."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import torch

from federation.config import AggregationConfig
from server_app.aggregation.rule import NEVER, Situation, Update
from server_app.aggregation.rules import make_rule

_LONGEST_DRIVE = 300


def update_of(name: str, *, number: int = 1, base_version: int = 0) -> Update:
    """Return an update with nothing in it."""
    return Update(
        number=number, hospital_id=name, base_version=base_version, examples=1, load=lambda: {"w": torch.zeros(1)}
    )


class Bench:
    """Hospitals, a clock and versions around one rule.

    Every promise that all asynchronous rules give is checked on the way: a hospital works on a version once, rests
    after a failure, is not too far ahead of the others, and no more work than may.

    Attributes:
        rule: what is tried.
        now: seconds.
        version: of the model.
        at_work: version that a hospital trains on, per id.
        scoring: hospitals that are evaluating, which no rule has asked for.
        away: hospitals that cannot be reached now.
        paused: hospitals without budget.
        waiting: accepted updates that have not been taken, in order of arrival.
        taken: what was taken each time.
    """

    def __init__(self, hospitals: int = 3, *, seed: int = 0, **settings: Any) -> None:
        self.settings = AggregationConfig.model_validate(settings)
        self.rule = make_rule(self.settings, seed=seed, first_round=0)
        self.hospitals = [f"hospital-{index:03d}" for index in range(hospitals)]
        self.now = 0.0
        self.version = 0
        self.tasks = 0
        self.at_work: dict[str, int] = {}
        self.scoring: set[str] = set()
        self.away: set[str] = set()
        self.paused: set[str] = set()
        self.given: Counter[str] = Counter()
        self.waiting: list[Update] = []
        self.taken: list[list[Update]] = []
        self._answers = 0
        self._used_up: set[str] = set()

    def idle(self) -> list[str]:
        """Return who can be asked."""
        busy = self.at_work.keys() | self.scoring | self.away | self.paused
        return [name for name in self.hospitals if name not in busy]

    def choose(self) -> list[str]:
        """Let the rule choose, check what all rules promise, and let the chosen begin to work."""
        idle = self.idle()
        given = {name: self.given[name] for name in self.hospitals if name not in self.away | self.paused}
        at_work = len(self.at_work) + len(self.scoring)
        chosen = self.rule.choose(
            Situation(now=self.now, version=self.version, idle=idle, at_work=at_work, given=given, tasks=self.tasks)
        )
        assert self.rule.waiting() == {update.hospital_id for update in self.waiting}
        assert chosen == sorted(set(chosen))
        assert set(chosen) <= set(idle)
        for name in chosen:
            assert self.rule.expects(name)
            if not self.settings.is_synchronous:
                self._require_turn(name, given, alone=not at_work and len(self.waiting) < self.settings.min_updates)
            self.at_work[name] = self.version
        self.tasks += len(chosen)
        most = self.settings.sample_count
        assert self.settings.is_synchronous or not most or not chosen or len(self.at_work) <= most
        return chosen

    def answer(self, name: str) -> bool:
        """Let a hospital finish its task, and return whether the rule wanted the update."""
        self._answers += 1
        update = update_of(name, number=self._answers, base_version=self.at_work.pop(name))
        wanted, completes = self.rule.expects(name), self.rule.completes(name)
        assert self.rule.offer(update) is wanted
        assert not self.rule.expects(name)
        if wanted:
            self.waiting.append(update)
        if completes:
            assert wanted
            assert self.rule.is_due(self.now)
        return wanted

    def fail(self, name: str) -> None:
        """Let a hospital fail at its task."""
        del self.at_work[name]
        self._used_up.add(name)
        self.rule.lose(name)
        assert not self.rule.expects(name)

    def settle(self) -> bool:
        """Make a version if the rule says that it is time, and return whether it did."""
        if not self.rule.is_due(self.now):
            return False
        updates = self.rule.take()
        expected = sorted(self.waiting, key=lambda update: update.hospital_id)
        assert updates == (expected if self.settings.is_synchronous else self.waiting)
        self.taken.append(updates)
        self.waiting = []
        self._used_up.clear()
        if len(updates) >= self.settings.min_updates:
            self.version += 1
            self.given.update(update.hospital_id for update in updates)
        assert not self.rule.is_due(self.now)
        return True

    def turn(self) -> list[str]:
        """Do what the engine does over and over: apply what is due, ask whom the rule names."""
        self.settle()
        chosen = self.choose()
        while self.settle():
            chosen += self.choose()
        return chosen

    def drive(self, versions: int) -> None:
        """Let everybody answer, one after another, until `versions` more versions are made."""
        target = self.version + versions
        for _ in range(_LONGEST_DRIVE):
            self.turn()
            if self.version >= target:
                return
            if self.at_work:
                self.answer(next(iter(self.at_work)))
            else:
                assert self.rule.next_deadline() != NEVER, "Nobody works, and nothing is waited for."
                self.now = max(self.now, self.rule.next_deadline())
        raise AssertionError(f"Expected version {target} after {_LONGEST_DRIVE} turns, found {self.version}.")

    def _require_turn(self, name: str, given: dict[str, int], *, alone: bool) -> None:
        assert name not in self._used_up
        self._used_up.add(name)
        lead = self.settings.max_lead
        assert alone or not lead or self.given[name] - statistics.median(given.values()) < lead
