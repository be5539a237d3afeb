"""Chapter of the asynchronous page: one hospital of eight is 8 or 20 times slower, and the field case."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.experiments.async_chapter import Chapter, Results
from deploy.experiments.async_field import field_cells, field_claims, field_section
from deploy.experiments.async_runs import timed_cell
from deploy.experiments.async_settings import DATA, RULES, TITLES, tuned
from deploy.experiments.async_speedup import FACTORS, SEEDS, SLOW_SITE, Measured, cell_name, measure
from deploy.experiments.async_straggler_page import draw_straggler, straggler_section
from deploy.experiments.async_tuning import HOSPITALS, SPLIT, TASK_S, tuning_cells, tuning_section
from deploy.experiments.cells import Cell
from deploy.experiments.claims import Claim, claim
from deploy.experiments.parts import STRAGGLER_PARTS

COMMAND = "aegis experiment straggler"


def straggler_cells(parts: Sequence[str], data_root: str, source: Path) -> list[Cell]:
    """Return the cells of the named parts, those that claims rest on first.

    Args:
        parts: of `STRAGGLER_PARTS`; others have none here.
        data_root: folder with the subfolder `medmnist`, or empty to download.
        source: the source tree, which they do not need.
    """
    del source
    cells = [cell for data in DATA if data in parts for cell in _table_cells(data, data_root)]
    cells += field_cells(data_root) if "field" in parts else []
    cells += tuning_cells(data_root) if "tuning" in parts else []
    claimed = {cell.name for cell in cells if {"ours", "fedavg"} & set(cell.name.replace("-drop", "+drop").split("-"))}
    return sorted(cells, key=lambda cell: cell.name not in claimed or cell.name.startswith("tuning"))


def straggler_claims(results: Results) -> list[Claim]:
    """Return the claims of the chapter: each is the worse of its values on the two data sets."""
    return [
        _worse(results, "straggler8_speedup_median", ">= 6", 8, statistics.median, lambda item: item.speedup),
        _worse(results, "straggler8_speedup_min", ">= 5", 8, min, lambda item: item.speedup),
        _worse(results, "straggler8_worst_gap_points", "<= 2", 8, statistics.fmean, lambda item: item.worst_gap),
        _worse(results, "straggler20_speedup_median", ">= 10", 20, statistics.median, lambda item: item.speedup),
        *field_claims(results),
    ]


def _table_cells(data: str, data_root: str) -> list[Cell]:
    cells = []
    for seed in SEEDS:
        for rule in RULES:
            for factor in FACTORS[:1] if rule.startswith("fedavg") else FACTORS:
                seconds = [TASK_S] * HOSPITALS
                seconds[SLOW_SITE] *= factor
                settings = {**tuned(rule, data), **SPLIT}
                name = cell_name(data, rule, factor, seed)
                cells.append(timed_cell(name, settings, seconds=seconds, seed=seed, data_root=data_root))
    return cells


def _worse(
    results: Results,
    identity: str,
    target: str,
    factor: int,
    over_seeds: Callable[[list[float]], float],
    value_of: Callable[[Measured], float],
) -> Claim:
    """Return the claim whose value is the worse of `over_seeds` of `value_of` on the two data sets."""
    measured = {data: measure(results, data, "ours", factor) for data in DATA}
    values = {data: over_seeds([value_of(item) for item in items]) for data, items in measured.items() if items}
    unit = "points" if identity.endswith("points") else "x"
    if len(values) < len(DATA):
        return claim(identity, target, [], unit=unit, command=COMMAND)
    data = (min if target.startswith(">=") else max)(values, key=values.__getitem__)
    both = ", ".join(f"{TITLES[name]} {value:.3g}" for name, value in values.items())
    spread = [value_of(item) for item in measured[data]]
    return Claim(
        id=identity,
        target=target,
        value=values[data],
        unit=unit,
        seeds=[item.seed for item in measured[data]],
        spread=statistics.stdev(spread) if len(spread) > 1 else None,
        command=COMMAND,
        note=f"{both}; the worse one counts, spread over its seeds",
        cells=[cell_name(data, rule, factor, item.seed) for item in measured[data] for rule in ("ours", "fedavg")],
    )


def _render(results: Results) -> Sequence[str]:
    return [*straggler_section(results), *tuning_section(results), *field_section(results)]


STRAGGLER = Chapter(
    command="straggler",
    parts=STRAGGLER_PARTS,
    cells=straggler_cells,
    claims=straggler_claims,
    render=_render,
    draw=draw_straggler,
)
