"""Servers that are killed wherever they touch the disk and at random moments, and what becomes of their federations.

Run as a program of its own (`python -m deploy.experiments.async_kills FOLDER SETTINGS`), because it forks: a
child is a server until it dies, the parent reads what is left, and starts the next one.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deploy.experiments.async_kills_history import Findings, examine, find_kept, newest_version, read_book
from deploy.experiments.async_kills_victim import SCENARIOS, Place, live
from deploy.experiments.cells import Result
from deploy.experiments.ledger_victim import Kill

_AT_RANDOM = 0.2
_AGAIN = 0.3
_STARTS = 3


@dataclass(slots=True, kw_only=True)
class Toll:
    """What all kills together did.

    Attributes:
        kills: servers that died where they should.
        at_random: of them, at a random moment and not at a point.
        while_resuming: of them, while or after they resumed a run.
        points: names of the points at which one died.
        runs: federations.
        lost: updates that a server had made durable and that are not in the final model.
        doubled: updates that are in it more than once.
        dropped: updates that a server had accepted and not made durable when it was killed, as on the way to it.
        applied: updates in all final models.
        waiting: updates that wait in a buffer at the end of their runs.
        faults: everything else that is not as it must be.
        resume_s: seconds from the beginning of every resumed session to its first task or step.
        start_s: the same from the start of a new process, so with all imports.
    """

    kills: int = 0
    at_random: int = 0
    while_resuming: int = 0
    points: list[str] = field(default_factory=list)
    runs: int = 0
    lost: int = 0
    doubled: int = 0
    dropped: int = 0
    applied: int = 0
    waiting: int = 0
    faults: list[str] = field(default_factory=list)
    resume_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)

    def add(self, findings: Findings, where: str) -> None:
        """Add what was found in one federation."""
        self.lost += findings.lost
        self.doubled += findings.doubled
        self.dropped += findings.dropped
        self.applied += findings.applied
        self.waiting += findings.waiting
        self.faults += [f"{where}: {fault}" for fault in findings.faults]


class Matrix:
    """Runs federations below one folder, each until its server has been killed once or twice and come to its end."""

    def __init__(self, folder: Path, *, seed: int, replays: bool) -> None:
        """Prepare the matrix.

        Args:
            folder: for the federations; should be empty.
            seed: decides points, moments and their order.
            replays: whether hospitals begin again with a restarted server, as in a simulation.
        """
        self.toll = Toll()
        self._folder = folder
        self._draw = np.random.default_rng(seed)
        self._replays = replays
        self._unbroken: dict[str, Place] = {}
        self._lasts_s = math.inf
        self._lives = 0

    def run(self, kills: int) -> Toll:
        """Kill until `kills` servers have died, over all scenarios in turn, and return the toll."""
        import server_app.report  # noqa: F401 - loaded once here, and not in every child.

        points = {name: self._discover(name) for name in SCENARIOS}
        fresh = {point for passed in points.values() for point in passed}
        while self.toll.kills < kills and not self.toll.faults:
            for name, passed in points.items():
                choice = sorted(fresh & passed.keys()) or sorted(passed)
                point = choice[int(self._draw.integers(len(choice)))]
                fresh.discard(point)
                self._strike(name, Kill(birth=True, point=point, hit=int(self._draw.integers(passed[point])) + 1))
        self.toll.points.sort()
        if not self._replays:
            self._time_starts(_STARTS)
        return self.toll

    def _discover(self, scenario: str) -> dict[str, int]:
        """Run a federation that nobody interrupts; return the points that its server passes, with how often."""
        place, started = self._place(scenario, "unbroken"), time.perf_counter()
        if self._live(place, None, resume=False) != 0:
            self.toll.faults.append(f"{scenario}: the unbroken run failed")
        self._lasts_s = min(self._lasts_s, time.perf_counter() - started)
        self._unbroken[scenario] = place
        passed: dict[str, int] = json.loads((place.root / "passed.json").read_text(encoding="utf-8"))
        return passed

    def _strike(self, scenario: str, kill: Kill) -> None:
        """Let a server die, go on with others until the run is over, and look at what came of it."""
        place = self._place(scenario, f"{len(self._unbroken)}-{self.toll.runs}")
        self.toll.runs += 1
        kept: set[str] = set()
        over = self._die(place, None if self._draw.random() < _AT_RANDOM else kill, kept)
        while not over and self._draw.random() < _AGAIN:
            again = Kill(birth=False, point=kill.point, hit=1)
            over = self._die(place, None if self._draw.random() < _AT_RANDOM else again, kept)
        if not over and (code := self._live(place, None, resume=newest_version(place) >= 0)):
            self.toll.faults.append(f"{scenario}, {kill}: the last server ended with {code}")
            return
        findings = examine(place, kept, self._unbroken[scenario] if self._replays else None)
        self.toll.add(findings, f"{scenario}, {kill}")
        self.toll.resume_s += [line["seconds"] for line in read_book(place, "at work") if line["resumed"]]
        if not (findings.lost or findings.doubled or findings.faults):
            shutil.rmtree(place.root)

    def _die(self, place: Place, kill: Kill | None, kept: set[str]) -> bool:
        """Start a server that dies at `kill`, or at a random moment; return whether it came to its end instead."""
        resume = newest_version(place) >= 0
        after_s = math.inf if kill else float(self._draw.uniform(0, self._lasts_s))
        code = self._live(place, kill, resume=resume, after_s=after_s)
        kept |= find_kept(place)
        if code == -signal.SIGKILL:
            self.toll.kills += 1
            self.toll.at_random += kill is None
            self.toll.while_resuming += resume
            if kill and kill.point not in self.toll.points:
                self.toll.points.append(kill.point)
        elif code or (kill and kill.birth):
            self.toll.faults.append(f"{place.scenario}, {kill}: ended with {code} instead of the kill")
        return code == 0

    def _live(self, place: Place, kill: Kill | None, *, resume: bool, after_s: float = math.inf) -> int | None:
        """Run a server in a forked process, for `after_s` at most, and return its exit code, -9 when it was killed."""
        self._lives += 1
        options = {"resume": resume, "nonce": "" if self._replays else str(self._lives)}
        process = multiprocessing.get_context("fork").Process(target=live, args=(place, kill), kwargs=options)
        process.start()
        process.join(None if math.isinf(after_s) else after_s)
        if process.is_alive() and math.isfinite(after_s):
            process.kill()
            process.join()
        return process.exitcode

    def _time_starts(self, times: int) -> None:
        """Kill servers in the middle of a run, and time how long a new program takes to go on with it."""
        for number in range(times):
            place = self._place("buffered", f"start-{number}")
            self._live(place, Kill(birth=True, point="GlobalModel.apply after", hit=4), resume=False)
            started = time.time()
            command = [sys.executable, "-m", "deploy.experiments.async_kills_victim", str(place.root), "buffered"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            self.toll.start_s.append(read_book(place, "at work")[-1]["at"] - started)

    def _place(self, scenario: str, name: str) -> Place:
        return Place(root=self._folder / f"{scenario}-{name}", scenario=scenario, replays=self._replays)


def measure_kills(settings: dict[str, Any], folder: Path) -> Result:
    """Return the toll of a matrix, run in a program of its own on the volume of `folder`.

    Args:
        settings: `kills`, `seed`, `replays`.
        folder: where federations may live for a while.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="kills-") as place:
        command = [sys.executable, "-m", "deploy.experiments.async_kills", place, json.dumps(settings)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # A process that has threads must not fork.
        finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    toll: Result = json.loads(finished.stdout)
    return toll


if __name__ == "__main__":
    asked = json.loads(sys.argv[2])
    matrix = Matrix(Path(sys.argv[1]), seed=asked["seed"], replays=asked["replays"])
    sys.stdout.write(json.dumps(asdict(matrix.run(asked["kills"]))))
