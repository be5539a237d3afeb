"""A consortium of containers from nothing to a run that goes on, and everything taken down behind it."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from deploy.experiments.deployment_data import run_tables, site_policy, write_public, write_share
from deploy.experiments.deployment_images import build_images
from deploy.experiments.deployment_stage import HOSPITALS, Stage, wait_until

_CACHE = (
    *("aegis", "cache", "build", "/var/lib/aegis/cache", "--policy", "/etc/aegis/site.toml", "--generator", "folder"),
    *("--weights", "/etc/aegis/public", "--weights-are-public", "--filter", "none", "--labels", "balanced"),
    *("--unchecked", "--images", "256"),
)
_IMAGES, _PUBLIC = 600, 400


@contextmanager
def playing(
    data_root: str,
    *,
    rounds: int,
    hospitals: tuple[str, ...] = HOSPITALS,
    mark: str = "",
    changes: Mapping[str, Any] | None = None,
    volumes: Mapping[str, Path] | None = None,
) -> Iterator[Stage]:
    """Return a stage whose server is up and whose `hospitals` are enrolled, registered, and connected; no run yet.

    Args:
        data_root: folder with the MedMNIST files.
        rounds: of the run that `start_run` starts.
        hospitals: who is started.
        mark: begin of every file name of an image.
        changes: tables of the run in place of the usual ones.
        volumes: folders of this machine in place of volumes of the compose file, by the volume's name.
    """
    build_images()
    folder = Path(tempfile.mkdtemp(prefix="aegis-stage-"))
    stage = Stage(folder=folder)
    with ended_by_signals(), _taken_down(stage):
        stage.enrol()
        for site, hospital in enumerate(HOSPITALS):
            write_share(folder / "data" / hospital, data_root, site=site, sites=len(HOSPITALS), most=_IMAGES, mark=mark)
            write_public(stage.kit(hospital) / "public", data_root, most=_PUBLIC)
            stage.write_policy(hospital, site_policy(hospital))
        stage.hand_over()
        stage.write_run(run_tables(rounds=rounds, **(changes or {})))
        if volumes:
            stage.override("volumes", {}, volumes={name: _bound(path) for name, path in volumes.items()})
        stage.compose("up", "-d", "--wait", "superlink", "serverapp", "coordinator", "edge")
        stage.compose("--profile", "enrol", "run", "--rm", "-T", "enrol")
        for hospital in hospitals:
            stage.compose("run", "--rm", "--no-deps", "-T", hospital, *_CACHE)
        stage.compose("up", "-d", *hospitals)
        for hospital in hospitals:
            await_connection(stage, hospital)
        yield stage


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGINT into an exception, so that whoever is told to end cleans up; a second one is ignored.

    Raises:
        SystemExit: with 128 and the signal's number, as a shell would say.
    """
    numbers = (signal.SIGTERM, signal.SIGINT)

    def end(number: int, _: FrameType | None) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _taken_down(stage: Stage) -> Iterator[None]:
    try:
        yield
    finally:
        stage.take_down()
        shutil.rmtree(stage.folder, ignore_errors=True)


def await_connection(stage: Stage, hospital: str) -> float:
    """Wait until the node of a hospital says that the server answers it, and return the seconds that took."""
    return wait_until(
        lambda: stage.node_state(hospital).get("phase") == "connected",
        f"{hospital} to be connected",
        limit_s=300.0,
        watch=[lambda: str(stage.node_state(hospital)), lambda: stage.compose("logs", "--tail", "20", hospital)],
    )


def start_run(stage: Stage) -> None:
    """Start the run of run.toml, kept by the service `federation`."""
    stage.compose("--profile", "run", "up", "-d", "--no-deps", "federation")


def await_result(stage: Stage, *, limit_s: float) -> dict[str, Any]:
    """Wait for the summary of the run and return it."""
    wait_until(lambda: stage.summary() is not None, "the run to end", limit_s=limit_s)
    return stage.summary() or {}


def _bound(path: Path) -> dict[str, Any]:
    return {"driver": "local", "driver_opts": {"type": "none", "o": "bind", "device": str(path)}}
