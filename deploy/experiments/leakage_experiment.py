"""`aegis experiment leakage`: what a malicious server reads, under every defence, with nulls and intervals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim, claims_as_json, claims_as_table
from deploy.experiments.leakage_cells import (
    CAUTION,
    CAUTIOUS,
    CHEST,
    EPSILON,
    PAPER,
    PROTECTIONS,
    REAL_IMAGES,
    SIZES,
    SUMS,
    adaptive_cells,
    calibration_cells,
    crowded_name,
    defence_cells,
    delta_cells,
    label_cells,
    sum_cells,
    table_cells,
    table_name,
)
from deploy.experiments.leakage_chapters import guard_results
from deploy.experiments.leakage_csv import leakage_csv, shorten
from deploy.experiments.leakage_grid import CAPACITY, SEEDS
from deploy.experiments.leakage_guard import guard_cells
from deploy.experiments.leakage_page import leakage_sections, widest_excess
from deploy.experiments.leakage_plots import draw_leakage
from deploy.experiments.leakage_sources import DATA, GENERATED, MATCHED, pool_cells
from federation.durable import write_durably
from federation.occupancy import crowded_verbatim_share

COMMAND = "aegis experiment leakage"
PLAIN = "rtf-cumulative-front-k1024"
_RR30, _VERBATIM = 2, 4
_EXPECTED = {512: 56, 1024: 35, 1536: 22, 2048: 14}
_NEAR = 5

Results = dict[str, Result]


def leakage_cells(parts: Sequence[str], *, data_root: str) -> list[Cell]:
    """Return the cells of the named `parts`.

    Args:
        parts: of `LEAKAGE_PARTS`; "tables", "labels" and "adaptive" need the finished cells of "pools".
        data_root: folder with the MedMNIST files.
    """
    make = {
        "pools": pool_cells,
        "known": calibration_cells,
        "tables": table_cells,
        "labels": label_cells,
        "delta": delta_cells,
        "adaptive": adaptive_cells,
        "defences": defence_cells,
        "sums": sum_cells,
        "guard": guard_cells,
    }
    return [cell for part, cells in make.items() if part in parts for cell in cells(data_root)]


def leakage_claims(results: Results) -> list[Claim]:
    """Return every claim of the experiment; one whose cells are missing has no value."""
    return [
        *_known_claims(results),
        _masked_claim(results),
        *_sum_claims(results),
        _private_claim(results),
        *_guard_claims(results),
        _time_claim(results),
        _occupancy_claim(results),
    ]


def write_leakage_results(results: Results, made: dict[str, dict[str, str]], folder: Path) -> None:
    """Write `06-leakage.json`, `.csv` and `.md` and the plots into `folder`.

    Args:
        results: finished cells by name.
        made: when, where and by which code each was made.
        folder: of the results pages.
    """
    claims = leakage_claims(results)
    folder.mkdir(parents=True, exist_ok=True)
    cells = {name: {"made": made[name], **shorten(result)} for name, result in results.items()}
    head = json.dumps({"command": COMMAND, "claims": claims_as_json(claims, made)}, indent=1).removesuffix("\n}")
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(cell)}" for name, cell in cells.items())
    write_durably(folder / "06-leakage.json", f'{head},\n "cells": {{\n{lines}\n }}\n}}\n'.encode())
    write_durably(folder / "06-leakage.csv", leakage_csv(results))
    draw_leakage(results, folder, Path.cwd() / "runs" / "experiments" / "06-leakage" / "pictures")
    machines = "; ".join(sorted({item["machine"] for item in made.values()}))
    sections = [
        "# 06 What a malicious server reads",
        f"Written by `{COMMAND}`; do not edit. Machine: {machines}.",
        claims_as_table(claims),
        *leakage_sections(results),
    ]
    write_durably(folder / "06-leakage.md", ("\n\n".join(part for part in sections if part) + "\n").encode())


def _known_claims(results: Results) -> list[Claim]:
    told = "PneumoniaMNIST, 64 images, k=1024, gradient mode, oracle pairing, 8 batches a seed"
    claims = [
        _by_seed(results, "none_verbatim_pct", "in 91..97", "known-none", _VERBATIM, f"{told}; PSNR above 60 dB"),
    ]
    for size in SIZES:
        near = f"in {_EXPECTED[size] - _NEAR}..{_EXPECTED[size] + _NEAR}"
        note = f"{told}; M={size} real images of the training split that are not attacked"
        claims.append(
            _by_seed(results, f"lambda_rr30_pct_{size}", near, f"known-lambda-{size}", _RR30, note, part="known")
        )
    note = f"{told}; M={PAPER}; the algorithm as published: a synthetic image weighs 1/32 of a real one"
    claims.append(_by_seed(results, "sequential_rr30_pct", "in 88..98", f"known-sequential-{PAPER}", _RR30, note))
    return claims


def _by_seed(
    results: Results,
    identity: str,
    target: str,
    cell: str,
    threshold: int,
    note: str,
    *,
    attack: str = PLAIN,
    part: str = "known",
) -> Claim:
    """Return the claim on the share of images above a threshold, in percent, with its deviation over seeds."""
    found = results.get(cell)
    values = [100 * shares[threshold] for shares in found[attack]["by-seed"]] if found else []
    if found:
        note = f"{note}; {_interval(found[attack], threshold)}"
    return _claim(identity, target, values, "%", part=part, note=note, cells=[cell])


def _interval(found: Result, threshold: int) -> str:
    if threshold == _VERBATIM:
        return f"{found['verbatim']} of {found['images']} images, {found['alone']} alone in their bin"
    share = found["oracle"]["rates"][threshold]["recovered"]
    return f"95 % interval {100 * share['low']:.1f} to {100 * share['high']:.1f} %"


def _masked_claim(results: Results) -> Claim:
    """Return the claim on the best masking: its worst excess over all data sets, attacks and thresholds."""
    label = "interleaved-cautious"
    cells = [table_name(data, MATCHED, label) for data in DATA] + [crowded_name(data, label) for data in DATA]
    note, values = "", []
    if all(cell in results for cell in cells):
        both = {
            data: results[cell] | results[crowded_name(data, label)] for data, cell in zip(DATA, cells, strict=False)
        }
        excesses = {data: widest_excess(found) for data, found in both.items()}
        values = [max(item.points for item in excesses.values())]
        each = "; ".join(f"{data} {item.in_words()}" for data, item in excesses.items())
        note = (
            f"not the defaults: masking.size=auto with masking.capacity={CAUTION * CAPACITY} (M={CAUTIOUS}) and `aegis "
            "cache build --match-moments`; interleaved, a generator adapted to training images; the worst of nine "
            "single-round attacks with k=1024 and of 18, 24, 30, 40 dB and tau* over the best foreign image (of 2048; "
            f"PneumoniaMNIST 1148, RetinaMNIST 520): {each}. {_usual_excesses(results)}. Bins for a crowd read "
            f"k/(e(B+M)), {100 * crowded_verbatim_share(REAL_IMAGES, CAUTIOUS, CAPACITY):.1f} %"
        )
    return _claim("best_aegis_excess_rr_points", "<= 5", values, "points", part="tables", note=note, cells=cells)


def _usual_excesses(results: Results) -> str:
    told = []
    wanted = [(label, MATCHED) for label in ("interleaved", "interleaved-auto")]
    for label, source in [*wanted, ("interleaved-cautious", GENERATED)]:
        found = [_with_crowd(results, data, source, label) for data in DATA]
        shown = [f"{widest_excess(item).points:.1f}" for item in found if item]
        if shown:
            told.append(f"M={PROTECTIONS[label][1]}{'' if source == MATCHED else ', unmatched'}: {', '.join(shown)}")
    return f"The same with {'; '.join(told)}"


def _with_crowd(results: Results, data: str, source: str, label: str) -> Result:
    """Return what all attacks found, those with bins for a crowd among them where they were measured."""
    beside = results.get(crowded_name(data, label), {}) if source == MATCHED else {}
    return results.get(table_name(data, source, label), {}) | beside


def _sum_claims(results: Results) -> list[Claim]:
    loki = f"loki-{SUMS[1]}"
    note = f"OrganAMNIST, {SUMS[1]} hospitals of 64 images, k=768 each, only the sum of gradients seen, one a seed"
    scale = "decoded from 512 bins in the hidden layer of the agreed network, parameters only; 8 batches of 64 a seed"
    return [
        _by_seed(results, "loki100_verbatim_pct", ">= 80", f"{loki}-none", _VERBATIM, note, attack=loki, part="sums"),
        _by_seed(results, "scale_mia_rr18_pct", ">= 90", "scale-mia-none", 0, scale, attack="scale-mia", part="sums"),
    ]


def _private_claim(results: Results) -> Claim:
    cell = "mechanism-dp-sgd"
    found, control, note, values = results.get(cell), results.get("mechanism-none"), "", []
    if found and control:
        worst = max(found.values(), key=lambda item: item["oracle"]["rates"][_RR30]["recovered"]["share"])
        values = [100 * worst["oracle"]["rates"][_RR30]["recovered"]["share"]]
        note = (
            f"one release at epsilon {EPSILON:g}, delta 1e-5, one step of SGD on 64 images, clip norm 1: the worst of "
            f"four calibrated attacks; {_interval(worst, _RR30)}. Without the mechanism the best of them reads "
            f"{max(100 * item['oracle']['rates'][_RR30]['recovered']['share'] for item in control.values()):.1f} %"
        )
    return _claim(
        "dpsgd_eps8_rr30_pct", "== 0", values, "%", part="defences", note=note, cells=[cell, "mechanism-none"]
    )


def _guard_claims(results: Results) -> list[Claim]:
    trained, crafted = guard_results(results)
    checkpoints = sum(found["inspected"] for found in trained.values())
    alarms = sum(len(found["alarms"]) for found in trained.values())
    models, seen, hidden, told = _count_crafted(crafted)
    return [
        _claim(
            "guard_detection_pct",
            ">= 99",
            [100 * seen / models] if models else [],
            "%",
            part="guard",
            note=f"{seen} of {models} crafted models, among them permuted, noised by up to 0.3 of their rows' length "
            f"and mixed ones, and every attack here that changes parameters only; of {hidden} more whose noise is as "
            f"long as the rows {told} are found",
            cells=list(crafted),
        ),
        _claim(
            "guard_false_alarms",
            "== 0",
            [float(alarms)] if checkpoints >= 500 else [],
            "",
            part="guard",
            note=f"over {checkpoints} checkpoints of short trainings, fresh models and models of one layer included",
            cells=list(trained),
        ),
    ]


def _count_crafted(crafted: Results) -> tuple[int, int, int, int]:
    """Return how many models were crafted and found; and both of those with noise as long as their rows."""
    made, found, hidden, told = 0, 0, 0, 0
    for item in crafted.values():
        strong = item["strong-noise"]
        half = strong["made"] // 2
        missed = sum(not name.endswith("noise-1") for name in strong["missed"])
        made, found = made + item["crafted"]["made"] + half, found + item["crafted"]["found"] + half - missed
        hidden, told = hidden + strong["made"] - half, told + strong["found"] - (half - missed)
    return made, found, hidden, told


def _time_claim(results: Results) -> Claim:
    found = results.get("known-none")
    values = [found[PLAIN]["processor-s"] / 60] if found else []
    note = "processor time of one thread: 8 batches of 64 with 3 seeds, nulls, both pairings and re-identification"
    return _claim("attack_eval_min", "<= 3", values, "min", part="known", note=note, cells=["known-none"])


def _occupancy_claim(results: Results) -> Claim:
    """Return whether verbatim recovery is what counting says, wherever real and synthetic images weigh the same."""
    cells = ["known-none", *(f"known-lambda-{size}" for size in SIZES)]
    found = [results[cell][PLAIN] for cell in cells if cell in results]
    values, note = [], ""
    if len(found) == len(cells):
        values = [float(all(item["occupancy"]["passed"] for item in found))]
        told = [f"{item['verbatim']} in {item['occupancy']['low']}..{item['occupancy']['high']}" for item in found]
        note = f"99 % intervals of Binomial(images, (1 - 1/k)^(B+M-1)), by rising M: {'; '.join(told)}"
    return _claim("occupancy_selftest", "== 1", values, "", part="known", note=note, cells=cells)


def _claim(
    identity: str, target: str, values: Sequence[float], unit: str, *, part: str, note: str, cells: Sequence[str]
) -> Claim:
    command = f"{COMMAND} --part {part}"
    rest: dict[str, Any] = {"note": note, "cells": cells, "seeds": SEEDS}
    return claim(identity, target, values, unit=unit, command=command, **rest)


__all__ = ["CHEST", "COMMAND", "leakage_cells", "leakage_claims", "write_leakage_results"]
