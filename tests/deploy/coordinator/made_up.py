"""A made-up consortium, and event logs written line by line, so that tests can say what must be seen of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomli_w

from deploy.coordinator.overview import Lookout
from deploy.coordinator.superlink import Answer, Node
from deploy.trust.consortium import Consortium, Hospital
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.hospital_key import make_key, public_line
from federation.config import Configuration

NOW = 1_800_000_000.0
HOUR_S = 3600.0
HOSTILE = '<script>alert(1)</script>"&'


def hospital(name: str, **fields: Any) -> Hospital:
    """Return an enrolled hospital whose node is called as it is."""
    key = public_line(make_key().public_key())
    return Hospital(**{"id": name, "public_key": key, "enrolled": "2026-01-01", "node_id": f"node-of-{name}", **fields})


def write_consortium(folder: Path, *hospitals: Hospital, name: str = "Lungs") -> Path:
    """Write who belongs to a consortium into `folder`, without certificates."""
    folder.mkdir(parents=True, exist_ok=True)
    consortium = Consortium(name=name, host="fl.example.org", created="2026-01-01", hospitals=hospitals)
    ConsortiumFolder(path=folder).write(consortium)
    return folder


def answer(**statuses: str) -> Answer:
    """Return a SuperLink's answer of now: per hospital the status of its node; gone ones have been so for an hour."""
    nodes = {
        f"node-of-{name}": Node(
            status=status,
            online_at=None if status == "registered" else NOW - 5 * HOUR_S,
            offline_at=NOW - HOUR_S if status == "offline" else None,
        )
        for name, status in statuses.items()
    }
    return Answer(asked_at=NOW - 3, nodes=nodes)


def event(kind: str, at_s: float, **fields: Any) -> dict[str, Any]:
    """Return an event `at_s` seconds after the opening of the log."""
    return {"event": kind, "elapsed_s": at_s, "wall_s": at_s, **fields}


def scores(accuracy: float) -> dict[str, Any]:
    """Return scores as the log holds them."""
    return {"accuracy": accuracy, "auroc": None, "loss": 1.0, "examples": 10}


def step(at_s: float, version: int, **staleness: int) -> dict[str, Any]:
    """Return that `version` was made of an update of each of these hospitals."""
    updates = [{"hospital": name, "number": 1, "staleness": age, "weight": 1.0} for name, age in staleness.items()]
    return event("apply", at_s, version=version, updates=updates)


def evaluation(at_s: float, version: int, central: float | None = None, **hospitals: float) -> dict[str, Any]:
    """Return the accuracies of `version`."""
    return event(
        "evaluate",
        at_s,
        version=version,
        central=None if central is None else scores(central),
        hospitals={name: scores(value) for name, value in hospitals.items()},
    )


def as_lines(events: Iterable[dict[str, Any]]) -> str:
    """Return `events` as the log holds them."""
    return "".join(json.dumps(item) + "\n" for item in events)


def write_run(
    root: Path, name: str, events: Iterable[dict[str, Any]], *, age_s: float = 60.0, tail: str = "", **settings: Any
) -> Path:
    """Write a run folder with `config.toml` and an event log whose last event is `age_s` old, then `tail`."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    tables = Configuration().model_dump(by_alias=True)
    for key, value in settings.items():
        table, _, field = key.partition("__")
        tables[table][field.replace("_", "-")] = value
    (folder / "config.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
    (folder / "events.jsonl").write_text(as_lines(events) + tail, encoding="utf-8")
    os.utime(folder / "events.jsonl", (NOW - age_s, NOW - age_s))
    return folder


def lookout(folder: Path, said: Answer | None = None, *, now: float = NOW) -> Lookout:
    """Return what looks at `folder`/consortium and `folder`/runs at `now`, and hears `said` of the SuperLink."""
    heard = answer() if said is None else said
    return Lookout(folder / "consortium", folder / "runs", lambda: heard, clock=lambda: now)
