"""A hospital speaks for the name under which the coordinator registered its key, and for no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from flwr.proto.node_pb2 import NodeInfo

from server_app.simulation.virtual_grid import VirtualGrid
from tests.doubles import Hospitals, configure
from tests.server_app.runs import events, run_on, seconds

A, B = "hospital-000", "hospital-001"
SETTINGS: dict[str, Any] = {"run__hospital_evaluation": False, "run__allow_silent_hospitals": True}


def registered(names: Mapping[int, str]) -> type[VirtualGrid]:
    """Return a grid that names its nodes as Flower's do."""

    class Registered(VirtualGrid):
        def get_nodes(self) -> Iterable[NodeInfo]:
            return [NodeInfo(node_id=node, name=names.get(node, "")) for node in self.get_node_ids()]

    return Registered


def test_hospital_under_its_own_key_takes_part(tmp_path: Path) -> None:
    settings = configure(tmp_path, aggregation__rounds=2, run__hospitals=2, **SETTINGS)

    summary = run_on(settings, seconds(10, 10), Hospitals(), make=registered({2: A, 3: B}))

    assert summary.refused == {}
    assert [summary.per_hospital[name].updates for name in (A, B)] == [2, 2]


@pytest.mark.parametrize("claimed", [B, "hospital-999"])
def test_hospital_that_calls_itself_another_than_its_key_says_is_refused(tmp_path: Path, claimed: str) -> None:
    settings = configure(tmp_path, aggregation__rounds=2, run__wait_s=20.0, run__hospitals=2, **SETTINGS)

    summary = run_on(settings, seconds(10, 10), Hospitals(names={0: claimed}), make=registered({2: A, 3: B}))

    assert set(summary.refused) == {"wrong-key"}
    assert {event["hospital"] for event in events(tmp_path, "enrol")} == {B}
    assert summary.per_hospital[B].updates == 2


def test_nodes_that_nobody_registered_speak_for_themselves(tmp_path: Path) -> None:
    settings = configure(tmp_path, aggregation__rounds=1, run__hospitals=2, **SETTINGS)

    summary = run_on(settings, seconds(10, 10), Hospitals(), make=registered({}))

    assert summary.refused == {}


def test_node_without_a_name_speaks_for_nobody_where_others_have_one(tmp_path: Path) -> None:
    settings = configure(tmp_path, aggregation__rounds=2, run__wait_s=20.0, run__hospitals=2, **SETTINGS)

    summary = run_on(settings, seconds(10, 10), Hospitals(), make=registered({3: B}))

    assert set(summary.refused) == {"wrong-key"}
    assert {event["hospital"] for event in events(tmp_path, "enrol")} == {B}


def test_node_that_answers_and_leaves_escapes_no_check(tmp_path: Path) -> None:
    class Leaving(VirtualGrid):
        """Node 2 is not listed while its first answer is read."""

        asked = 0

        def get_nodes(self) -> Iterable[NodeInfo]:
            self.asked += 1
            there = [node for node in self.get_node_ids() if node != 2 or self.asked > 2]
            return [NodeInfo(node_id=node, name={2: A, 3: B}[node]) for node in there]

    settings = configure(tmp_path, aggregation__rounds=2, run__wait_s=20.0, run__hospitals=2, **SETTINGS)

    summary = run_on(settings, seconds(10, 10), Hospitals(names={0: "hospital-999"}), make=Leaving)

    assert "hospital-999" not in {event["hospital"] for event in events(tmp_path, "enrol")}
    assert summary.refused["node-lost"] >= 1
