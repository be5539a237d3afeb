"""A ledger as people and spreadsheets read it: one line per data set and delta, one flat record per row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from client_app.ledger.balance import Balance, Standing, Tally
from client_app.ledger.reckoning import spend_of
from client_app.ledger.release import ACCOUNT_NAMES, ReleaseRequest, Spend
from client_app.ledger.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one data set has cost at one delta.

    Attributes:
        data_set: its name.
        standings: its bookings by how far they got, cancelled ones among them.
        unprotected: releases without protection; any number above 0 ends every claim.
        latest: the newest protected request at this delta, whose cap and account apply; None when there is none.
        spend: at that delta; None when nothing was protected.
    """

    data_set: str
    standings: dict[Standing, int]
    unprotected: int
    latest: ReleaseRequest | None
    spend: Spend | None

    @property
    def left(self) -> float | None:
        """Epsilon that is left of the newest cap by the account that binds; None when nothing was protected."""
        if self.latest is None or self.spend is None:
            return None
        return max(0.0, self.latest.cap - self.spend.epsilon(self.latest.account))

    def as_dict(self) -> dict[str, Any]:
        """Return the line as JSON-able values; infinite epsilons as null."""
        latest, spend = self.latest, self.spend
        return {
            "data-set": self.data_set,
            "delta": latest.delta if latest else None,
            "cap": latest.cap if latest else None,
            "account": latest.account if latest else None,
            "spent": {name: _finite(spend.epsilon(name)) if spend else None for name in ACCOUNT_NAMES},
            "left": self.left,
            "claimable": spend.claimable if spend else False,
            "releases": sum(self.standings.values()) - self.standings[Standing.CANCELLED],
            "unprotected": self.unprotected,
            "protections": [f"{unit}-level, {relation}" for relation, unit in (spend.protections if spend else ())],
            **{standing.value: count for standing, count in self.standings.items()},
        }


def summarize(balance: Balance) -> list[Line]:
    """Return the lines of all data sets, by name and delta."""
    latest: dict[str, dict[float, ReleaseRequest]] = {name: {} for name in balance.tallies}
    for booking in balance.bookings.values():
        request = booking.request
        if request.event is not None:
            latest[request.data_set][request.delta] = request
    lines = []
    for name, tally in sorted(balance.tallies.items()):
        by_delta = sorted(latest[name].items())
        lines += [_line(name, tally, request, spend_of(name, tally, delta)) for delta, request in by_delta]
        lines += [] if by_delta else [_line(name, tally, None, None)]
    return lines


def row_as_dict(row: Row) -> dict[str, Any]:
    """Return `row` as JSON-able values, its body decoded."""
    shown = {"seq": row.seq, "kind": row.kind, "time": row.time, "body": _content_of(row)}
    return {**shown, "digest": row.digest.hex(), "seal": row.seal.hex()}


def flatten_row(row: Row) -> dict[str, Any]:
    """Return `row` as one flat record; columns that its kind lacks are empty."""
    content = _content_of(row)
    mechanism, event, after = (_table_of(content, key) for key in ("mechanism", "event", "after"))
    texts = {key: content.get(key, "") for key in ("run", "message", "data-set", "account")}
    return {
        "seq": row.seq,
        "kind": row.kind,
        "time": row.time,
        "reserve": content.get("reserve", ""),
        **{key: _harmless(str(value)) for key, value in texts.items()},
        "mechanism": mechanism.get("name", ""),
        "relation": mechanism.get("relation", ""),
        "unit": mechanism.get("unit", ""),
        "clip-norm": mechanism.get("clip-norm", ""),
        "event": event.get("kind", ""),
        "noise-multiplier": event.get("noise-multiplier", ""),
        "sampling-probability": event.get("sampling-probability", ""),
        "steps": event.get("steps", ""),
        "delta": content.get("delta", ""),
        "cap": content.get("cap", ""),
        **{f"{name}-after": after.get(name, "") for name in ACCOUNT_NAMES},
        "masking": _harmless(" ".join(str(content.get("masking", "")).split())),
        "unprotected-after": content.get("unprotected", ""),
        "digest": row.digest.hex(),
        "seal": row.seal.hex(),
    }


def _line(name: str, tally: Tally, latest: ReleaseRequest | None, spend: Spend | None) -> Line:
    standings = dict(tally.standings)
    return Line(data_set=name, standings=standings, unprotected=tally.unprotected, latest=latest, spend=spend)


def _content_of(row: Row) -> dict[str, Any]:
    """Return the body, or its text when it was damaged: a ledger with faults is shown, too."""
    try:
        return row.content
    except ValueError:
        return {"unreadable": row.body}


def _table_of(content: dict[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _harmless(text: str) -> str:
    """Return `text` so that no spreadsheet takes it for a formula: a server chose the names of runs and messages."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
