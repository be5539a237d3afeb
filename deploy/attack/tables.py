"""Rows of leakage as Markdown, CSV and JSON: the worst case over attacks first, all attacks below."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.attack.rows import LeakageRow, RecoveryRate, WorstCase, worst_cases
from federation.durable import write_durably

_NOTES = (
    "Read: share of real images whose reconstruction exceeds the threshold in PSNR, paired as the planted network "
    "says, with its 95 % Wilson interval. Guess: share that the best of up to 2048 foreign images reaches without any "
    "update. tau* is the PSNR that such a guess passes for one image in a hundred. The worst attack is chosen after "
    "the fact; its interval does not count that. No low rate is a bound on leakage."
)
_HEADLINE = ("data", "what leaves", "defence", "threshold", "worst attack", "read", "95 % interval", "guess", "excess")


def write_tables(rows: Sequence[LeakageRow], folder: Path) -> None:
    """Write `table.md`, `table.csv` and `table.json` into `folder`.

    Raises:
        OSError: the volume refused.
    """
    write_durably(folder / "table.md", as_markdown(rows).encode())
    write_durably(folder / "table.csv", as_csv(rows).encode())
    write_durably(folder / "table.json", json.dumps(as_json_table(rows), indent=1).encode())


def as_markdown(rows: Sequence[LeakageRow]) -> str:
    """Return both tables, with what their columns mean."""
    worst = [[*case.row.setting, *_cells_of(case)] for case in worst_cases(rows)]
    names = [rate.threshold for rate in rows[0].rates]
    every = [
        [*row.setting, row.attack, str(row.images), *(_percent(rate) for rate in row.rates), str(row.verbatim)]
        for row in rows
    ]
    header = ["data", "what leaves", "defence", "attack", "images", *names, "above 60 dB"]
    parts = ["## Worst case over attacks", *_lines(_HEADLINE, worst), "", "## Every attack", *_lines(header, every)]
    return "\n".join([*parts, "", _NOTES, ""])


def as_csv(rows: Sequence[LeakageRow]) -> str:
    """Return a line for every attack and threshold."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    names = ("threshold", "threshold_db", "read", "low", "high", "guess", "excess")
    writer.writerow(("data", "what_leaves", "defence", "attack", "images", "verbatim", *names))
    for row in rows:
        for rate in row.rates:
            numbers = (rate.threshold_db, rate.share, rate.low, rate.high, rate.guessed, rate.excess)
            told = (rate.threshold, *(f"{number:.6g}" for number in numbers))
            writer.writerow((*row.setting, row.attack, row.images, row.verbatim, *told))
    return content.getvalue()


def as_json_table(rows: Sequence[LeakageRow]) -> dict[str, Any]:
    """Return worst cases and rows, fit for JSON."""
    return {
        "worst": [
            {**_setting_of(case.row), "attack": case.row.attack, "attacks": case.attacks, **_rate_as_dict(case.rate)}
            for case in worst_cases(rows)
        ],
        "rows": [
            {
                **_setting_of(row),
                "attack": row.attack,
                "images": row.images,
                "verbatim": row.verbatim,
                "free-share": row.free_share,
                "rates": [_rate_as_dict(rate) for rate in row.rates],
            }
            for row in rows
        ],
    }


def describe_headline(rows: Sequence[LeakageRow]) -> list[str]:
    """Return the worst cases, for people."""
    return [
        f"{', '.join(case.row.setting)}; above {case.rate.threshold}: {case.rate.share:.1%} "
        f"[{case.rate.low:.1%}, {case.rate.high:.1%}] read, {case.rate.guessed:.1%} guessed "
        f"({case.row.attack}, worst of {case.attacks}, {case.row.images} images)"
        for case in worst_cases(rows)
    ]


def _setting_of(row: LeakageRow) -> dict[str, str]:
    return dict(zip(("data", "what-leaves", "defence"), row.setting, strict=True))


def _rate_as_dict(rate: RecoveryRate) -> dict[str, Any]:
    return {
        "threshold": rate.threshold,
        "threshold-db": rate.threshold_db,
        "share": rate.share,
        "low": rate.low,
        "high": rate.high,
        "guessed": rate.guessed,
        "excess": rate.excess,
    }


def _cells_of(case: WorstCase) -> list[str]:
    rate, many = case.rate, case.attacks
    attack = case.row.attack if many == 1 else f"{case.row.attack} (of {many})"
    interval = f"{100 * rate.low:.1f} to {100 * rate.high:.1f} %"
    guess, excess = f"{100 * rate.guessed:.1f} %", f"{100 * rate.excess:+.1f} points"
    return [rate.threshold, attack, f"{100 * rate.share:.1f} %", interval, guess, excess]


def _percent(rate: RecoveryRate) -> str:
    return f"{100 * rate.share:.1f} %"


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_line(header), _line(["---"] * len(header)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
