"""Finished cells as rows of a table: one setting, one attack, how many images were read and what a guess reaches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

STRICTEST = "best-foreign"
CALIBRATED = "tau*"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRate:
    """Images read above one threshold.

    Attributes:
        threshold: in words, "18 dB" or "tau*".
        threshold_db: in dB.
        share: in [0, 1].
        low: of its 95 % interval.
        high: of its 95 % interval.
        guessed: share that the best foreign image reaches without any update.
    """

    threshold: str
    threshold_db: float
    share: float
    low: float
    high: float
    guessed: float

    @property
    def excess(self) -> float:
        """What was read beyond the guess, in [-1, 1]."""
        return self.share - self.guessed


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakageRow:
    """What one attack read under one setting.

    Attributes:
        data: name of the data set.
        training: what left: a gradient, or a difference after how much training.
        defence: what protected it.
        attack: name.
        images: real images that were attacked.
        verbatim: those of them read at more than 60 dB.
        rates: by threshold, the calibrated one last.
        free_share: share above 18 dB where each image takes the candidate that suits it best; None: not measured.
    """

    data: str
    training: str
    defence: str
    attack: str
    images: int
    verbatim: int
    rates: tuple[RecoveryRate, ...]
    free_share: float | None

    @property
    def setting(self) -> tuple[str, str, str]:
        """What attacks are compared within."""
        return self.data, self.training, self.defence


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCase:
    """The attack that read most under one setting at one threshold.

    Attributes:
        row: of that attack.
        rate: at the threshold.
        attacks: how many were tried; the interval is that of the worst alone.
    """

    row: LeakageRow
    rate: RecoveryRate
    attacks: int


def is_leakage(stored: Any) -> bool:
    """Return whether what `CellStore` wrote is a finished cell of attacks on images."""
    if not isinstance(stored, dict):
        return False
    settings, result = stored.get("settings"), stored.get("result")
    if not isinstance(settings, dict) or not isinstance(result, dict) or not result:
        return False
    described = {"data", "masking", "mode", "attacks"} <= set(settings)
    return described and all(isinstance(item, dict) and "oracle" in item for item in result.values())


def rows_of(settings: dict[str, Any], result: dict[str, Any]) -> list[LeakageRow]:
    """Return a row for every attack in the `result` of a cell with `settings`."""
    return [
        LeakageRow(
            data=settings["data"],
            training=describe_training(settings),
            defence=describe_defence(settings),
            attack=name,
            images=found["images"],
            verbatim=found["verbatim"],
            rates=_rates_of(found),
            free_share=None if found["hungarian"] is None else found["hungarian"]["rates"][0]["recovered"]["share"],
        )
        for name, found in result.items()
    ]


def worst_cases(rows: Iterable[LeakageRow]) -> list[WorstCase]:
    """Return for every setting and threshold the attack that read most; of equal ones the first."""
    by_setting: dict[tuple[str, str, str], list[LeakageRow]] = {}
    for row in rows:
        by_setting.setdefault(row.setting, []).append(row)
    return [_worst(tried, place) for tried in by_setting.values() for place in range(len(tried[0].rates))]


def describe_training(settings: dict[str, Any]) -> str:
    """Return what left a hospital, in a few words."""
    clients = f", sum of {settings['clients']}" if settings.get("clients", 1) > 1 else ""
    if settings["mode"] == "gradient":
        return f"gradient{clients}"
    return f"delta, {settings['optimizer']}, {settings['epochs']} epochs{clients}"


def describe_defence(settings: dict[str, Any]) -> str:
    """Return what protected it, in a few words."""
    parts = []
    if settings["masking"] != "none":
        refresh = "" if settings.get("refresh", "none") == "none" else f", {settings['refresh']}"
        parts.append(f"{settings['masking']} M={settings['size']} of {settings['source']}{refresh}")
    if settings["mechanism"] != "none":
        parts.append(f"{settings['mechanism']} epsilon={settings['epsilon']:g}")
    return " + ".join([*parts, *settings["baselines"]]) or "none"


def _worst(tried: Sequence[LeakageRow], place: int) -> WorstCase:
    row = max(tried, key=lambda item: item.rates[place].share)
    return WorstCase(row=row, rate=row.rates[place], attacks=len(tried))


def _rates_of(found: dict[str, Any]) -> tuple[RecoveryRate, ...]:
    guesses = found["nulls"][STRICTEST]["rates"]
    return tuple(
        RecoveryRate(
            threshold=CALIBRATED if rate["calibrated"] else f"{rate['threshold-db']:g} dB",
            threshold_db=rate["threshold-db"],
            share=rate["recovered"]["share"],
            low=rate["recovered"]["low"],
            high=rate["recovered"]["high"],
            guessed=guess["recovered"]["share"],
        )
        for rate, guess in zip(found["oracle"]["rates"], guesses, strict=True)
    )
