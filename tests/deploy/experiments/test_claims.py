"""Claims: value, spread and whether the target is met; nothing measured is never met."""

from __future__ import annotations

import pytest

from deploy.experiments.claims import claim, claims_as_json, claims_as_table
from deploy.experiments.fedavg import fedavg_cells, fedavg_claims
from deploy.experiments.parts import FEDAVG_PARTS

FIELDS = {"id", "value", "unit", "seeds", "spread", "command", "date", "machine", "note"}
CLAIM_IDS = [
    "pneumonia_accuracy_gap_points",
    "pneumonia_auroc",
    "organa_accuracy",
    "s1_curve_recorded",
    "virtual_grid_speedup",
    "simulate_overhead_ratio",
    "engines_equal",
    "demo_cold_min",
    "demo_warm_min",
    "make_test_min",
]


@pytest.mark.parametrize(
    ("target", "values", "met"),
    [("<= 2", [1.0, 2.5], True), ("<= 2", [2.5], False), (">= 0.5", [0.5], True), ("== 1", [1.0], True),
     ("== 1", [0.0], False), ("<= 2", [], False)],
)  # fmt: skip
def test_claim_is_met_exactly_when_its_mean_is(target: str, values: list[float], met: bool) -> None:
    assert claim("x", target, values, unit="", command="c").met is met


def test_claim_carries_mean_and_sample_deviation() -> None:
    item = claim("x", "<= 9", [1.0, 2.0, 3.0], unit="s", command="c", seeds=[4, 5, 6], note="n")

    assert (item.value, item.spread, item.seeds) == (2.0, 1.0, [4, 5, 6])


def test_every_claim_is_written_with_all_fields_even_when_nothing_was_measured() -> None:
    written = claims_as_json(fedavg_claims({}), {})

    assert [item["id"] for item in written] == CLAIM_IDS
    assert all(set(item) >= FIELDS and item["value"] is None and item["met"] is False for item in written)
    assert "not measured" in claims_as_table(fedavg_claims({}))


def test_cell_names_of_the_experiment_are_unique(tmp_path) -> None:
    names = [cell.name for cell in fedavg_cells(FEDAVG_PARTS, data_root="", source=tmp_path)]

    assert len(names) == len(set(names)) > 15
