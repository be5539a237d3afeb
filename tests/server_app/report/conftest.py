"""Summaries to draw reports from; every number is chosen, so tests can say what must appear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from federation.metrics import Scores
from server_app.summary import CurvePoint, HospitalSummary, RunStatus, Staleness, Summary


def hospital(**changes: Any) -> HospitalSummary:
    """Return an ordinary hospital with `changes`."""
    values: dict[str, Any] = {
        "examples": 400,
        "dispatched": 10,
        "updates": 9,
        "refused": {},
        "accuracy": 0.8,
        "auroc": 0.9,
    }
    return HospitalSummary(**{**values, **changes})


def asynchronous(ids: list[str], points: int = 0, **changes: Any) -> Summary:
    """Return an asynchronous run of `ids`, the first of which is old, seldom heard and drowned, with `changes`."""
    fast = len(ids) - 1
    per_hospital = {
        name: hospital(
            updates=9 if rank else 1,
            refused={} if rank else {"discarded": 2, "too-stale": 1},
            weight_share=(0.98 if fast else 1.0) / max(fast, 1) if rank or not fast else 0.02,
            size_share=1 / len(ids),
            staleness=Staleness(mean=1.25, max=2) if rank else Staleness(mean=6.0, max=6),
            factors={"size": 400.0, "staleness": 0.75 if rank else 0.375, "noise": 0.9},
            discarded=0 if rank else 2,
        )
        for rank, name in enumerate(ids)
    }
    values: dict[str, Any] = {
        "per_hospital": per_hospital,
        "staleness": Staleness(mean=1.5, max=6),
        "refused": {"discarded": 2, "too-stale": 1},
        "configuration": {"aggregation.rule": "buffered", "aggregation.release": "two-phase"},
    }
    return summarize(ids, points, **{**values, **changes})


def scores(accuracy: float, auroc: float | None = 0.9, loss: float | None = 0.5) -> Scores:
    """Return scores on 100 images."""
    return Scores(accuracy=accuracy, auroc=auroc, loss=loss, examples=100)


def curve(ids: list[str], points: int) -> list[CurvePoint]:
    """Return `points` evaluations in which the hospital listed first is the worst."""
    return [
        CurvePoint(
            version=version,
            elapsed_s=2.0 * version,
            central=scores(0.5 + 0.01 * version),
            hospitals={name: scores(0.4 + 0.3 * rank / len(ids) + 0.01 * version) for rank, name in enumerate(ids)},
        )
        for version in range(points)
    ]


def summarize(ids: list[str], points: int = 0, **changes: Any) -> Summary:
    """Return a completed run of hospitals `ids`, the first of which is the worst, with `changes`.

    Drawing is slow, so there are no curves unless `points` asks for some.
    """
    per_hospital = {name: hospital(accuracy=0.6 + 0.3 * rank / len(ids)) for rank, name in enumerate(ids)}
    values: dict[str, Any] = {
        "run": "lungs-2",
        "engine": "virtual",
        "status": RunStatus.COMPLETED,
        "updates_applied": 9 * len(ids),
        "model_version": 7,
        "final": scores(0.8125, 0.9375),
        "per_hospital": per_hospital,
        "worst_hospital": ids[0] if ids else None,
        "silent_hospitals": [],
        "staleness": Staleness(mean=0.0, max=0),
        "refused": {},
        "bytes_up": 3 * 1024**2,
        "bytes_down": 5 * 1024**3,
        "wall_s": 42.0,
        "virtual_s": 3700.0,
        "curve": curve(ids, points),
        "guarantees": ["Images never leave a hospital.", "Masking is not differential privacy."],
        "configuration": {"data.name": "phantom", "run.seed": 7, "record.updates": False},
    }
    return Summary(**{**values, **changes})


@pytest.fixture
def make_summary() -> Callable[..., Summary]:
    """Return the function that makes a summary; see `summarize`."""
    return summarize


@pytest.fixture
def make_asynchronous() -> Callable[..., Summary]:
    """Return the function that makes the summary of an asynchronous run; see `asynchronous`."""
    return asynchronous


@pytest.fixture
def make_hospital() -> Callable[..., HospitalSummary]:
    """Return the function that makes a hospital; see `hospital`."""
    return hospital


@pytest.fixture
def make_scores() -> Callable[..., Scores]:
    """Return the function that makes scores; see `scores`."""
    return scores
