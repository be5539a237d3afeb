"""Answers that come too late, and messages that come twice, over the real link: counted, and never applied twice."""

from __future__ import annotations

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.followed_run import require_applied_once

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_answer_after_expiry_is_not_applied_and_its_hospital_is_asked_again(deployment: Deployment) -> None:
    north, south = deployment.hospitals["north"], deployment.hospitals["south"]
    south.hold()

    run = deployment.submit("expiry", {"aggregation.rounds": 2, "aggregation.give-up-s": 45.0})
    run.wait_for("refusal", hospital="south", reason="node-lost")
    run.wait_for("dispatch", hospital="south", version=1)
    south.let_go()
    summary = run.wait_for_end()

    assert (summary["status"], summary["refused"]) == ("completed", {"node-lost": 1})
    require_applied_once(run.applied(), versions=2)
    assert [(row["hospital"], row["base"]) for row in run.applied()] == [("north", 0), ("north", 1), ("south", 1)]
    assert len(north.calls("answer", run_id=run.run_id)) == len(south.calls("answer", run_id=run.run_id)) == 2


def test_what_is_delivered_twice_is_counted_and_applied_once(deployment: Deployment) -> None:
    run = deployment.submit("repeated", {"aggregation.rounds": 2}, server="tests.e2e.repeating_server:app")

    summary = run.wait_for_end()

    assert (summary["status"], summary["updates_applied"]) == ("completed", 4)
    require_applied_once(run.applied(), versions=2)
    assert set(summary["refused"]) == {"duplicate-reply"}
    # Of two queries and four tasks the link said twice more that they are answered; after the last nobody listens.
    assert 10 <= summary["refused"]["duplicate-reply"] <= 12
    for hospital in deployment.hospitals.values():
        calls = hospital.calls("enter", run_id=run.run_id)
        assert len(calls) == len(set(calls)) == 2
