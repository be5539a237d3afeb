"""The numbers of the leakage experiment for other programs: a table of a row per cell and attack, and short cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from attacks.metrics.intervals import wilson_interval
from deploy.experiments.cells import Result

Results = dict[str, Result]
_THRESHOLDS = ("18", "24", "30", "40", "tau-star")


def leakage_csv(results: Results) -> bytes:
    """Return the table as CSV in UTF-8; shares are from 0 to 1, PSNR is in dB."""
    rows = list(_rows(results))
    text = io.StringIO(newline="")
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue().encode()


def shorten(result: Result) -> Result:
    """Return a cell without histograms, which only plots need, and with the rates of guesses and of Hungarian pairs."""
    return {name: _change(item, lambda found, _: _rates(found)) for name, item in result.items()}


def lengthen(short: Result) -> Result:
    """Return a cell as `shorten` leaves it in the shape that it had, intervals counted anew; without histograms."""
    return {name: _change(item, _of_rates) for name, item in short.items()}


def _change(item: Any, rates: Callable[[Any, int], Any]) -> Any:
    """Return what an attack found with `rates` in place of those of guesses and pairs; anything else as it is."""
    if not isinstance(item, dict) or "oracle" not in item:
        return item
    images = item["images"]
    hungarian = None if item["hungarian"] is None else rates(item["hungarian"], images)
    return {
        **item,
        "oracle": {key: value for key, value in item["oracle"].items() if not key.startswith("histogram")},
        "nulls": {null: rates(found, images) for null, found in item["nulls"].items()},
        "hungarian": hungarian,
    }


def _of_rates(shares: list[float], images: int) -> Result:
    intervals = [wilson_interval(round(share * images), images) for share in shares]
    return {
        "rates": [
            {"recovered": {"share": share, "low": low, "high": high}}
            for share, (low, high) in zip(shares, intervals, strict=True)
        ]
    }


def _rates(found: Result) -> list[float]:
    return [rate["recovered"]["share"] for rate in found["rates"]]


def _rows(results: Results) -> Iterator[dict[str, Any]]:
    for cell, found in sorted(results.items()):
        for attack, item in found.items():
            if isinstance(item, dict) and "oracle" in item:
                yield {"cell": cell, "attack": attack, **_numbers(item)}


def _numbers(item: Result) -> dict[str, Any]:
    """Return the numbers of one attack: oracle pairing, with what Hungarian pairing gives at 30 dB beside it."""
    oracle, hungarian = item["oracle"], item["hungarian"]
    precision = oracle["precision"]["non-empty"]
    row: dict[str, Any] = {
        "images": item["images"],
        "psnr-db": oracle["psnr-db"],
        "ssim": oracle["ssim"],
        "verbatim": item["verbatim"],
        "tau-star-db": item["tau-star-db"],
        "hungarian-rr30": None if hungarian is None else hungarian["rates"][2]["recovered"]["share"],
        "candidates": precision["count"],
        "candidates-real": precision["hits"],
        "re-identified": None if oracle["identified"] is None else oracle["identified"]["share"],
    }
    for name, rate in zip(_THRESHOLDS, oracle["rates"], strict=True):
        share = rate["recovered"]
        row |= {f"rr{name}": share["share"], f"rr{name}-low": share["low"], f"rr{name}-high": share["high"]}
        row |= {f"rr{name}-over-{null}": rate["excess"][null] for null in ("best-foreign", "scaled-mean", "mean")}
    return row
