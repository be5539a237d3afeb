"""`aegis experiment cache`: what are synthetic images worth, what gives them away, and does a cache survive kills?"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.experiments.cache_builds import build_cell_name, build_cells
from deploy.experiments.cache_crashes import measure_cache_crashes
from deploy.experiments.cache_generators import (
    FULL_MINUTES,
    HOSPITALS,
    SEEDS,
    generator_cell_name,
    generator_cells,
    other_cells,
)
from deploy.experiments.cache_page import cache_sections, draw_quality
from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim, claims_as_json, claims_as_table
from federation.durable import write_durably

COMMAND = "aegis experiment cache"
CRASHES = "crashes"
_KILLS = 200
_RATIOS = {
    "pneumoniamnist": ("pneumonia_synthetic_ratio", ">= 0.98"),
    "organamnist": ("organa_synthetic_ratio", ">= 0.88"),
}

Results = dict[str, Result]


def cache_cells(parts: Sequence[str], *, data_root: str) -> list[Cell]:
    """Return the cells of the named `parts`.

    Args:
        parts: of `CACHE_PARTS`; "builds" needs the finished cells of "diffusion".
        data_root: folder with the data sets.
    """
    cells: list[Cell] = []
    cells += generator_cells(data_root) if "diffusion" in parts else []
    cells += other_cells(data_root) if "others" in parts else []
    cells += build_cells(data_root) if "builds" in parts else []
    if "crashes" in parts:
        cells.append(
            Cell(name=CRASHES, compute=measure_cache_crashes, settings={"kills": _KILLS, "seed": 0}, alone=True)
        )
    return cells


def cache_claims(results: Results) -> list[Claim]:
    """Return every claim of the experiment; one whose cells are missing has no value."""
    return [*_time_claims(results), *_ratio_claims(results), *_spread_claims(results), _crash_claim(results)]


def write_cache_results(results: Results, made: dict[str, dict[str, str]], folder: Path) -> None:
    """Write `04-cache.json`, `04-cache.md` and the plot into `folder`.

    Args:
        results: finished cells by name.
        made: when, where and by which code each was made.
        folder: of the results pages.
    """
    claims = cache_claims(results)
    folder.mkdir(parents=True, exist_ok=True)
    cells = {name: {"made": made[name], **result} for name, result in results.items()}
    content = {"command": COMMAND, "claims": claims_as_json(claims, made), "cells": cells}
    write_durably(folder / "04-cache.json", (json.dumps(content, indent=1) + "\n").encode())
    draw_quality(results, folder / "04-cache-quality.svg")
    machines = "; ".join(sorted({item["machine"] for item in made.values()}))
    sections = [
        "# 04 The Aegis cache",
        f"Written by `{COMMAND}`; do not edit. Machine: {machines}.",
        claims_as_table(claims),
        *cache_sections(results),
    ]
    write_durably(folder / "04-cache.md", ("\n\n".join(part for part in sections if part) + "\n").encode())


def _full(results: Results) -> dict[str, Result]:
    """Return the cell of the full training of each data set, where it is finished."""
    names = {name: generator_cell_name(name, 0, FULL_MINUTES) for name in HOSPITALS}
    return {name: results[cell] for name, cell in names.items() if cell in results}


def _cells_of_full() -> list[str]:
    return [generator_cell_name(name, 0, FULL_MINUTES) for name in HOSPITALS]


def _time_claims(results: Results) -> list[Claim]:
    full = _full(results)
    builds = {name: results[cell] for name in HOSPITALS if (cell := build_cell_name(name, "as-generated")) in results}
    trained = [max(item["training-min"] for item in full.values())] if len(full) == len(HOSPITALS) else []
    clock = ", ".join(f"{item['clock-min']:.0f} min ({name})" for name, item in full.items())
    built = [max(item["minutes"] for item in builds.values())] if len(builds) == len(HOSPITALS) else []
    parts = ", ".join(f"{item['minutes']:.2f} ({name})" for name, item in builds.items())
    return [
        _claim(
            "cache_build_min",
            "<= 3",
            built,
            "min",
            note=f"2,048 accepted images from a trained generator with all cores, features, calibration, filter and "
            f"coverage included; the slower of {parts}",
            cells=[build_cell_name(name, "as-generated") for name in HOSPITALS],
        ),
        _claim(
            "generator_training_min",
            "<= 30",
            trained,
            "min",
            note="processor time of one thread, which is time on the clock of an idle machine; beside other work it "
            f"took {clock}",
            cells=_cells_of_full(),
        ),
    ]


def _ratio_claims(results: Results) -> list[Claim]:
    full, claims = _full(results), []
    for name, (identity, target) in _RATIOS.items():
        note, values = "", []
        if found := full.get(name):
            values = found["ratios"]
            real, synthetic = (statistics.fmean(found["accuracy"][key]) for key in ("real", "synthetic"))
            note = (
                f"accuracy on the whole test split of a network trained on {found['images']} synthetic images, "
                f"{synthetic:.3f}, over that of one trained as long on the {found['train']} real ones, {real:.3f}"
            )
        cells = [generator_cell_name(name, 0, FULL_MINUTES)]
        claims.append(_claim(identity, target, values, "", note=note, cells=cells, seeds=SEEDS))
    return claims


def _spread_claims(results: Results) -> list[Claim]:
    """Return the claims on distribution, detection and copies: the worse of the two data sets."""
    full = _full(results)

    def worse(
        identity: str, target: str, pick: Callable[[Result], float], *, remark: str = "", seeds: Sequence[int] = (0,)
    ) -> Claim:
        found = {name: pick(item) for name, item in full.items()}
        choose = min if target.startswith(">") else max
        values = [choose(found.values())] if len(found) == len(HOSPITALS) else []
        listed = ", ".join(f"{value:.3f} ({name})" for name, value in found.items())
        note = f"the worse of {listed}{remark}" if found else ""
        return _claim(identity, target, values, "", note=note, cells=_cells_of_full(), seeds=seeds)

    nulls = ", ".join(f"{statistics.fmean(item['detector-null']):.2f}" for item in full.values())
    intervals = ", ".join(
        f"{m['low']:.3f} to {m['high']:.3f}" for m in (item["memorization"] for item in full.values())
    )
    return [
        worse("brightness_ks", "<= 0.03", lambda item: float(item["coverage"]["brightness-ks"])),
        worse("occupancy_overlap", ">= 0.9", lambda item: float(item["coverage"]["occupancy-overlap"])),
        worse(
            "real_vs_synthetic_auc",
            "<= 0.85",
            lambda item: statistics.fmean(item["detector"]),
            remark=f"; real against real: {nulls}",
            seeds=SEEDS,
        ),
        worse(
            "memorized_share",
            "<= 0.01",
            lambda item: float(item["memorization"]["excess"]),
            remark="; share nearer to a training image than the first percentile of held-out ones, above the rate of "
            f"other held-out ones; 95 % intervals {intervals}",
        ),
    ]


def _crash_claim(results: Results) -> Claim:
    found = results.get(CRASHES)
    note = ""
    if found:
        note = (
            f"{found['kills']} kills, {found['while_resuming']} of them while resuming, at every kind of access to the "
            f"disk and at random moments; corrupt caches {found['corrupt_caches']}, ends that differ from an "
            f"undisturbed build {found['differing']}"
        )
    values = [float(found["lost_images"])] if found else []
    return _claim("crash_lost_images", "== 0", values, "images", note=note, cells=[CRASHES])


def _claim(
    identity: str,
    target: str,
    values: Sequence[float],
    unit: str,
    *,
    note: str,
    cells: Sequence[str],
    seeds: Sequence[int] = (0,),
) -> Claim:
    return claim(identity, target, values, unit=unit, command=COMMAND, note=note, cells=cells, seeds=seeds)
