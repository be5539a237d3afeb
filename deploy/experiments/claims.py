"""Claims: numbers with their spread, command, date and machine, written as JSON and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One measured number.

    Attributes:
        id: stable name.
        target: what was asked for, for example "<= 2" or "in 91..97"; "stated" where any number will do.
        value: what was measured; None when it was not.
        unit: of the value.
        seeds: seeds behind it.
        spread: standard deviation over seeds or repetitions; None for a single measurement.
        command: what makes it.
        note: conditions and caveats.
        cells: names of the cells behind it.
    """

    id: str
    target: str
    value: float | None
    unit: str
    seeds: list[int]
    spread: float | None
    command: str
    note: str
    cells: list[str]

    @property
    def met(self) -> bool:
        """Whether the value meets the target."""
        if self.value is None:
            return False
        if self.target == "stated":
            return True
        relation, _, bound = self.target.partition(" ")
        if relation == "in":
            low, _, high = bound.partition("..")
            return float(low) <= self.value <= float(high)
        limit = float(bound)
        return {"<=": self.value <= limit, ">=": self.value >= limit, "==": self.value == limit}[relation]


def claim(identity: str, target: str, values: Sequence[float], *, unit: str, command: str, **rest: Any) -> Claim:
    """Return the claim whose value is the mean of `values` (None when there are none) with their deviation.

    Args:
        identity: stable name.
        target: "<= x", ">= x", "== x", "in x..y" or "stated".
        values: one per seed or repetition.
        unit: of the values.
        command: what makes them.
        **rest: `seeds`, `note` and `cells`.
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
        cells=list(rest.get("cells", [])),
    )


def claims_as_json(claims: Sequence[Claim], made: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the claims as the results file holds them, each with day, machine and code of the cells behind it.

    Args:
        claims: the claims.
        made: when, where and by which code each cell was made; of several cells of a claim the newest counts.
    """
    return [{**asdict(item), "met": item.met, **_newest(item, made)} for item in claims]


def _newest(item: Claim, made: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    nothing = {"date": "", "machine": "", "revision": ""}
    newest = max((made[name] for name in item.cells if name in made), key=lambda cell: cell["date"], default=nothing)
    return {key: newest[key] for key in nothing}


def claims_as_table(claims: Sequence[Claim]) -> str:
    """Return the claims as a Markdown table."""
    rows = ["| claim | target | measured | met | note |", "|---|---|---|---|---|"]
    for item in claims:
        value = "not measured" if item.value is None else f"{item.value:.4g} {item.unit}".strip()
        spread = "" if item.spread is None else f" ± {item.spread:.2g}"
        rows.append(f"| `{item.id}` | {item.target} | {value}{spread} | {'yes' if item.met else 'no'} | {item.note} |")
    return "\n".join(rows)
