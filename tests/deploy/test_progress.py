"""The progress bar of a run: what the event log says, as one line for whoever watches."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from deploy.progress import RunProgress


def apply(version: int, *staleness: int) -> dict[str, Any]:
    return {"event": "apply", "version": version, "updates": [{"staleness": age} for age in staleness]}


def refusal(reason: str) -> dict[str, Any]:
    return {"event": "refusal", "reason": reason}


def watch(folder: Path, *events: dict[str, Any], older: int = 0, width: int = 100) -> str:
    """Return the last line that the bar draws of `events`, the first `older` of which a resumed run had written."""
    path, drawn = folder / "events.jsonl", io.StringIO()
    lines = [json.dumps(event) + "\n" for event in events]
    path.write_text("".join(lines[:older]))
    with RunProgress(path, 40, Console(file=drawn, width=width), resume=True), path.open("a") as file:
        file.writelines(lines[older:])
    return drawn.getvalue().rstrip("\n").splitlines()[-1]


def test_synchronous_run_shows_versions_updates_and_accuracy(tmp_path: Path) -> None:
    evaluated = {"event": "evaluate", "central": {"accuracy": 0.8125}}

    line = watch(tmp_path, {"event": "start"}, apply(1, 0, 0), evaluated)

    assert line.startswith("2 updates  accuracy 0.812 ")
    assert "1/40" in line
    assert "stale" not in line


def test_asynchronous_run_shows_how_old_its_updates_are(tmp_path: Path) -> None:
    line = watch(tmp_path, apply(1, 0), apply(2, 1, 5))

    assert line.startswith("3 updates  stale 2.0 ")
    assert "2/40" in line


def test_discarded_results_are_told_apart_from_refusals(tmp_path: Path) -> None:
    line = watch(tmp_path, refusal("discarded"), refusal("too-stale"), refusal("discarded"))

    assert line.startswith("training  refused 1  discarded 2 ")


def test_resumed_run_counts_what_came_since(tmp_path: Path) -> None:
    line = watch(tmp_path, apply(1, 9), refusal("too-stale"), apply(2, 1), older=2)

    assert line.startswith("1 updates  stale 1.0 ")


@pytest.mark.parametrize("width", [80, 120])
def test_line_fits_a_terminal(width: int, tmp_path: Path) -> None:
    evaluated = {"event": "evaluate", "central": {"accuracy": 0.8125}}

    line = watch(tmp_path, apply(12, *[1] * 48), evaluated, refusal("too-stale"), width=width)

    assert line.startswith("48 updates  stale 1.0  accuracy 0.812  refused 1 ")
    assert "12/40" in line
    assert "\u2026" not in line
