"""Two-phase release over real processes: what the server does not want costs nothing, and a restart loses nothing."""

from __future__ import annotations

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.followed_run import require_applied_once
from tests.e2e.hospital_files import HospitalFiles
from tests.e2e.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TWO_PHASES = {
    "aggregation.rule": "buffered",
    "aggregation.release": "two-phase",
    "privacy.mechanism": "update-gaussian",
}


def give_budget(deployment: Deployment, name: str) -> tuple[HospitalFiles, HospitalFiles]:
    """Return north and south with a fresh privacy budget for a run of this `name`."""
    for hospital in deployment.hospitals.values():
        hospital.adopt_policy(data_id=name, mechanisms=["update-gaussian"])
    return deployment.hospitals["north"], deployment.hospitals["south"]


def test_stale_result_is_discarded_at_the_hospital_and_costs_it_nothing(deployment: Deployment) -> None:
    north, south = give_budget(deployment, "stale")
    south.hold()
    settings = {"aggregation.rounds": 3, "aggregation.buffer-size": 1, "aggregation.max-staleness": 0}

    run = deployment.submit("stale", TWO_PHASES | settings)
    wait_until(lambda: len(north.calls("begin", run_id=run.run_id)) == 1, "north at work")
    north.hold()
    run.wait_for("apply", version=1)
    south.let_go()
    run.wait_for("refusal", hospital="south", reason="discarded")
    north.let_go()
    wait_until(lambda: len(north.calls("begin", run_id=run.run_id)) == 2, "north at work again")
    north.hold()
    summary = run.wait_for_end()

    assert (summary["status"], summary["refused"]) == ("completed", {"discarded": 1})
    require_applied_once(run.applied(), versions=3)
    assert [(row["hospital"], row["base"]) for row in run.applied()] == [("north", 0), ("north", 1), ("south", 2)]
    _, fresh = south.calls("answer", run_id=run.run_id)
    assert south.paid(run.run_id) == [fresh]
    assert not south.keeps_a_result


def test_result_outlives_the_restart_of_its_node_and_is_released_once(deployment: Deployment) -> None:
    north, south = give_budget(deployment, "restarted")
    north.hold("train.release")
    south.hold("train.release")
    run = deployment.submit("restarted", TWO_PHASES | {"aggregation.rounds": 1, "aggregation.buffer-size": 2})
    wait_until(lambda: bool(south.calls("enter", "train.release", run_id=run.run_id)), "the decision at south")
    assert south.keeps_a_result
    assert not south.paid(run.run_id)

    deployment.stop_node("south")
    south.let_go("train.release")
    deployment.start_node("south")
    run.wait_for("update", hospital="south", base_version=0)
    north.let_go("train.release")
    summary = run.wait_for_end()

    assert (summary["status"], summary["updates_applied"]) == ("completed", 2)
    require_applied_once(run.applied(), versions=1)
    assert south.paid(run.run_id) == south.calls("answer", run_id=run.run_id)
    assert not south.keeps_a_result


def test_result_outlives_the_death_of_the_server_and_the_next_one_releases_it_without_training_again(
    deployment: Deployment,
) -> None:
    north, south = give_budget(deployment, "handed-on")
    north.hold()
    south.hold("train.release")
    settings = TWO_PHASES | {"aggregation.rounds": 2, "aggregation.buffer-size": 1}
    run = deployment.submit("handed-on", settings)
    wait_until(lambda: bool(south.calls("enter", "train.release", run_id=run.run_id)), "the decision at south")
    north.let_go()
    wait_until(lambda: len(north.calls("begin", run_id=run.run_id)) == 1, "north at work")
    north.hold()
    run.wait_for("dispatch", hospital="north", version=1)  # The checkpoint of version 1 holds the decision at south.

    deployment.kill_server()
    deployment.stop_node("south")  # With the decision of the server that is dead.
    south.let_go("train.release")
    deployment.start_node("south")
    assert south.keeps_a_result
    resumed = deployment.submit("handed-on", settings | {"run.resume": True})
    summary = resumed.wait_for_end()

    assert (summary["status"], summary["model_version"], summary["updates_applied"]) == ("completed", 2, 2)
    require_applied_once(resumed.applied(), versions=2)
    assert [(row["hospital"], row["base"]) for row in resumed.applied()] == [("north", 0), ("south", 0)]
    assert not south.calls("enter", run_id=resumed.run_id)
    assert south.paid(run.run_id) == south.calls("answer", run_id=run.run_id)
    assert not south.paid(resumed.run_id)
    assert not south.keeps_a_result
