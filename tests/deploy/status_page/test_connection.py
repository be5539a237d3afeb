"""The one sentence at the top, and when it is well."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.node.state import NodeState, Phase
from deploy.status_page.connection import Mood, describe, is_healthy, phase_of, say_skew
from deploy.status_page.observer import Fault, Pause
from tests.deploy.status_page.made_up import NOW, state


@pytest.mark.parametrize(
    ("changes", "mood", "headline"),
    [
        ({}, Mood.GOOD, "Connected to fl.example.org:443; its last answer came 12 s ago."),
        (
            {"phase": Phase.STARTING, "last_contact": None},
            Mood.IDLE,
            "Starting; no answer yet from fl.example.org:443.",
        ),
        (
            {"phase": Phase.UNREACHABLE, "last_contact": NOW - 300},
            Mood.BAD,
            "Not connected: fl.example.org:443 cannot be reached; its last answer came 5 min ago.",
        ),
        ({"phase": Phase.REFUSED}, Mood.BAD, "Not connected: fl.example.org:443 refuses this hospital."),
        (
            {"phase": Phase.CLOCK_SKEWED, "clock_skew_s": -41.0},
            Mood.BAD,
            "Not connected: this machine's clock is 41 s ahead of the server's.",
        ),
        ({"phase": Phase.MISCONFIGURED}, Mood.BAD, "Not connected: the kit or the site policy cannot be used."),
        (
            {"phase": Phase.RESTARTING},
            Mood.WARN,
            "Starting anew; its last answer came 12 s ago from fl.example.org:443.",
        ),
        ({"phase": Phase.PAUSED}, Mood.IDLE, "Resumed; the node starts within seconds."),
        (
            {"phase": Phase.STOPPED},
            Mood.WARN,
            "Stopped: the node was told to end. Nothing leaves until it is started.",
        ),
    ],
)
def test_every_phase_is_one_sentence(changes: dict[str, Any], mood: Mood, headline: str) -> None:
    found = describe(state(**changes), None, NOW)

    assert (found.mood, found.headline) == (mood, headline)
    assert found.phase == changes.get("phase", Phase.CONNECTED)


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_is_described(phase: Phase) -> None:
    assert describe(state(phase=phase), None, NOW).headline.endswith(".")


def test_detail_says_what_to_do_unless_all_is_well() -> None:
    unwell = describe(state(phase=Phase.REFUSED, detail="Ask the coordinator."), None, NOW)
    well = describe(state(detail="The server answers."), None, NOW)

    assert (unwell.details, well.details) == (("Ask the coordinator.",), ())


@pytest.mark.parametrize("age", [61, 3600, -61])
def test_state_older_than_a_minute_is_unknown(age: float) -> None:
    found = describe(state(written=NOW - age, detail="So it was."), None, NOW)

    assert (found.phase, found.mood) == ("unknown", Mood.BAD)
    assert found.headline.startswith("Not known.")
    assert "connected. So it was." in found.details[0]


def test_state_from_the_future_blames_the_clock() -> None:
    assert "clock was set back" in describe(state(written=NOW + 120), None, NOW).headline


def test_nothing_known_is_said() -> None:
    never = describe(None, None, NOW)
    damaged = describe(Fault(sentence="The file is damaged."), None, NOW)

    assert never.headline == "No node has run here yet: nothing is sent and nothing received."
    assert damaged.headline == "Not known. The file is damaged."
    assert (never.phase, damaged.phase) == ("unknown", "unknown")


def test_pause_comes_before_everything_and_says_who_and_since_when() -> None:
    found = describe(state(phase=Phase.PAUSED), Pause(since=NOW - 90, by="status page"), NOW)

    assert found.headline == "Paused by this hospital: nothing leaves it until somebody resumes it."
    assert found.details == ("Since 2027-01-15 07:58:30 UTC (1 min ago) by status page.",)
    assert (found.phase, found.mood) == ("paused", Mood.IDLE)


def test_pause_that_has_not_reached_the_node_is_not_called_done() -> None:
    found = describe(state(), Pause(), NOW)

    assert found.headline == "Pausing: the node is stopped within seconds."


@pytest.mark.parametrize("node", [None, Fault(sentence="?"), state(written=NOW - 300)])
def test_pause_without_a_supervisor_says_so(node: NodeState | Fault | None) -> None:
    found = describe(node, Pause(), NOW)

    assert found.mood is Mood.WARN
    assert "has not said within the last minute" in found.details[-1]


@pytest.mark.parametrize("phase", Phase)
def test_health_is_a_fresh_state_that_needs_nobody(phase: Phase) -> None:
    well = phase in (Phase.CONNECTED, Phase.STARTING, Phase.PAUSED)

    assert is_healthy(state(phase=phase), NOW) is well
    assert not is_healthy(state(phase=phase, written=NOW - 61), NOW)


def test_unknown_state_is_not_healthy() -> None:
    assert not is_healthy(None, NOW)
    assert not is_healthy(Fault(sentence="?"), NOW)
    assert (phase_of(None, NOW), phase_of(state(), NOW + 90)) == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("skew", "words"),
    [
        (0.6, "less than a second apart"),
        (-0.6, "less than a second apart"),
        (7.2, "this machine's clock is 7 s behind the server's"),
        (-7.2, "this machine's clock is 7 s ahead of the server's"),
    ],
)
def test_skew_says_which_clock_is_late(skew: float, words: str) -> None:
    assert say_skew(skew) == words
