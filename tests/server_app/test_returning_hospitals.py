"""A resumed server goes on at once with hospitals that are where they were, and asks everybody else who they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from federation.config import Configuration
from federation.errors import RunFailedError
from server_app.engine import Engine
from server_app.simulation.virtual_grid import VirtualClock, VirtualGrid
from server_app.summary import Summary
from tests.doubles import INFO, Hospitals, configure
from tests.server_app.killing import Killed, kill_at
from tests.server_app.runs import applied, events, run_on, seconds

A, B = "hospital-000", "hospital-001"
OLD, OTHER, NEW, LAST = 2, 3, 4, 5


class Watched(VirtualGrid):
    """A grid that notes which nodes were asked who they are, and on which `away` are not connected."""

    away: tuple[int, ...] = (NEW,)
    asked: list[int]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        type(self).asked = []
        for node_id in self.away:
            self.lose_node(node_id)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = list(messages)
        self.asked += [item.metadata.dst_node_id for item in pushed if item.metadata.message_type == "query"]
        return super().push_messages(pushed)


class Moved(Watched):
    away = (OLD,)


class Federation:
    """Hospitals whose server has died after its second version; A has a second node."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        replays: bool = False,
        rule: dict[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        self._folder, self._rule = folder, rule or {}
        self.hospitals = Hospitals(names={2: A}, **changes)
        monkeypatch.setattr(VirtualClock, "replays", replays)
        with monkeypatch.context() as patch:
            kill_at(patch, Engine, "_record_application", 2, after=True)
            with pytest.raises(Killed):
                run_on(self._settings(), seconds(10, 10, 10, 10), self.hospitals, make=Watched)

    def resume(self, make: type[Watched] = Watched, **more: Any) -> Summary:
        settings = self._settings(run__resume=True, **more)
        return run_on(settings, seconds(10, 10, 10, 10), self.hospitals, make=make)

    def waited(self) -> float:
        """Return how long it took the server to ask for anything after it had been resumed."""
        log = events(self._folder, "resume", "dispatch")
        ((place, resumed),) = [(index, event) for index, event in enumerate(log) if event["event"] == "resume"]
        first = next(event for event in log[place:] if event["event"] == "dispatch")
        return float(first["elapsed_s"] - resumed["elapsed_s"])

    def _settings(self, **more: Any) -> Configuration:
        usual: dict[str, Any] = {"aggregation__rounds": 4, "run__allow_silent_hospitals": True}
        return configure(self._folder, **usual | self._rule | more)


def test_hospitals_on_their_nodes_are_asked_to_train_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(tmp_path, monkeypatch)
    assert Watched.asked == [OLD, OTHER, LAST]

    summary = federation.resume()

    assert Watched.asked == []
    assert federation.waited() == 0.0
    assert [item.updates for item in summary.per_hospital.values()] == [4, 4, 4]
    assert summary.refused == {}


def test_hospital_on_a_new_node_has_to_enrol_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(tmp_path, monkeypatch)

    summary = federation.resume(Moved)

    assert Moved.asked == [NEW]
    assert summary.per_hospital[A].updates == 4


def test_hospital_that_is_not_connected_does_not_count_as_being_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deserted(Watched):
        away = (OLD, OTHER, NEW, LAST)

    federation = Federation(tmp_path, monkeypatch)

    with pytest.raises(RunFailedError, match="found 0 enrolled on 0 connected nodes"):
        federation.resume(Deserted)


def test_buffer_for_everybody_is_filled_although_a_known_hospital_reconnects_after_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Watched):
        away = (NEW, LAST)

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.clock.schedule(27.0 + 8.0, self.come_back)

        def come_back(self) -> bool:
            self.return_node(LAST)
            return False

    rule = {"aggregation__rule": "buffered", "aggregation__buffer_size": 3, "aggregation__rounds": 6}
    federation = Federation(tmp_path, monkeypatch, rule=rule)

    summary = federation.resume(Late)

    assert federation.waited() == 5.0
    assert (summary.status, summary.model_version) == ("completed", 6)
    assert [len(rows) for _, rows in sorted(applied(tmp_path).items())] == [3, 3, 3, 3, 3, 3]


def test_simulated_hospitals_begin_again_with_the_server_and_enrol_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Federation(tmp_path, monkeypatch, replays=True).resume()

    assert Watched.asked == [OLD, OTHER, LAST]


def test_hospital_that_is_not_configured_any_more_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(tmp_path, monkeypatch)

    summary = federation.resume(run__hospital_ids=A)

    assert Watched.asked == [OTHER, LAST]
    assert summary.refused == {"wrong-hospital": 2}
    assert (summary.per_hospital[A].updates, summary.per_hospital[B].updates) == (4, 2)


def test_hospital_that_was_turned_away_for_its_data_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(tmp_path, monkeypatch, info={1: replace(INFO, channels=3)})

    summary = federation.resume()

    assert Watched.asked == [OTHER]
    assert summary.refused == {"data-mismatch": 2}
    assert B not in summary.per_hospital or summary.per_hospital[B].updates == 0
