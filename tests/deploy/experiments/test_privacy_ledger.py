"""The ledger's cells and claims: what was measured is what is claimed, nothing measured is never met."""

from __future__ import annotations

from pathlib import Path

from deploy.experiments.privacy_ledger import ledger_cells, ledger_claims, measure_speed

IDS = ["crash_kills", "unrecorded_releases", "double_spends", "reserve_per_s", "decision_ms"]
TOLL = {
    "kills": 250, "points": ["noise"], "unrecorded_releases": 0, "double_spends": 0, "lost_beyond_one": 0,
    "faults": [], "slowest_restart_s": 0.1, "releases": 700, "rows": 2000,
}  # fmt: skip
SPEED = {
    "rows": 10_000, "block": 500, "reserve_per_s": [900.0, 1200.0, 1300.0], "bare_per_s": [3000.0],
    "decision_ms": {"linear": 0.2, "rdp": 0.1, "pld": 0.4}, "different_ms": 1.0, "dp_sgd_ms": 50.0, "restart_s": 0.5,
}  # fmt: skip


def test_claims_without_cells_have_no_value() -> None:
    assert [(item.id, item.value, item.met) for item in ledger_claims({})] == [(name, None, False) for name in IDS]


def test_claims_take_the_median_rate_and_the_slowest_account() -> None:
    claims = {item.id: item for item in ledger_claims({"ledger-crashes": TOLL, "ledger-speed": SPEED})}

    assert [claims[name].value for name in IDS] == [250, 0, 0, 1200, 0.4]
    assert all(item.met for item in claims.values())


def test_faults_that_were_found_are_not_met() -> None:
    toll = {**TOLL, "unrecorded_releases": 1, "double_spends": 2, "kills": 199}

    claims = ledger_claims({"ledger-crashes": toll, "ledger-speed": SPEED})

    assert [item.met for item in claims] == [False, False, False, True, True]


def test_full_matrix_has_more_kills_than_the_claim_needs_and_runs_alone() -> None:
    cells = {cell.name: cell for cell in ledger_cells()}

    assert cells["ledger-crashes"].settings["kills"] >= 200
    assert cells["ledger-speed"].settings["rows"] == 10_000
    assert all(cell.alone for cell in cells.values())


def test_speed_cell_measures_every_account(tmp_path: Path) -> None:
    result = measure_speed({"rows": 40, "block": 20, "decisions": 3}, tmp_path)

    assert set(result["decision_ms"]) == {"linear", "rdp", "pld"}
    assert len(result["reserve_per_s"]) == len(result["bare_per_s"]) == 2
    assert all(value > 0 for value in (*result["decision_ms"].values(), *result["reserve_per_s"], result["restart_s"]))
    assert list(tmp_path.iterdir()) == []
