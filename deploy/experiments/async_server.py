"""`aegis experiment server`: what the server itself takes in time and memory, and how it stands kills."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.experiments.async_chapter import Chapter, Results
from deploy.experiments.async_kills import measure_kills
from deploy.experiments.async_server_apply import measure_against_flower, measure_apply
from deploy.experiments.async_server_memory import measure_memory
from deploy.experiments.async_server_page import server_section
from deploy.experiments.async_server_rate import measure_rate
from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim
from deploy.experiments.parts import SERVER_PARTS
from federation.config import AggregationConfig

COMMAND = "aegis experiment server"
APPLY, FLOWER, RATE = "server-apply", "server-flower", "server-rate"
KILLS = {"server-kills-virtual": True, "server-kills-deployed": False}
MODELS = ("cnn", "resnet18")
RULES: dict[str, dict[str, Any]] = {
    "fedasync": {"aggregation.rule": "fedasync"},
    "buffered": {"aggregation.rule": "buffered", "aggregation.buffer-size": 4},
    "fedavg": {"aggregation.rule": "fedavg"},
}
_HOSPITALS = (8, 32, 100)
_KILLS_PER_CELL = 110
_DEFAULT = AggregationConfig().server_optimizer


def memory_cell_name(model: str, rule: str) -> str:
    """Return the name of the cell that measures the memory of `rule` with `model`."""
    return f"server-memory-{model}-{rule}"


def server_cells(parts: Sequence[str], data_root: str, source: Path) -> list[Cell]:
    """Return the cells of the named `parts`; they need no data."""
    del data_root, source
    models = list(MODELS)
    apply = {"models": models, "updates_per_version": [1, 8], "repetitions": 40}
    flower = {"models": models, "replies": [8, 32], "repetitions": 25}
    rate = {"hospitals": 8, "updates": 150, "optimizers": ["average", "momentum"], "turns": 3}
    cells = {
        "apply": [
            Cell(name=APPLY, compute=measure_apply, settings=apply, alone=True),
            Cell(name=FLOWER, compute=measure_against_flower, settings=flower, alone=True),
        ],
        "memory": [
            Cell(
                name=memory_cell_name(model, rule),
                compute=measure_memory,
                settings={"model": model, "configuration": settings, "hospitals": list(_HOSPITALS)},
            )
            for model in models
            for rule, settings in RULES.items()
        ],
        "rate": [Cell(name=RATE, compute=measure_rate, settings=rate, alone=True)],
        "kills": [
            Cell(
                name=name,
                compute=measure_kills,
                settings={"kills": _KILLS_PER_CELL, "seed": 0, "replays": replays},
                alone=True,
            )
            for name, replays in KILLS.items()
        ],
    }
    return [cell for part in parts for cell in cells.get(part, [])]


def server_claims(results: Results) -> list[Claim]:
    """Return the server's claims; one whose cells are missing has no value."""
    return [*_apply_claims(results), _memory_claim(results), _rate_claim(results.get(RATE)), *_kill_claims(results)]


def _apply_claims(results: Results) -> list[Claim]:
    axpy, flower = results.get(APPLY), results.get(FLOWER)
    axpy_note = flower_note = ""
    if axpy:
        axpy_note = (
            f"worst of {_list_ratios(axpy['cases'])}, both over the same memory; medians of pairs in turn, one thread, "
            f"processor time; where every update has memory of its own, in which the axpy alone varies twofold: "
            f"{_list_ratios(axpy['apart'])}"
        )
    if flower:
        flower_note = (
            f"worst with all cores of {_list_ratios(flower['cases'])}; ours decodes, admits, weighs, applies and "
            f"encodes the next broadcast; looking through every value once, as a server that checks must, bounds the "
            f"ratio at {_list_bounds(flower)}"
        )
    return [
        _claim("apply_axpy_ratio", ">= 0.8", [axpy["worst"]] if axpy else [], note=axpy_note, cells=[APPLY]),
        _claim("apply_vs_flower_ratio", ">= 3", [flower["worst"]] if flower else [], note=flower_note, cells=[FLOWER]),
    ]


def _list_ratios(cases: dict[str, Any]) -> str:
    return ", ".join(f"{case['ratio']:.2f} ({name})" for name, case in cases.items())


