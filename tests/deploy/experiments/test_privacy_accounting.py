"""The accounting part of the privacy experiment: what it measures, and that it would notice a broken relation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.experiments import privacy_accounting
from deploy.experiments.privacy_accounting import (
    accounting_cells,
    accounting_claims,
    compare_accounts,
    compare_history,
    count_releases,
    draw_history,
)
from federation.accounting.events import GaussianRelease, History, SampledGaussianRelease
from federation.randomness import numpy_stream


def test_cells_ask_for_a_thousand_histories_and_every_cell_feeds_a_claim() -> None:
    cells = accounting_cells()

    assert sum(cell.settings.get("histories", 0) for cell in cells) >= 1000
    assert len({cell.settings.get("seed") for cell in cells}) == len(cells)
    assert {name for item in accounting_claims(_results()) for name in item.cells} == {cell.name for cell in cells}


def _results(**changes: Any) -> dict[str, Any]:
    part = {"histories": 250, "held": 250, "redrawn": 3, "largest_pld_over_rdp": 0.004, "violations": []}
    stop = {"linear": 40, "rdp": 1442, "pld": 1628}
    return {cell.name: stop if cell.name == "accounting-stop" else part | changes for cell in accounting_cells()}


def test_claims_are_met_by_a_full_measurement_and_open_without_one() -> None:
    met = {item.id: item for item in accounting_claims(_results())}
    missing = accounting_claims({})

    assert [met[name].value for name in met] == [40, 1442, 1000]
    assert all(item.met for item in met.values())
    assert "PLD 1628" in met["rdp_stop_releases"].note
    assert all(item.value is None and not item.met for item in missing)


def test_a_single_violation_misses_the_claim_and_is_told() -> None:
    claims = {item.id: item for item in accounting_claims(_results(held=249, violations=[{}]))}

    assert not claims["accountant_histories"].met
    assert "4 violations" in claims["accountant_histories"].note


def test_stops_are_counted_by_every_account(tmp_path: Path) -> None:
    found = count_releases({"noise_multiplier": 24.22, "epsilon": 8.0, "delta": 1e-5}, tmp_path)

    assert found["linear"] == 40
    assert found["pld"] > found["rdp"] >= 1400


def test_draws_depend_on_the_seed_alone_and_keep_their_bounds() -> None:
    drawn = [draw_history(numpy_stream(seed, "x")) for seed in range(200)]

    assert drawn == [draw_history(numpy_stream(seed, "x")) for seed in range(200)]
    events = [event for history, _ in drawn for event in history.counts]
    assert {type(event) for event in events} == {GaussianRelease, SampledGaussianRelease}
    assert all(0.5 <= event.noise_multiplier <= 50 for event in events)
    assert all(1 <= count <= 50 for history, _ in drawn for count in history.counts.values())
    assert all(1e-9 <= delta <= 1e-3 for _, delta in drawn)


def test_histories_beyond_the_bound_are_drawn_again_and_counted(tmp_path: Path) -> None:
    found = compare_accounts({"seed": 5, "histories": 2, "largest_epsilon": 0.3}, tmp_path)

    assert (found["histories"], found["held"], found["violations"]) == (2, 2, [])
    assert found["redrawn"] > 0


@pytest.mark.parametrize(
    ("said", "broken"),
    [
        ({}, []),
        ({"reference_rdp": 1.01}, ["rdp"]),
        ({"reference_pld": 0.96}, ["pld"]),
        ({"linear": 0.99}, ["linear >= rdp"]),
        ({"pld": 1.04}, ["rdp >= pld"]),
        ({"pld": 1.025}, []),
    ],
)
def test_every_broken_relation_is_found(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, float], broken: list[str]
) -> None:
    values = {"linear": 2.0, "rdp": 1.0, "pld": 0.95, "reference_rdp": 1.0, "reference_pld": 0.95} | said

    class Saying:
        def __init__(self, name: str) -> None:
            self.name = name

        def epsilon(self, history: History, delta: float) -> float:
            return values[self.name]

    monkeypatch.setattr(privacy_accounting, "ACCOUNTS", {name: Saying(name) for name in ("linear", "rdp", "pld")})
    monkeypatch.setattr(
        privacy_accounting, "reference_epsilon", lambda history, delta, name: values[f"reference_{name}"]
    )

    assert compare_history(History(), 1e-5)["broken"] == broken
