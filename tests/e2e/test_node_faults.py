"""A SuperNode is killed in the middle of a task: the others go on, and its hospital comes back on a new node."""

from __future__ import annotations

import logging

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.followed_run import require_applied_once
from tests.e2e.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
_LOGGER = logging.getLogger("aegis.tests")


def test_killed_hospital_costs_its_own_update_only_and_takes_part_again(deployment: Deployment) -> None:
    north, south = deployment.hospitals["north"], deployment.hospitals["south"]
    south.hold()
    run = deployment.submit("killed-node", {"aggregation.rounds": 3})
    run.wait_for("update", hospital="north", base_version=0)
    wait_until(lambda: bool(south.calls("enter", run_id=run.run_id)), "south at work")

    north.hold()
    deployment.kill_node("south")
    south.let_go()
    deployment.start_node("south")
    run.wait_for("apply", version=1)
    run.wait_for("enrol", hospital="south", count=2)
    north.let_go()
    summary = run.wait_for_end()

    killed, lost = run.events("update", hospital="north")[0], run.events("refusal", hospital="south")[0]
    back = run.events("enrol", hospital="south")[1]
    _LOGGER.info(
        "killed, known as lost %.0f s and enrolled again %.0f s after the others were done",
        lost["wall_s"] - killed["wall_s"],
        back["wall_s"] - killed["wall_s"],
    )
    assert summary["status"] == "completed"
    assert summary["per_hospital"]["north"]["updates"] == 3
    assert summary["per_hospital"]["south"]["refused"] == {"node-lost": 1}
    require_applied_once(run.applied(), versions=3)
    assert {row["base"] for row in run.applied() if row["hospital"] == "south"} <= {1, 2}
    assert summary["per_hospital"]["south"]["updates"] >= 1
