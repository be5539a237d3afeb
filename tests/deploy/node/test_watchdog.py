"""Every case in which a node is judged, as a table: what was observed, how it stands, whether it is started anew."""

from __future__ import annotations

from typing import Any

import pytest
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE
from hypothesis import given
from hypothesis import strategies as st

from deploy.node.contact import Contact
from deploy.node.route import Probe
from deploy.node.state import Phase
from deploy.node.watchdog import (
    IDLE_AFTER_S,
    LARGEST_LAG_S,
    LARGEST_LEAD_S,
    SILENT_AFTER_S,
    Observation,
    Verdict,
    judge,
)

NOW = 100_000.0
WELL = Probe(reachable=True, clock_skew_s=0.0, time=NOW - 1)
AWAY = Probe(reachable=False, found="ConnectError: refused", time=NOW - 1)


def ago(answered: float, pulled: float, status: int = 200) -> Contact:
    """Return what the server said so many seconds ago."""
    return Contact(answered=NOW - answered, pulled=NOW - pulled, status=status)


def judged(**changes: Any) -> Verdict:
    """Return the verdict on a node that has run for an hour and is well, but for `changes`."""
    usual: dict[str, Any] = {
        "now": NOW,
        "running": True,
        "started": NOW - 3600,
        "busy": 0.0,
        "contact": ago(10, 2),
        "probe": WELL,
    }
    return judge(Observation(**(usual | changes)))


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        pytest.param({}, Phase.CONNECTED, id="the server answers heartbeats and questions for tasks"),
        pytest.param({"probe": None}, Phase.CONNECTED, id="the way beside it was not tried yet"),
        pytest.param({"probe": AWAY}, Phase.CONNECTED, id="it is answered, whatever came of trying beside it"),
        pytest.param({"contact": ago(10, 2, status=503)}, Phase.CONNECTED, id="one answer of many was none"),
        pytest.param(
            {"contact": ago(10, 1800), "busy": NOW - 1},
            Phase.CONNECTED,
            id="half an hour of training without a question",
        ),
        pytest.param({"contact": ago(SILENT_AFTER_S, 2)}, Phase.CONNECTED, id="just not silent for too long"),
        pytest.param({"contact": ago(10, IDLE_AFTER_S)}, Phase.CONNECTED, id="just not idle for too long"),
        pytest.param(
            {"contact": ago(10, 1800), "busy": NOW - IDLE_AFTER_S}, Phase.CONNECTED, id="a task that ended just now"
        ),
        pytest.param({"started": NOW - 10, "contact": Contact()}, Phase.STARTING, id="no answer yet"),
        pytest.param(
            {"started": NOW - 10, "contact": ago(500, 500)}, Phase.STARTING, id="the last answer was another's"
        ),
        pytest.param({"started": NOW - 10, "contact": Contact(), "probe": None}, Phase.STARTING, id="nothing known"),
        pytest.param({"started": NOW - 10, "contact": Contact(), "probe": AWAY}, Phase.UNREACHABLE, id="no way out"),
        pytest.param({"contact": ago(600, 600), "probe": AWAY}, Phase.UNREACHABLE, id="the server has gone"),
        pytest.param({"contact": ago(600, 600), "probe": None}, Phase.UNREACHABLE, id="silent, and nothing tried"),
        pytest.param({"contact": ago(10, 600), "probe": AWAY}, Phase.CONNECTED, id="idle, and the server is going"),
        pytest.param(
            {"contact": ago(600, 600), "probe": Probe(reachable=True, time=NOW - 601)},
            Phase.UNREACHABLE,
            id="the server was well before the silence, which says nothing",
        ),
    ],
)
def test_running_node_is_left_alone(changes: dict[str, Any], phase: Phase) -> None:
    verdict = judged(**changes)

    assert verdict.phase is phase
    assert verdict.restart == ""
    assert verdict.startable
    assert verdict.detail


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"contact": ago(SILENT_AFTER_S + 1, 2)}, "not heard", id="heartbeats have stopped"),
        pytest.param({"contact": ago(600, 600)}, "not heard from this node for 600 s", id="all has stopped"),
        pytest.param({"contact": ago(600, 600), "busy": NOW - 1}, "not heard", id="all has stopped, though it trains"),
        pytest.param({"contact": Contact()}, "not heard from this node for 3600 s", id="it never was answered"),
        pytest.param(
            {"started": NOW - SILENT_AFTER_S - 1, "contact": ago(600, 600)}, "not heard", id="it never began to ask"
        ),
        pytest.param({"contact": ago(10, IDLE_AFTER_S + 1)}, "neither asked", id="heartbeats go on without the worker"),
        pytest.param(
            {"contact": ago(10, 1800), "busy": NOW - IDLE_AFTER_S - 1}, "for 121 s", id="it stopped after a task"
        ),
    ],
)
def test_node_that_lives_only_as_a_process_is_started_anew(changes: dict[str, Any], reason: str) -> None:
    verdict = judged(**changes)

    assert verdict.phase is Phase.RESTARTING
    assert reason in verdict.restart
    assert verdict.detail == verdict.restart


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        pytest.param({"contact": ago(10, 10, status=401)}, Phase.REFUSED, id="its key is not known"),
        pytest.param({"contact": ago(10, 10, status=403)}, Phase.REFUSED, id="its key was revoked"),
        pytest.param({"contact": ago(10, 10, status=401), "probe": AWAY}, Phase.REFUSED, id="refused, then away"),
        pytest.param({"contact": ago(10, 10, status=500)}, Phase.STARTING, id="the server failed"),
        pytest.param({"contact": Contact()}, Phase.STARTING, id="it never was started"),
        pytest.param({"contact": Contact(), "probe": None}, Phase.STARTING, id="nothing is known"),
        pytest.param({"contact": Contact(), "probe": AWAY}, Phase.UNREACHABLE, id="there is no way out"),
    ],
)
def test_node_that_has_ended_is_started_whatever_is_said_of_it(changes: dict[str, Any], phase: Phase) -> None:
    verdict = judged(running=False, **changes)

    assert verdict.phase is phase
    assert verdict.startable
    assert verdict.restart == ""


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    ("skew", "skewed", "side"),
    [
        (-LARGEST_LEAD_S, False, ""),
        (-LARGEST_LEAD_S - 0.1, True, "5 s ahead of"),
        (-3600.0, True, "3600 s ahead of"),
        (LARGEST_LAG_S, False, ""),
        (LARGEST_LAG_S + 0.1, True, "305 s behind"),
        (None, False, ""),
    ],
)
def test_clock_is_judged_by_the_window_in_which_flower_takes_signatures(
    running: bool, skew: float | None, skewed: bool, side: str
) -> None:
    verdict = judged(running=running, probe=Probe(reachable=True, clock_skew_s=skew, time=NOW))

    assert (verdict.phase is Phase.CLOCK_SKEWED) is skewed
    assert verdict.startable is not skewed
    assert verdict.restart == ""
    assert side in verdict.detail


