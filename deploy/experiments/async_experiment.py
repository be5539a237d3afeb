"""The experiment behind `docs/results/03-async.*`: chapters that are measured apart and written together.

Every command computes its own chapter's cells, reads the finished ones of all others, and writes the whole page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from deploy.exits import usage_errors
from deploy.experiments.async_chapter import Chapter, Results
from deploy.experiments.async_ladder import LADDER
from deploy.experiments.async_server import SERVER
from deploy.experiments.async_straggler import STRAGGLER
from deploy.experiments.async_sweep import SWEEP
from deploy.experiments.cells import Cell
from deploy.experiments.claims import Claim, claims_as_json, claims_as_table
from deploy.experiments.experiment import Experiment, run_experiment
from federation.durable import write_durably
from federation.errors import ConfigurationError

SLUG = "03-async"
CHAPTERS: tuple[Chapter, ...] = (STRAGGLER, LADDER, SWEEP, SERVER)
"""In the order of the page."""


def run_chapter(command: str, *, part: list[str] | None, data_root: str, jobs: int, fresh: bool, as_json: bool) -> None:
    """Compute the missing cells of one chapter, then write the page from the finished cells of all.

    Args:
        command: of the chapter.
        part: of its parts; None for all.
        data_root: folder with the subfolder `medmnist`; empty to download.
        jobs: processes side by side.
        fresh: forget this chapter's finished cells of these parts first; other chapters keep theirs.
        as_json: print the claims as JSON and nothing else.
    """
    chapter = next(item for item in CHAPTERS if item.command == command)
    parts = part or list(chapter.parts)
    with usage_errors():
        if unknown := set(parts) - set(chapter.parts):
            raise ConfigurationError(
                f"Expected --part of {', '.join(chapter.parts)}, found {', '.join(sorted(unknown))}."
            )
    if fresh:
        for cell in chapter.cells(parts, data_root, Path.cwd()):
            (Path.cwd() / "runs" / "experiments" / SLUG / f"{cell.name}.json").unlink(missing_ok=True)
    experiment = Experiment(
        slug=SLUG,
        parts=tuple(name for item in CHAPTERS for name in item.parts),
        cells=async_cells,
        claims=async_claims,
        write=write_async_results,
    )
    run_experiment(experiment, part=parts, data_root=data_root, jobs=jobs, fresh=False, as_json=as_json)


def async_cells(parts: Sequence[str], data_root: str, source: Path) -> list[Cell]:
    """Return the cells of the named parts of all chapters.

    Args:
        parts: of any chapter.
        data_root: folder with the subfolder `medmnist`; empty to download.
        source: the source tree.
    """
    return [cell for chapter in CHAPTERS for cell in chapter.cells(parts, data_root, source)]


def async_claims(results: Results) -> list[Claim]:
    """Return every claim of the page; one whose cells are missing has no value."""
    return [item for chapter in CHAPTERS for item in chapter.claims(results)]


def write_async_results(results: Results, made: dict[str, dict[str, str]], folder: Path) -> None:
    """Write `03-async.json`, `03-async.md` and the plots into `folder`.

    Args:
        results: finished cells by name.
        made: when, where and by which code each was made.
        folder: of the results pages.
    """
    claims = async_claims(results)
    folder.mkdir(parents=True, exist_ok=True)
    cells = {name: {"made": made[name], **result} for name, result in results.items()}
    content = {"claims": claims_as_json(claims, made), "cells": cells}
    write_durably(folder / f"{SLUG}.json", (json.dumps(content, indent=1) + "\n").encode())
    for chapter in CHAPTERS:
        chapter.draw(results, folder)
    commands = ", ".join(f"`aegis experiment {chapter.command}`" for chapter in CHAPTERS)
    machines = "; ".join(sorted({item["machine"] for item in made.values()}))
    sections = [
        "# 03 Asynchronous aggregation",
        f"Written by {commands}; do not edit. Machine: {machines}. Hours and speeds are virtual: the virtual clock "
        "runs the shipped server and hospitals and lets each task take the time that its hospital is said to need.",
        claims_as_table(claims),
        *(section for chapter in CHAPTERS for section in chapter.render(results)),
    ]
    write_durably(folder / f"{SLUG}.md", ("\n\n".join(part for part in sections if part) + "\n").encode())
