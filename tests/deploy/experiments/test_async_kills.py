"""Servers that are killed wherever they touch the disk lose nothing and apply nothing twice, and one would see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from deploy.experiments.async_kills import measure_kills
from deploy.experiments.async_kills_history import find_kept, newest_version, read_book
from deploy.experiments.async_kills_victim import SCENARIOS, Place
from deploy.experiments.async_kills_watch import Book, fingerprint

PROGRAM = """
import json, sys
from pathlib import Path
from dataclasses import asdict
from deploy.experiments import async_kills as kills
{breakage}
kills.SCENARIOS = {{name: kills.SCENARIOS[name] for name in {scenarios}}}
matrix = kills.Matrix(Path(sys.argv[1]), seed=0, replays={replays})
print(json.dumps(asdict(matrix.run({kills}))))
"""
FORGET_WHAT_WAITED = """
from server_app.update_buffer import DiskBuffer
DiskBuffer.restore = lambda self, like, consumed: [self.drop([int(p.stem[7:]) for p in self._folder.iterdir()]), []][1]
"""
KEEP_WHAT_WAS_APPLIED = """
from server_app.update_buffer import DiskBuffer
DiskBuffer.drop = lambda self, numbers: None
"""
FORGET_THE_MOMENTUM = """
from server_app.checkpoint import CheckpointStore
load = CheckpointStore.load_newest
def broken(self):
    found = load(self)
    for value in found.optimizer_state.values():
        value.zero_()
    return found
CheckpointStore.load_newest = broken
"""
FORGET_OPEN_TASKS = """
from server_app.resumption import Resumption
Resumption._send_again = lambda self, tasks: None
"""


def run_matrix(folder: Path, breakage: str, scenarios: list[str], *, replays: bool, kills: int) -> dict[str, Any]:
    program = PROGRAM.format(breakage=breakage, scenarios=scenarios, replays=replays, kills=kills)
    finished = subprocess.run(
        [sys.executable, "-c", program, str(folder)], check=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    toll: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return toll


@pytest.mark.slow
@pytest.mark.parametrize("replays", [True, False], ids=["virtual", "deployed"])
def test_servers_killed_at_many_points_lose_and_double_nothing(tmp_path: Path, replays: bool) -> None:
    toll = measure_kills({"kills": 30, "seed": 1, "replays": replays}, tmp_path)

    assert (toll["lost"], toll["doubled"], toll["faults"]) == (0, 0, [])
    assert toll["kills"] >= 30
    assert toll["runs"] >= len(SCENARIOS)
    assert toll["applied"] > toll["runs"] * 8
    assert len(toll["points"]) > 10
    assert max(toll["resume_s"]) < 60
    assert bool(toll["start_s"]) is not replays
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("breakage", "replays", "seen"),
    [
        (FORGET_WHAT_WAITED, False, "lost"),
        (KEEP_WHAT_WAS_APPLIED, False, "doubled"),
        (FORGET_THE_MOMENTUM, False, "faults"),
        (FORGET_THE_MOMENTUM, True, "faults"),
        (FORGET_OPEN_TASKS, True, "faults"),
    ],
    ids=["forgets waiting", "applies twice", "momentum deployed", "momentum virtual", "forgets tasks"],
)
def test_matrix_sees_what_a_broken_server_does(tmp_path: Path, breakage: str, replays: bool, seen: str) -> None:
    toll = run_matrix(tmp_path, breakage, ["buffered"], replays=replays, kills=8)

    assert toll[seen]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(root=tmp_path, scenario="buffered", replays=False)
    for name in ("checkpoints", "buffer"):
        (place.run / name).mkdir(parents=True)
    return place


def put(path: Path, value: float) -> str:
    """Write a tensor to `path` and return its fingerprint."""
    tensors = {"w": torch.tensor([value])}
    safetensors.torch.save_file(tensors, path)
    return fingerprint(tensors)


def test_kept_is_what_is_in_a_durable_version_or_lies_in_the_buffer(place: Place) -> None:
    book = Book(place.book, resumed=False)
    for version, name in ((1, "a"), (2, "b"), (3, "c"), (3, "d")):
        book.line("apply", version=version, updates=[{"print": name}])
    put(place.run / "checkpoints" / "version-00000002.safetensors", 0.0)
    waiting = put(place.run / "buffer" / "update-0000000007.safetensors", 7.0)

    assert newest_version(place) == 2
    assert find_kept(place) == {"a", "b", waiting}


def test_run_without_a_durable_version_has_none_and_keeps_nothing(tmp_path: Path) -> None:
    place = Place(root=tmp_path, scenario="buffered", replays=False)

    assert newest_version(place) == -1
    assert find_kept(place) == set()
    assert read_book(place, "apply") == []


def test_half_a_line_at_the_end_of_a_book_is_none(place: Place) -> None:
    Book(place.book, resumed=True).line("held", print="a")
    with place.book.open("a") as file:
        file.write('{"kind": "held", "pri')

    assert [line["print"] for line in read_book(place, "held")] == ["a"]


def test_fingerprint_does_not_depend_on_the_order_of_names() -> None:
    left, right = torch.ones(2), torch.zeros(3)

    assert fingerprint({"a": left, "b": right}) == fingerprint({"b": right, "a": left})
    assert fingerprint({"a": left, "b": right}) != fingerprint({"a": right, "b": left})
