"""Claims: numbers with their spread, command, date and machine, written as JSON and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One measured number.

    Attributes:
        id: stable name.
        target: what was asked for, for example "<= 2".
        value: what was measured; None when it was not.
        unit: of the value.
        seeds: seeds behind it.
        spread: standard deviation over seeds or repetitions; None for a single measurement.
        command: what makes it.
        note: conditions and caveats.
    """

    id: str
    target: str
    value: float | None
    unit: str
    seeds: list[int]
    spread: float | None
    command: str
    note: str

    @property
    def met(self) -> bool:
        """Whether the value meets the target."""
        if self.value is None:
            return False
        relation, _, bound = self.target.partition(" ")
        limit = float(bound)
        return {"<=": self.value <= limit, ">=": self.value >= limit, "==": self.value == limit}[relation]


def claim(identity: str, target: str, values: Sequence[float], *, unit: str, command: str, **rest: Any) -> Claim:
    """Return the claim whose value is the mean of `values` (None when there are none) with their deviation.

    Args:
        identity: stable name.
        target: "<= x", ">= x" or "== x".
        values: one per seed or repetition.
        unit: of the values.
        command: what makes them.
        **rest: `seeds` and `note`.
    """
    return Claim(
        id=identity,
        target=target,
        value=statistics.fmean(values) if values else None,
        unit=unit,
        seeds=list(rest.get("seeds", [])),
        spread=statistics.stdev(values) if len(values) > 1 else None,
        command=command,
        note=rest.get("note", ""),
    )


def claims_as_json(claims: Sequence[Claim], made: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """Return the claims as the results file holds them.

    Args:
        claims: the claims.
        made: when and where each cell behind them was made; the newest day counts.
    """
    newest = max(made, key=lambda item: item["date"], default={"date": "", "machine": ""})
    stamp = {"date": newest["date"], "machine": newest["machine"]}
    return [{**asdict(item), "met": item.met, **stamp} for item in claims]


def claims_as_table(claims: Sequence[Claim]) -> str:
    """Return the claims as a Markdown table."""
    rows = ["| claim | target | measured | met | note |", "|---|---|---|---|---|"]
    for item in claims:
        value = "not measured" if item.value is None else f"{item.value:.4g} {item.unit}".strip()
        spread = "" if item.spread is None else f" ± {item.spread:.2g}"
        rows.append(f"| `{item.id}` | {item.target} | {value}{spread} | {'yes' if item.met else 'no'} | {item.note} |")
    return "\n".join(rows)