def test_window_of_the_clock_is_the_one_of_the_installed_flower() -> None:
    assert (-LARGEST_LEAD_S, LARGEST_LAG_S) == (-SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE)


def test_what_a_person_reads_says_what_to_do() -> None:
    assert "aegis doctor hospital" in judged(contact=ago(600, 600), probe=AWAY).detail
    assert "ConnectError: refused" in judged(contact=ago(600, 600), probe=AWAY).detail
    assert "fingerprint" in judged(running=False, contact=ago(1, 1, status=401)).detail
    assert "NTP" in judged(probe=Probe(reachable=True, clock_skew_s=900.0)).detail


seconds = st.floats(0, 4000)


@given(
    running=st.booleans(),
    answered=seconds,
    pulled=seconds,
    busy=seconds,
    started=seconds,
    status=st.sampled_from([0, 200, 401, 500]),
    tried=st.none() | st.builds(Probe, reachable=st.booleans(), time=seconds.map(lambda ago: NOW - ago)),
)
def test_node_is_started_anew_only_where_the_server_is_known_to_be_well_and_no_task_has_run_for_long(
    running: bool, answered: float, pulled: float, busy: float, started: float, status: int, tried: Probe | None
) -> None:
    contact = ago(answered, pulled, status)

    verdict = judged(running=running, contact=contact, busy=NOW - busy, started=NOW - started, probe=tried)

    if verdict.restart:
        assert running
        assert tried is not None
        assert tried.reachable
        assert min(answered, started) > SILENT_AFTER_S or min(pulled, busy, started) > IDLE_AFTER_S
