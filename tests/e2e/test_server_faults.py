"""The coordinator dies in the middle of a round, in three ways; a new run goes on and applies nothing twice."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.followed_run import FollowedRun, require_applied_once
from tests.e2e.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

_LOGGER = logging.getLogger("aegis.tests")


def begin_last_round(deployment: Deployment, name: str, *, versions: int) -> FollowedRun:
    """Return a run that has the last update of north and waits for that of south, its last version unmade."""
    south = deployment.hospitals["south"]
    if versions == 1:
        south.hold()
    run = deployment.submit(name, {"aggregation.rounds": versions})
    if versions > 1:
        run.wait_for("dispatch", hospital="south", version=versions - 2)
        wait_until(lambda: len(south.calls("begin", run_id=run.run_id)) == versions - 1, "south at work")
        south.hold()
    run.wait_for("update", hospital="north", base_version=versions - 1)
    wait_until(lambda: len(south.calls("enter", run_id=run.run_id)) == versions, "south at its last task")
    return run


def resume(deployment: Deployment, name: str, *, versions: int) -> tuple[FollowedRun, dict[str, Any]]:
    """Return the run that goes on with the one of this `name`, and its summary; say how long it took to go on."""
    resumed = deployment.submit(name, {"aggregation.rounds": versions, "run.resume": True})
    summary = resumed.wait_for_end()
    start, first = resumed.events("resume")[0], resumed.events("dispatch", task="train")[0]
    _LOGGER.info("%s: asked again %.1f s after it was resumed", name, first["wall_s"] - start["wall_s"])
    return resumed, summary


def require_last_version(
    deployment: Deployment, resumed: FollowedRun, summary: dict[str, Any], *, versions: int
) -> None:
    """Check that south was asked once more and north was not, and that every update counts once."""
    assert (summary["status"], summary["model_version"], summary["resumed"]) == ("completed", versions, 1)
    assert summary["updates_applied"] == len(resumed.applied()) == 2 * versions
    require_applied_once(resumed.applied(), versions=versions)
    assert [event["hospital"] for event in resumed.events("restore")] == ["north"]
    assert not deployment.hospitals["north"].calls("enter", run_id=resumed.run_id)
    assert len(deployment.hospitals["south"].calls("answer", run_id=resumed.run_id)) == 1
    assert len(resumed.events("apply")) == 1


def test_killed_server_app_goes_on_from_its_checkpoint_with_the_update_that_it_held(deployment: Deployment) -> None:
    begin_last_round(deployment, "killed-server", versions=2)

    deployment.kill_server()
    deployment.hospitals["south"].let_go()
    resumed, summary = resume(deployment, "killed-server", versions=2)

    require_last_version(deployment, resumed, summary, versions=2)


def test_killed_superlink_fails_the_run_and_the_next_goes_on_with_nodes_that_reconnect_by_themselves(
    deployment: Deployment,
) -> None:
    run = begin_last_round(deployment, "killed-superlink", versions=1)

    deployment.kill_superlink()
    deployment.start_superlink()
    deployment.hospitals["south"].let_go()
    resumed, summary = resume(deployment, "killed-superlink", versions=1)

    require_last_version(deployment, resumed, summary, versions=1)
    run.wait_for_status("finished:failed")


def test_stopped_run_says_so_and_can_be_resumed(deployment: Deployment) -> None:
    run = begin_last_round(deployment, "stopped", versions=1)

    run.stop()
    stopped = run.wait_for_end()
    deployment.hospitals["south"].let_go()
    resumed, summary = resume(deployment, "stopped", versions=1)

    assert (stopped["status"], stopped["model_version"], stopped["updates_applied"]) == ("stopped", 0, 0)
    require_last_version(deployment, resumed, summary, versions=1)
    run.wait_for_status("finished:stopped")
