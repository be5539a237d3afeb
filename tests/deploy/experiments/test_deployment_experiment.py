"""What the experiment on deployment claims, from made-up cells."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from flwr.supercore.state.schema.corestate_models import FlwrBase
from flwr.supercore.state.schema.linkstate_models import LinkStateBase

from deploy.experiments import deployment_experiment
from deploy.experiments.claims import Claim
from deploy.experiments.deployment_experiment import deployment_cells, deployment_claims, write_deployment_results
from deploy.experiments.deployment_faults import FAULTS
from deploy.experiments.deployment_first_update import COMMANDS, failed_checks
from deploy.experiments.deployment_images import EDGE_IMAGE, HOSPITAL_IMAGE, SERVER_IMAGE
from deploy.experiments.deployment_security import STABLE, compare, find_faults
from deploy.experiments.parts import DEPLOYMENT_PARTS
from federation.errors import RunFailedError

CLAIMS = {
    "first_update_min", "commands", "hosts_contacted", "doctor_found", "doctor_false_alarms", "faults_survived",
    "fuzzed_requests", "phi_markers_leaked", "server_image_mb", "hospital_image_mb", "seconds_per_update_overhead",
}  # fmt: skip
FIRST = {"minutes": 2.5, "commands": len(COMMANDS), "contacted": ["172.18.0.2:8443"], "doctor": "", "doctor-failed": []}
FAULT = {"survived": True, "told": "a | b", "contradictions": [], "versions": [1, 3], "minutes": 1.0}
FUZZED = {
    "sent": 12010,
    "answered": 12000,
    "refused_by_superlink": 4000,
    "statuses": {"404": 8000, "0": 10},
    "registered": {"401": 3990, "200": 10},
    "let_in": [],
}
GOOD: dict[str, Any] = {
    "doctor": {"found": 56, "seeded": 56, "missed": [], "false-alarms": 0, "checks": 47},
    "first-update": FIRST,
    "first-update-proxy": {**FIRST, "minutes": 3.5, "contacted": ["172.18.0.3:3128"]},
    "footprint": {
        "images-mb": {HOSPITAL_IMAGE: 1200.0, SERVER_IMAGE: 1300.0, EDGE_IMAGE: 250.0},
        "idle": {"edge": {"memory-mb": 5.0, "cpu-percent": 0.1}},
        "overhead-s": [9.0, 10.0, 30.0],
        "training-s": [2.0],
        "status": "completed",
        "updates": 16,
        "contradictions": [],
    },
    "security": {
        "closed": {"a door": ""},
        "fuzzed": FUZZED,
        "changed": {},
        "status": "completed",
        "updates": 8,
        "contradictions": [],
        "marks": [],
        "bytes-searched": 5_000_000,
        "control": "a log of a hospital",
        "revoked": "refused",
    },
    "faults": {
        "faults": [{"name": name, **FAULT} for name in FAULTS],
        "status": "completed", "version": 40, "updates": 80, "in-history": 80, "contradictions": [],
    },
}  # fmt: skip


def claims(results: dict[str, Any]) -> dict[str, Claim]:
    return {item.id: item for item in deployment_claims(results)}


def changed(cell: str, **values: Any) -> dict[str, Any]:
    results = copy.deepcopy(GOOD)
    results[cell].update(values)
    return results


def test_every_claim_of_the_issue_is_made_and_met_by_good_cells() -> None:
    made = claims(GOOD)

    assert set(made) == CLAIMS
    assert all(item.met for item in made.values())
    assert made["first_update_min"].value == 3.5
    assert made["seconds_per_update_overhead"].value == 10.0
    assert made["faults_survived"].value == len(FAULTS) == 12


def test_claims_without_cells_have_no_value_and_are_not_met() -> None:
    made = claims({})

    assert set(made) == CLAIMS
    assert all(item.value is None and not item.met for item in made.values())


@pytest.mark.parametrize(
    ("cell", "values", "broken"),
    [
        ("first-update", {"minutes": 5.5}, "first_update_min"),
        ("first-update-proxy", {"contacted": ["172.18.0.3:3128", "8.8.8.8:53"]}, "hosts_contacted"),
        ("first-update", {"commands": 7}, "commands"),
        ("doctor", {"found": 24}, "doctor_found"),
        ("doctor", {"found": 55}, "doctor_found"),
        ("doctor", {"missed": ["a fault of a server"]}, "doctor_found"),
        ("doctor", {"false-alarms": 1}, "doctor_false_alarms"),
        ("faults", {"faults": GOOD["faults"]["faults"][1:]}, "faults_survived"),
        ("security", {"changed": {"run": [0, 1]}}, "fuzzed_requests"),
        ("security", {"fuzzed": {**FUZZED, "let_in": ["GET /"]}}, "fuzzed_requests"),
        ("security", {"fuzzed": {**FUZZED, "answered": 9_999}}, "fuzzed_requests"),
        ("security", {"fuzzed": {**FUZZED, "refused_by_superlink": 1000}}, "fuzzed_requests"),
        ("faults", {"contradictions": ["versions [1, 3]"]}, "faults_survived"),
        ("faults", {"status": "failed"}, "faults_survived"),
        ("security", {"marks": ["edge: log"]}, "phi_markers_leaked"),
    ],
)
def test_claim_falls_with_its_cell_and_no_other_does(cell: str, values: dict[str, Any], broken: str) -> None:
    made = claims(changed(cell, **values))

    assert [item.id for item in made.values() if not item.met] == [broken]


@pytest.mark.parametrize(
    "values",
    [
        {"closed": {"a door": "GOT THROUGH"}},
        {"closed": {}},
        {"status": "failed"},
        {"updates": 0},
        {"contradictions": ["no versions"]},
        {"control": ""},
        {"revoked": ""},
    ],
)
def test_cell_of_security_that_shows_nothing_meets_no_claim(values: dict[str, Any]) -> None:
    results = changed("security", **values)

    made = claims(results)

    assert len(find_faults(results["security"])) == 1
    assert {item.id for item in made.values() if not item.met} == {"fuzzed_requests", "phi_markers_leaked"}
    assert made["phi_markers_leaked"].value is None


def test_good_cell_of_security_has_no_faults() -> None:
    assert find_faults(GOOD["security"]) == []


def test_state_that_differs_in_any_table_is_a_change() -> None:
    before = {"node": 3, "node: content": "a", "gone": 0}
    after = {"node": 3, "node: content": "b", "new": 1}

    assert compare(before, before) == {}
    assert compare(before, after) == {"gone": [0, None], "new": [None, 1], "node: content": ["a", "b"]}


def test_stable_columns_are_those_of_the_superlinks_tables() -> None:
    tables = {**FlwrBase.metadata.tables, **LinkStateBase.metadata.tables}

    for name, columns in STABLE.items():
        assert set(columns.split(", ")) <= set(tables[name].columns.keys())


@pytest.mark.parametrize(
    "counts", [{"found": 55, "seeded": 56, "missed": []}, {"found": 1, "seeded": 1, "missed": ["x"]}]
)
def test_doctor_that_misses_a_fault_makes_no_cell(
    counts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(deployment_experiment, "run", lambda _: json.dumps(counts))

    with pytest.raises(RunFailedError, match="every seeded fault"):
        deployment_experiment.count_doctor({}, tmp_path)


def test_checks_of_the_doctor_that_failed_are_named() -> None:
    results = [{"id": "clock", "status": "failed"}, {"id": "disk", "status": "warning"}]

    assert failed_checks(json.dumps({"results": results})) == ["clock"]
    with pytest.raises(RunFailedError, match="name the checks"):
        failed_checks(json.dumps({"results": results[1:]}))


def test_fault_that_was_not_survived_does_not_count() -> None:
    results = copy.deepcopy(GOOD)
    results["faults"]["faults"][3]["survived"] = False

    assert claims(results)["faults_survived"].value == 11


def test_page_and_json_tell_of_every_cell(tmp_path: Path) -> None:
    made = {name: {"date": "2026-11-30", "machine": "a machine", "revision": "abc"} for name in GOOD}

    write_deployment_results(GOOD, made, tmp_path)

    page = (tmp_path / "07-deployment.md").read_text()
    stored = json.loads((tmp_path / "07-deployment.json").read_text())
    assert all(name in page for name in FAULTS)
    assert "a / b" in page
    assert "through an HTTP CONNECT proxy" in page
    assert {item["id"] for item in stored["claims"]} == CLAIMS
    assert all(item["revision"] == "abc" for item in stored["claims"])


def test_every_part_has_cells_that_run_alone() -> None:
    cells = deployment_cells(DEPLOYMENT_PARTS, data_root="/data")

    assert {cell.name for cell in cells} == set(GOOD)
    assert all(cell.alone for cell in cells)


@pytest.mark.parametrize("aimed", [True, False])
def test_page_says_of_ways_out_without_a_control_that_they_show_nothing(aimed: bool, tmp_path: Path) -> None:
    closed = {"a door": "", **({"the way out with the edge for a proxy": ""} if aimed else {})}
    made = {name: {"date": "2026-11-30", "machine": "a machine", "revision": "abc"} for name in GOOD}

    write_deployment_results({**GOOD, "security": {**GOOD["security"], "closed": closed}}, made, tmp_path)

    page = (tmp_path / "07-deployment.md").read_text()
    assert ("show nothing by themselves" in page) is not aimed
    assert ("out of a network that has a way out" in page) is aimed