def _list_bounds(flower: Result) -> str:
    return ", ".join(f"{case['theirs_ms'] / case['once_ms']:.1f} ({name})" for name, case in flower["cases"].items())


def _memory_claim(results: Results) -> Claim:
    names = [memory_cell_name(model, rule) for model in MODELS for rule in RULES]
    cases = [case for name in names if name in results for case in results[name]["cases"]]
    complete = all(name in results for name in names)
    note = ""
    if cases:
        private = max(case["private_models"] for case in cases)
        together = max(results[name]["together"]["peak_models"] for name in names if name in results)
        note = (
            "growth of the resident high-water mark over a whole run, from before the model is made, so model and "
            f"reply count; worst of {len(cases)} runs; without pages of mapped files {private:.2f}; where all "
            f"answer at once, and Flower hands over several replies in one call, {together:.2f}"
        )
    worst = [max(case["peak_models"] for case in cases)] if complete else []
    return _claim("peak_models", "<= 2.5", worst, unit="models", note=note, cells=names)


def _rate_claim(rate: Result | None) -> Claim:
    note, values = "", []
    if rate:
        runs = rate["optimizers"]
        values = [run["server_per_s"] for run in runs[_DEFAULT]]
        note = "FedAsync, 1.67 million parameters, a checkpoint forced to the disk for every version; " + "; ".join(
            f"{name}: server alone {_median(found, 'server_per_s'):.0f}, with hospitals and Flower's serialization "
            f"{_median(found, 'all_per_s'):.0f}, forcing the checkpoint's bytes alone "
            f"{_median(found, 'writes_per_s'):.0f} per s"
            for name, found in runs.items()
        )
        note += f"; value: {_DEFAULT}, the default server optimizer; others keep state, which doubles a checkpoint"
    return _claim("engine_updates_per_s", ">= 30", values, unit="per s", note=note, cells=[RATE])


def _median(runs: Sequence[dict[str, float]], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def _kill_claims(results: Results) -> list[Claim]:
    tolls = [results[name] for name in KILLS if name in results]
    note = resume_note = ""
    if tolls:
        points = {point for toll in tolls for point in toll["points"]}
        note = (
            f"SIGKILL at {len(points)} named points and {sum(toll['at_random'] for toll in tolls)} times at random, "
            f"{sum(toll['while_resuming'] for toll in tolls)} of all in sessions that resumed; "
            f"{_sum(tolls, 'runs')} runs, {_sum(tolls, 'applied')} updates in their models; {_sum(tolls, 'dropped')} "
            f"updates were in a killed server's hands; other faults: {sum(len(toll['faults']) for toll in tolls)}"
        )
        resumes = sorted(second for toll in tolls for second in toll["resume_s"])
        starts = [second for toll in tolls for second in toll["start_s"]]
        resume_note = (
            f"the longest of {len(resumes)}, from the beginning of the session to its first task or step; 95 % within "
            f"{resumes[int(0.95 * len(resumes))]:.2f} s; from the start of a new process, with imports, "
            f"{max(starts, default=0.0):.1f} s"
        )
    cells = list(KILLS)
    whole = tolls if len(tolls) == len(KILLS) else []
    longest = [max(second for toll in whole for second in toll["resume_s"])] if whole else []
    return [
        _claim("server_kills", ">= 200", _total(whole, "kills"), unit="kills", note=note, cells=cells),
        _claim("lost_updates", "== 0", _total(whole, "lost"), note=note, cells=cells),
        _claim("doubled_updates", "== 0", _total(whole, "doubled"), note=note, cells=cells),
        _claim("resume_s", "<= 5", longest, unit="s", note=resume_note, cells=cells),
    ]


def _sum(tolls: Sequence[Result], key: str) -> int:
    return sum(int(toll[key]) for toll in tolls)


def _total(tolls: Sequence[Result], key: str) -> list[float]:
    return [float(_sum(tolls, key))] if tolls else []


def _claim(identity: str, target: str, values: list[float], *, unit: str = "", **rest: Any) -> Claim:
    return claim(identity, target, values, unit=unit, command=COMMAND, **rest)


SERVER = Chapter(command="server", parts=SERVER_PARTS, cells=server_cells, claims=server_claims, render=server_section)
