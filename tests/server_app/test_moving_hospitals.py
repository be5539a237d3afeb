"""A hospital that restarts on another node is asked there, and what was decided about its result follows it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from server_app.simulation.virtual_grid import VirtualGrid
from tests.doubles import Hospitals, configure
from tests.server_app.runs import ASYNCHRONOUS, applied, events, run_on, seconds

A, B = "hospital-000", "hospital-001"
OLD, NEW = 2, 4
SETTINGS: dict[str, Any] = {"run__hospital_evaluation": False, "run__hospitals": 2, "run__allow_silent_hospitals": True}


class Moving(VirtualGrid):
    """A grid on which hospital 0 leaves its node for another one."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lose_node(NEW)

    def move(self) -> bool:
        self.lose_node(OLD)
        self.return_node(NEW)
        return False


class MovingAtATime(Moving):
    """It moves after 100 seconds."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.clock.schedule(100.0, self.move)


@pytest.mark.parametrize("rule", ASYNCHRONOUS)
def test_hospital_that_moved_while_it_trained_is_asked_again_with_the_next_version(tmp_path: Path, rule: str) -> None:
    settings = configure(tmp_path, aggregation__rounds=14, **SETTINGS, **ASYNCHRONOUS[rule])

    summary = run_on(settings, seconds(1000, 20, 30), Hospitals(names={2: A}), make=MovingAtATime)

    asked = [event["elapsed_s"] for event in events(tmp_path, "dispatch") if event["hospital"] == A]
    assert asked[0] == 0.0
    assert 100.0 <= asked[1] <= 125.0
    assert summary.refused == {"node-lost": 1}
    assert summary.per_hospital[A].updates > 0


@pytest.mark.parametrize(
    ("kind", "limit", "outcome"), [("train.release", 20, "applied"), ("train.discard", 1, "discarded")]
)
def test_decision_that_was_lost_with_its_node_follows_the_hospital(
    tmp_path: Path, kind: str, limit: int, outcome: str
) -> None:
    class MovingAtADecision(Moving):
        moves = True

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            pushed = list(messages)
            ids = list(super().push_messages(pushed))
            if self.moves and pushed[0].metadata.message_type == kind and pushed[0].metadata.dst_node_id == OLD:
                self.moves = False
                self.move()
            return ids

    hospitals = Hospitals(names={2: A})
    settings = configure(
        tmp_path, aggregation__rounds=14, aggregation__release="two-phase", aggregation__max_staleness=limit,
        privacy__mechanism="update-gaussian", **SETTINGS, **ASYNCHRONOUS["fedasync"],
    )  # fmt: skip

    summary = run_on(settings, seconds(50, 20, 1000), hospitals, make=MovingAtADecision)

    decided = [event for event in events(tmp_path, "dispatch") if event["hospital"] == A and event["task"] == kind]
    assert len(decided) == 2
    assert len({event["number"] for event in decided}) == 1
    assert hospitals.trained.count((A, 0)) == 1
    rows = [row for rows in applied(tmp_path).values() for row in rows if row["hospital"] == A]
    if outcome == "applied":
        assert [row["number"] for row in rows] == [decided[0]["number"]]
        assert list(hospitals.books[A, "training"]) == [0]
        assert summary.refused == {}
    else:
        assert hospitals.discarded[0] == (A, 0)
        assert not rows
        assert summary.refused["discarded"] >= 1
        assert (A, "training") not in hospitals.books


def test_hospital_on_a_second_node_is_let_in_as_soon_as_its_first_one_has_gone(tmp_path: Path) -> None:
    class Overlapping(Moving):
        """The new node is there at 100 seconds, and the old one until 140."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.clock.schedule(100.0, self.appear)
            self.clock.schedule(140.0, self.move)

        def appear(self) -> bool:
            self.return_node(NEW)
            return False

    settings = configure(tmp_path, aggregation__rounds=14, **SETTINGS, **ASYNCHRONOUS["fedasync"])

    summary = run_on(settings, seconds(1000, 20, 30), Hospitals(names={2: A}), make=Overlapping)

    enrolled = [event["elapsed_s"] for event in events(tmp_path, "enrol") if event["hospital"] == A]
    assert 140.0 <= enrolled[1] <= 145.0
    assert summary.refused["duplicate-hospital"] == 2
    assert summary.per_hospital[A].updates > 0
