"""How a subcommand that trains ends: a summary for people or machines, and an exit code."""

from __future__ import annotations

import json
from typing import NoReturn

import typer

from server_app.run_folder import RunFolder
from server_app.summary import Summary


def summary_stamp(folder: RunFolder) -> int:
    """Return what tells one writing of the summary in `folder` from another; 0 when there is none."""
    return folder.summary.stat().st_mtime_ns if folder.summary.is_file() else 0


def finish(folder: RunFolder, *, as_json: bool, failure: str = "", older: int = 0) -> NoReturn:
    """Print the summary of the run in `folder`, if it got that far, and exit with 0, or 1 when there is a `failure`.

    Args:
        folder: of the run.
        as_json: print JSON and nothing else.
        failure: why the run failed; empty when it did not.
        older: stamp of a summary that an earlier run left, which is not shown as this run's.
    """
    written = summary_stamp(folder) not in (0, older)
    text = folder.summary.read_text(encoding="utf-8") if written else ""
    if as_json:
        typer.echo(text or json.dumps({"status": "failed", "reason": failure}))
    elif text:
        typer.echo(describe(Summary.model_validate_json(text), folder))
    raise typer.Exit(1 if failure else 0)


def describe(summary: Summary, folder: RunFolder) -> str:
    """Return the summary in a few lines."""
    lines = [f"{summary.run}: {summary.status.value}, version {summary.model_version}"]
    if summary.final:
        auroc = "-" if summary.final.auroc is None else f"{summary.final.auroc:.3f}"
        lines.append(f"accuracy {summary.final.accuracy:.3f}  AUROC {auroc}  on {summary.final.examples} images")
    if summary.worst_hospital:
        worst = summary.per_hospital[summary.worst_hospital].accuracy
        lines.append(f"worst hospital {summary.worst_hospital}: accuracy {worst:.3f}")
    if summary.silent_hospitals:
        lines.append(f"contributed nothing: {', '.join(summary.silent_hospitals)}")
    lines.append(f"report: {folder.report}" if folder.report.is_file() else f"summary: {folder.summary}")
    return "\n".join(lines)
