"""`aegis experiment masking`: what masking costs in accuracy, time, memory and bytes."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim, claims_as_json, claims_as_table
from deploy.experiments.masking_costs import cost_cells
from deploy.experiments.masking_exactness import exactness_cells
from deploy.experiments.masking_federations import (
    ADAPTED,
    BALANCED,
    CLAIM_SEEDS,
    CLAIM_SOURCE,
    ELSEWHERE,
    LAST,
    LONG,
    OWN,
    ROUNDS,
    SMOOTHED,
    accuracy_cells,
    accuracy_name,
    sweep_cells,
)
from deploy.experiments.masking_page import draw_accuracies, masking_sections
from deploy.experiments.masking_points import deltas_of, interval
from deploy.experiments.masking_sources import pool_cells
from deploy.experiments.masking_worth import worth_cells
from federation.durable import write_durably

COMMAND = "aegis experiment masking"
_DEFAULT = "interleaved"

Results = dict[str, Result]


def masking_cells(parts: Sequence[str], *, data_root: str) -> list[Cell]:
    """Return the cells of the named `parts`.

    Args:
        parts: of `MASKING_PARTS`; "accuracy" and "sweep" need the finished cells of "pools".
        data_root: folder with the subfolders medmnist, mnist and cifar10.
    """
    medmnist = str(Path(data_root) / "medmnist") if data_root else ""
    cells: list[Cell] = []
    cells += pool_cells(medmnist) if "pools" in parts else []
    cells += exactness_cells() if "exactness" in parts else []
    cells += accuracy_cells(medmnist) + worth_cells(medmnist) if "accuracy" in parts else []
    cells += sweep_cells(medmnist) if "sweep" in parts else []
    cells += cost_cells(data_root) if "costs" in parts else []
    return cells


def masking_claims(results: Results) -> list[Claim]:
    """Return every claim of the experiment; one whose cells are missing has no value."""
    return [
        _accuracy_claim(results, "accuracy_delta_points_organa", "organamnist"),
        _accuracy_claim(results, "accuracy_delta_points_pneumonia", "pneumoniamnist"),
        _time_claim(results, "mnist_overhead_ratio", "<= 3.8", "mnist"),
        _time_claim(results, "cifar_overhead_ratio", "<= 4.4", "cifar"),
        *_exactness_claims(results),
        _memory_claim(results),
    ]


def write_masking_results(results: Results, made: dict[str, dict[str, str]], folder: Path) -> None:
    """Write `05-masking.json`, `05-masking.md` and the plot into `folder`.

    Args:
        results: finished cells by name.
        made: when, where and by which code each was made.
        folder: of the results pages.
    """
    claims = masking_claims(results)
    folder.mkdir(parents=True, exist_ok=True)
    cells = {name: {"made": made[name], **result} for name, result in results.items()}
    content = {"command": COMMAND, "claims": claims_as_json(claims, made), "cells": cells}
    write_durably(folder / "05-masking.json", (json.dumps(content, indent=1) + "\n").encode())
    draw_accuracies(results, folder / "05-masking-accuracy.svg")
    machines = "; ".join(sorted({item["machine"] for item in made.values()}))
    sections = [
        "# 05 Masking inside local training",
        f"Written by `{COMMAND}`; do not edit. Machine: {machines}.",
        claims_as_table(claims),
        *masking_sections(results),
    ]
    write_durably(folder / "05-masking.md", ("\n\n".join(part for part in sections if part) + "\n").encode())


def _accuracy_claim(results: Results, identity: str, name: str) -> Claim:
    source, seeds = CLAIM_SOURCE[name], CLAIM_SEEDS[name]
    deltas = deltas_of(results, name, _DEFAULT, source, version=LONG)
    cells = [accuracy_name(name, "none", seed) for seed in seeds]
    cells += [accuracy_name(name, _DEFAULT, seed, source=source) for seed in seeds]
    return _claim(
        identity,
        ">= -0.5",
        deltas if len(deltas) == len(seeds) else [],
        "points",
        part="accuracy",
        note=_describe_accuracy(results, name) if deltas else "",
        cells=cells,
        seeds=seeds,
    )


def _describe_accuracy(results: Results, name: str) -> str:
    def points(source: str, *, labels: str = OWN, version: int = LONG) -> str:
        return _mean(deltas_of(results, name, _DEFAULT, source, labels=labels, version=version))

    source = CLAIM_SOURCE[name]
    deltas = deltas_of(results, name, _DEFAULT, source, version=LONG)
    auroc = deltas_of(results, name, _DEFAULT, source, version=LONG, of="auroc")
    less = f"with {ADAPTED}, which learned for 27 minutes from a sixth of them, {points(ADAPTED)}; "
    return (
        f"interleaved minus no masking, paired by seed, {interval(deltas)}; 100 clients, 10 a round, at most 5 "
        f"classes each, E=3, M=2048, labels {OWN}, bfloat16, mean over the last {LAST} of {LONG} rounds (the paper "
        "names none); generator "
        f"{source}: it learned from training images, of other clients, too, so a gain is no merit of masking; mean "
        f"AUROC {_mean(auroc)} points; {'' if source == ADAPTED else less}after {ROUNDS} rounds "
        f"{points(source, version=ROUNDS)} points of accuracy, and with the generator that learned from validation "
        f"images alone {points(ELSEWHERE, version=ROUNDS)}; with labels {BALANCED} after {LONG} rounds "
        f"{points(ADAPTED, labels=BALANCED)} (adapted) and {points(ELSEWHERE, labels=BALANCED)} (elsewhere), with "
        f"labels {SMOOTHED} {points(source, labels=SMOOTHED)}"
    )


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):+.1f}" if values else "not measured"


def _time_claim(results: Results, identity: str, target: str, data: str) -> Claim:
    cell = f"time-{data}-{_DEFAULT}-1-full"
    found = results.get(cell)
    note = ""
    if found:
        note = (
            "median of alternating pairs, processor time of one thread, float32, interleaved, over the product's own "
            f"unmasked training: {', '.join(f'{ratio:.2f}' for ratio in found['ratios'])}"
        )
    values = [found["median-ratio"]] if found else []
    return _claim(identity, target, values, "x", part="costs", note=note, cells=[cell])


def _exactness_claims(results: Results) -> list[Claim]:
    counted, rounded = results.get("bytes"), results.get("exactness")
    told = "reply and task of a masked run beside an unmasked one, without a mechanism and under both; ledger rows too"
    return [
        _claim(
            "wire_overhead_bytes",
            "== 0",
            [float(counted["most"])] if counted else [],
            "bytes",
            part="exactness",
            note=told,
            cells=["bytes"],
        ),
        _claim(
            "microbatch_max_abs_error",
            "<= 1e-5",
            [rounded["most"]] if rounded else [],
            "",
            part="exactness",
            note=_describe_rounding(rounded) if rounded else "",
            cells=["exactness"],
        ),
    ]


def _describe_rounding(found: Result) -> str:
    largest = found["largest"]
    each = ", ".join(f"{name} {max(sizes.values()):.1e}" for name, sizes in largest.items())
    several = max(value for sizes in largest.values() for size, value in sizes.items() if size != "1")
    return (
        "largest difference in any parameter's gradient between pieces of 1 to 256 images and the whole batch of 270, "
        f"float32: {each}; in pieces of several images {several:.1e}. An image alone goes through the network beside a "
        "copy without weight: convolved by itself, by another kernel, its rounding moved an activation of the deepest "
        "network across the kink of a rectifier (6.5e-05)"
    )


def _memory_claim(results: Results) -> Claim:
    found = results.get("memory")
    note = (
        "peak of the whole process that trains, CIFAR-10 images, M=4096 over M=512, the worse of joint and "
        "interleaved, medians of three"
    )
    values = [found["growth"]] if found else []
    return _claim("peak_memory_growth_ratio", "<= 1.05", values, "x", part="costs", note=note, cells=["memory"])


def _claim(
    identity: str,
    target: str,
    values: Sequence[float],
    unit: str,
    *,
    part: str,
    note: str,
    cells: Sequence[str],
    seeds: Sequence[int] = (0,),
) -> Claim:
    command = f"{COMMAND} --part {part}"
    return claim(identity, target, values, unit=unit, command=command, note=note, cells=cells, seeds=seeds)
