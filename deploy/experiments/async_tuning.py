"""Which learning rates each algorithm gets in the straggler tables: a grid on seeds that the tables do not use."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from deploy.experiments.async_chapter import Results
from deploy.experiments.async_runs import HELD, SHARE_OF_PLATEAU, plateau, time_to, timed_cell
from deploy.experiments.async_settings import (
    DATA,
    GRID,
    LOCAL_RATES,
    RATES,
    RULE_TITLES,
    RULES,
    TITLES,
    length,
    rates,
)
from deploy.experiments.cells import Cell

TUNING_SEEDS = {"pneumonia": (100, 101), "organa": (100,)}
MORE_SEEDS = {"pneumonia": tuple(range(102, 110)), "organa": (101, 102)}
SECOND_STEP = {"pneumonia": 10.0, "organa": 30.0}
"""Local rate of the second step, in which more seeds tell the server's rates apart: the best of the first step."""

TASK_S, SLOW, HOSPITALS = 60.0, 8.0, 8
_ROUNDS, _UPDATES = 20, 120
SPLIT = {"data.partition": "classes", "data.classes-per-hospital": 5}


def tuning_cells(data_root: str) -> list[Cell]:
    """Return the cells of the whole grid; `data_root` holds the subfolder `medmnist`."""
    seconds = [TASK_S * SLOW] + [TASK_S] * (HOSPITALS - 1)
    cells = []
    for data, base in DATA.items():
        for rule, servers in GRID.items():
            short = length(rule, rounds=_ROUNDS, updates=_UPDATES)
            for local in LOCAL_RATES[data]:
                for server in servers:
                    settings = {**base, **SPLIT, **RULES[rule], **short, **rates(local, server)}
                    for seed in seeds_of(data, local):
                        name = cell_name(data, rule, local, server, seed)
                        cells.append(timed_cell(name, settings, seconds=seconds, seed=seed, data_root=data_root))
    return cells


def seeds_of(data: str, local: float) -> tuple[int, ...]:
    """Return the tuning seeds of one local learning rate."""
    return TUNING_SEEDS[data] + (MORE_SEEDS[data] if local == SECOND_STEP[data] else ())


def cell_name(data: str, rule: str, local: float, server: float, seed: int) -> str:
    """Return the name of one cell of the grid."""
    return f"tuning-{data}-{rule}-{local:g}-{server:g}-{seed}"


def best_plateau(results: Results, data: str, seed: int, locals_: Sequence[float]) -> float:
    """Return the highest plateau of synchronous FedAvg at these local rates, or infinity when nothing was measured."""
    names = [cell_name(data, "fedavg", local, server, seed) for local in locals_ for server in GRID["fedavg"]]
    return max((plateau(results[name]["curve"]) for name in names if name in results), default=math.inf)


def mean_time(
    results: Results, data: str, rule: str, rates_: tuple[float, float], *, seeds: Sequence[int], second: bool = False
) -> float | None:
    """Return the mean over `seeds` of the tasks' time to 97 % of the best plateau; None when a cell is missing.

    Args:
        results: finished cells by name.
        data: "pneumonia" or "organa".
        rule: of `GRID`.
        rates_: local and server learning rate.
        seeds: to average over; the same for everything that is compared.
        second: whether only the local rate of the second step counts for the plateau: others lack some of `seeds`.
    """
    names = {seed: cell_name(data, rule, *rates_, seed) for seed in seeds}
    if not all(name in results for name in names.values()):
        return None
    compared = (SECOND_STEP[data],) if second else LOCAL_RATES[data]
    return statistics.fmean(
        time_to(results[name]["curve"], SHARE_OF_PLATEAU * best_plateau(results, data, seed, compared), mean_of=HELD)
        / TASK_S
        for seed, name in names.items()
    )


def tuning_section(results: Results) -> Sequence[str]:
    """Return the section of the page; empty when nothing was measured."""
    if not any(name.startswith("tuning-") for name in results):
        return []
    heads = ("data", "algorithm", "server learning rate", "low", "middle", "high", "second step")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for data in DATA:
        for rule, servers in GRID.items():
            for server in servers:
                cells = (TITLES[data], RULE_TITLES[rule], f"{server:g}", *_times(results, data, rule, server))
                rows.append(f"| {' | '.join(cells)} |")
    seeds = "; ".join(f"{TITLES[data]} {', '.join(map(str, found))}" for data, found in TUNING_SEEDS.items())
    more = "; ".join(f"{TITLES[data]} {found[0]} to {found[-1]}" for data, found in MORE_SEEDS.items())
    locally = "; ".join(f"{TITLES[data]} {', '.join(f'{x:g}' for x in found)}" for data, found in LOCAL_RATES.items())
    return [
        "### How the learning rates were chosen",
        f"Mean time over the tuning seeds ({seeds}), which no table uses, with one hospital {SLOW:g} times slower, "
        f"until the mean of {HELD} evaluations is at {100 * SHARE_OF_PLATEAU:g} % of the best plateau that FedAvg has "
        'in the grid; unit: a task of a fast hospital; "-": not within the run of some seed. Low, middle, high: local '
        f"learning rates: {locally}. Second step: the best of them, with {more} besides, to tell server rates apart, "
        "and the plateau at that local rate. The tables use the bold one, which is first or level with the first.",
        "\n".join(rows),
    ]


def _times(results: Results, data: str, rule: str, server: float) -> list[str]:
    """Return the times at the three local rates, and that of the second step."""
    local, first = SECOND_STEP[data], TUNING_SEEDS[data]
    times = [mean_time(results, data, rule, (rate, server), seeds=first) for rate in LOCAL_RATES[data]]
    times.append(mean_time(results, data, rule, (local, server), seeds=seeds_of(data, local), second=True))
    texts = [_shown(time) for time in times]
    if (local, server) == RATES[data][rule] and texts[-1]:
        texts[-1] = f"**{texts[-1]}**"
    return texts


def _shown(time: float | None) -> str:
    return "" if time is None else "-" if time == math.inf else f"{time:.1f}"
