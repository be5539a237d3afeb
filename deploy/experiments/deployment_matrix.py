"""All faults, one after the other, in one run of one consortium; and what a container costs when nothing happens."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from deploy.experiments.cells import Result
from deploy.experiments.deployment_faults import FAULTS, make_fault_images, make_small_volume
from deploy.experiments.deployment_images import EDGE_IMAGE, HOSPITAL_IMAGE, SERVER_IMAGE, build_images, size_mb
from deploy.experiments.deployment_play import await_result, playing, start_run
from deploy.experiments.deployment_stage import HOSPITALS, Stage, docker, run, wait_until
from deploy.experiments.deployment_watch import contributions, events, find_contradictions, version
from federation.errors import RunFailedError

_SMALL_MB = 96
_LIMIT_S = 900.0
_IDLE_S = 60.0
_LOOKS = 3
_MORE = 2


def measure_faults(settings: dict[str, Any], folder: Path) -> Result:
    """Return what came of every fault, and whether the federation's books agree after each and at the end.

    Args:
        settings: `root` of the data, and `faults`, their names in the order in which they are done.
        folder: not used.
    """
    del folder
    build_images()
    make_fault_images()
    place = Path(tempfile.mkdtemp(prefix="aegis-volume-"))
    small = make_small_volume(place, megabytes=_SMALL_MB)
    try:
        with playing(settings["root"], rounds=10_000, volumes={"state-a": small}) as stage:
            start_run(stage)
            wait_until(lambda: set(contributions(stage)) >= set(HOSPITALS), "an update of everybody", limit_s=_LIMIT_S)
            survived = [_do(stage, name) for name in settings["faults"]]
            finished = _finish(stage)
    finally:
        run(["umount", str(small)])
        shutil.rmtree(place, ignore_errors=True)
    return {"faults": survived, **finished}


def measure_footprint(settings: dict[str, Any], folder: Path) -> Result:
    """Return sizes of the images, what idle containers take, and what an update costs on top of its training.

    Args:
        settings: `root` of the data, and `rounds` of the run.
        folder: not used.
    """
    del folder
    with playing(settings["root"], rounds=settings["rounds"]) as stage:
        idle = _measure_idle(stage)
        start_run(stage)
        summary = await_result(stage, limit_s=3 * _LIMIT_S)
        costs = _overheads(stage)
        contradictions = find_contradictions(stage)
    return {
        "images-mb": {image: size_mb(image) for image in (HOSPITAL_IMAGE, SERVER_IMAGE, EDGE_IMAGE)},
        "idle": idle,
        "overhead-s": [cost["round-trip"] - cost["training"] for cost in costs],
        "training-s": [cost["training"] for cost in costs],
        "status": summary["status"],
        "updates": summary["updates_applied"],
        "contradictions": contradictions,
    }


def _do(stage: Stage, name: str) -> dict[str, Any]:
    """Do one fault and return what came of it; one that the federation did not survive ends nothing else."""
    started, before = time.monotonic(), version(stage)
    try:
        told, survived = FAULTS[name](stage), True
    except RunFailedError as error:
        told, survived = str(error)[-1500:], False
    faults = find_contradictions(stage)
    return {
        "name": name,
        "survived": survived and not faults,
        "told": told,
        "contradictions": faults,
        "versions": [before, version(stage)],
        "minutes": (time.monotonic() - started) / 60,
    }


def _finish(stage: Stage) -> dict[str, Any]:
    """Let the run end by itself, two versions from now, and return its result."""
    last = version(stage) + _MORE
    stage.compose("--profile", "run", "stop", "federation")
    for pid in stage.processes("serverapp", "flwr-serverapp"):
        os.kill(pid, signal.SIGKILL)
    text = (stage.folder / "run.toml").read_text(encoding="utf-8")
    (stage.folder / "run.toml").write_text(text.replace("rounds = 10000", f"rounds = {last}"), encoding="utf-8")
    stage.compose("--profile", "run", "up", "-d", "--no-deps", "--force-recreate", "federation")
    summary = await_result(stage, limit_s=_LIMIT_S)
    applied = sum(contributions(stage).values())
    return {
        "status": summary["status"],
        "version": summary["model_version"],
        "updates": summary["updates_applied"],
        "in-history": applied,
        "contradictions": find_contradictions(stage),
    }


def _measure_idle(stage: Stage) -> dict[str, dict[str, float]]:
    """Return memory and processor time of every container while nothing happens."""
    looks: dict[str, list[tuple[float, float]]] = {}
    threading.Event().wait(_IDLE_S)
    for _ in range(_LOOKS):
        for line in docker("stats", "--no-stream", "--format", "{{json .}}").splitlines():
            found = json.loads(line)
            if found["Name"].startswith(stage.project):
                service = found["Name"].removeprefix(f"{stage.project}-").removesuffix("-1")
                looks.setdefault(service, []).append(
                    (_megabytes(found["MemUsage"]), float(found["CPUPerc"].rstrip("%")))
                )
    return {
        service: {
            "memory-mb": statistics.fmean(look[0] for look in seen),
            "cpu-percent": statistics.fmean(look[1] for look in seen),
        }
        for service, seen in looks.items()
    }


def _megabytes(usage: str) -> float:
    """Return what `docker stats` calls used, in megabytes."""
    units = {"GiB": 1073.741824, "MiB": 1.048576, "KiB": 0.001024, "kB": 0.001, "B": 1e-6}
    used = usage.partition("/")[0].strip()
    unit = next(unit for unit in units if used.endswith(unit))
    return float(used.removesuffix(unit)) * units[unit]


def _overheads(stage: Stage) -> list[dict[str, float]]:
    """Return, for updates whose hospital got another training task at once, how long both ways and training took."""
    asked: dict[str, list[tuple[float, int]]] = {}
    for event in events(stage):
        if event["event"] == "dispatch" and event["task"] == "train":
            asked.setdefault(event["hospital"], []).append((event["elapsed_s"], event["version"]))
    found = []
    for hospital, tasks in asked.items():
        took = _trainings(stage, hospital)
        for (begin, base), (end, _) in itertools.pairwise(tasks):
            if base in took:
                found.append({"round-trip": end - begin, "training": took[base]})
    return found


def _trainings(stage: Stage, hospital: str) -> dict[int, float]:
    """Return how long a hospital trained, by the version it trained from, as its own log says."""
    lines = docker("exec", stage.name(hospital), "cat", f"/var/lib/aegis/{hospital}.log").splitlines()
    entries = [entry for entry in map(json.loads, lines) if entry["event"] == "trained"]
    return {entry["model_version"]: entry["milliseconds"] / 1000 for entry in entries}
