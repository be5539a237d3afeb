"""A hospital's node through good and bad days: what is started and ended, and what the state file says of it."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deploy.node import supervisor
from deploy.node.pause import pause, resume
from deploy.node.state import NodeState, Phase, read_state, server_certificate_path
from tests.deploy.node.made_up_world import BEGIN, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def connected(world: World) -> World:
    world.pass_time(5)
    assert world.state.phase is Phase.CONNECTED
    return world


def test_supernode_is_started_and_then_its_superexec(world: World) -> None:
    world.answering = False

    world.pass_time(2)

    node, superexec = world.children
    assert (node.name, node.command) == ("supernode", world.settings.supernode_command())
    assert (superexec.name, superexec.command) == ("superexec", world.settings.superexec_command())
    assert node.environment == superexec.environment == world.settings.environment()
    assert world.state.phase is Phase.STARTING


def test_node_is_connected_once_the_server_has_answered_it(world: World) -> None:
    world.answering = False
    world.pass_time(30)
    before = world.state.phase

    world.answering = True
    world.pass_time(2)

    assert before is Phase.STARTING
    assert world.state.phase is Phase.CONNECTED
    assert world.running == ["supernode", "superexec"]


def test_state_says_all_that_is_known(connected: World) -> None:
    connected.skew = 1.5
    connected.pass_time(60)

    state = connected.state
    assert state.server == "federation.example:8443"
    assert state.started == BEGIN
    assert BEGIN < state.since < BEGIN + 5
    assert state.detail == "The server answers this node."
    assert state.last_contact is not None
    assert 0 <= connected.now - state.last_contact <= 11
    assert state.clock_skew_s == 1.5
    assert state.restarts == ()
    assert set(state.versions) >= {"aegis", "flwr", "torch", "python"}


def test_state_is_written_again_every_ten_seconds_though_nothing_changes(connected: World) -> None:
    writings = set()

    for _ in range(60):
        connected.pass_time()
        writings.add(connected.state.written)

    assert 5 <= len(writings) <= 7


def test_way_to_the_server_is_tried_more_often_while_it_is_closed(connected: World) -> None:
    connected.probed.clear()
    connected.pass_time(120)
    well = len(connected.probed)
    connected.reachable = False
    connected.pass_time(120)
    connected.probed.clear()
    connected.pass_time(120)

    assert 3 <= well <= 5
    assert 10 <= len(connected.probed) <= 12


def test_zombie_is_started_anew_and_the_restart_is_noted(connected: World) -> None:
    zombie = connected.node
    connected.answering = False
    connected.pass_time(130, until=lambda: zombie.stopped)
    stopped = connected.now

    connected.answering = True
    connected.pass_time(5)

    assert zombie.stopped
    assert stopped - BEGIN < 130
    assert connected.node is not zombie
    assert connected.running == ["supernode", "superexec"]
    assert connected.state.phase is Phase.CONNECTED
    [restart] = connected.state.restarts
    assert "has not heard from this node" in restart.reason
    assert restart.time == pytest.approx(stopped, abs=2)


def test_restarting_is_a_phase_of_its_own(connected: World) -> None:
    connected.answering = False

    connected.pass_time(130, until=lambda: connected.node.stopped)

    assert connected.state.phase is Phase.RESTARTING


def test_node_whose_worker_is_wedged_is_started_anew(connected: World) -> None:
    wedged = connected.node
    connected.asking = False

    connected.pass_time(140, until=lambda: wedged.stopped)

    assert wedged.stopped
    assert "neither asked for a task nor worked on one" in connected.state.restarts[0].reason


def test_task_that_runs_for_long_is_left_in_peace(connected: World) -> None:
    connected.superexec.below, connected.asking = True, False

    connected.pass_time(400)

    assert len(connected.children) == 2
    assert connected.state.phase is Phase.CONNECTED


def test_node_that_asks_for_nothing_after_its_task_is_started_anew(connected: World) -> None:
    connected.superexec.below, connected.asking = True, False
    connected.pass_time(150)

    connected.superexec.below = False
    connected.pass_time(110)
    before = len(connected.state.restarts)
    connected.pass_time(20)

    assert (before, len(connected.state.restarts)) == (0, 1)


def test_node_is_kept_for_as_long_as_the_server_is_away(connected: World) -> None:
    connected.reachable = False
    connected.pass_time(400)

    assert connected.state.phase is Phase.UNREACHABLE
    assert connected.running == ["supernode", "superexec"]
    assert connected.state.restarts == ()


def test_last_contact_outlives_a_restart(connected: World) -> None:
    heard = connected.now
    connected.answering = False

    connected.pass_time(140)

    assert len(connected.all("supernode")) == 2
    assert connected.state.last_contact == pytest.approx(heard, abs=2)


@pytest.mark.parametrize("status", [401, 403, 412])
def test_refused_node_is_said_to_be_refused_until_it_is_tried_again(world: World, status: int) -> None:
    world.answering = False
    phases: list[Phase] = []

    for _ in range(600):
        world.pass_time()
        if world.running and world.now - world.node.started >= 5:
            world.note(status=status)
            world.node.end("ERROR Node not registered")
        phases.append(world.state.phase)

    assert len(world.all("supernode")) > 5
    assert phases.count(Phase.REFUSED) > 500
    assert "fingerprint" in world.state.detail


def test_supernode_that_ends_is_started_again_with_pauses_that_grow(world: World) -> None:
    for _ in range(400):
        world.pass_time()
        for child in world.all("supernode"):
            child.end("", "ERROR the disk is on fire", "  ")

    starts = [child.started for child in world.all("supernode")]
    pauses = [after - before for before, after in pairwise(starts)]
    assert pauses[:6] == [2, 6, 16, 31, 61, 61]
    assert world.state.restarts[0].reason == "The SuperNode ended with code 1; node.log has its last words."
    assert world.state.phase is Phase.RESTARTING
    assert "keeps ending" in world.state.detail
    assert len(world.state.restarts) == len(world.all("supernode"))


def test_pauses_are_short_again_after_a_steady_time(world: World) -> None:
    for _ in range(60):
        world.pass_time()
        world.node.end()
    world.pass_time(120)
    assert world.running
    world.pass_time(310)

    world.node.end("again")
    ended = world.now
    world.pass_time(10)

    assert 0 < world.node.started - ended <= 2


def test_node_is_started_anew_when_its_superexec_ends_and_waits_longer_each_time(connected: World) -> None:
    starts = []
    for _ in range(3):
        connected.superexec.end()
        connected.pass_time(90)
        starts.append(len(connected.all("supernode")))

    assert starts == [2, 3, 4]
    assert connected.running == ["supernode", "superexec"]
    assert "SuperExec" in connected.state.restarts[-1].reason


def test_superexec_of_a_supernode_that_ended_ends_with_it(connected: World) -> None:
    old = connected.superexec

    connected.node.end()
    connected.pass_time(1)

    assert old.stopped


def test_every_supernode_has_a_secret_of_its_own_that_nobody_else_reads(world: World) -> None:
    secrets = []

    for _ in range(30):
        world.pass_time()
        if world.running:
            secrets.append(world.settings.secret_file.read_text())
            assert world.settings.secret_file.stat().st_mode & 0o777 == 0o600
            world.node.end()

    assert len(secrets) == len(set(secrets)) == len(world.all("supernode"))
    assert len(secrets) >= 3
    assert all(len(bytes.fromhex(secret)) == 32 for secret in secrets)


def test_contact_of_the_supernode_before_is_none_of_the_next(world: World) -> None:
    world.answering = False
    world.note(answered=world.now + 5, pulled=world.now + 5, status=200)

    world.pass_time(10)

    assert world.state.phase is Phase.STARTING


def test_pause_ends_everything_within_one_step_and_resume_begins_anew(connected: World) -> None:
    pause(connected.settings.state_dir, by="the physician")
    connected.pass_time(1)
    paused, running = connected.state, connected.running
    connected.pass_time(100)
    still = connected.running
    resume(connected.settings.state_dir)
    connected.pass_time(5)

    assert paused.phase is Phase.PAUSED
    assert "aegis status resume" in paused.detail
    assert running == still == []
    assert connected.running == ["supernode", "superexec"]
    assert connected.state.phase is Phase.CONNECTED
    assert connected.state.restarts == ()


def test_hospital_that_was_paused_before_it_came_up_starts_nothing(world: World) -> None:
    pause(world.settings.state_dir, by="the physician")

    world.pass_time(10)

    assert world.children == []
    assert world.probed == []


def test_skewed_clock_ends_the_node_until_it_is_set(connected: World) -> None:
    connected.skew = -400.0
    connected.pass_time(40)
    skewed, running = connected.state, connected.running
    connected.skew = 0.0
    connected.pass_time(20)

    assert skewed.phase is Phase.CLOCK_SKEWED
    assert skewed.clock_skew_s == -400.0
    assert running == []
    assert connected.state.phase is Phase.CONNECTED


def test_clock_that_is_set_back_by_an_hour_is_noticed_at_once(world: World) -> None:
    world.skew = -3600.0
    world.pass_time(60)
    skewed = world.state.phase

    world.now -= 3600
    world.skew = 0.0
    world.pass_time(10)

    assert skewed is Phase.CLOCK_SKEWED
    assert world.state.phase is Phase.CONNECTED
    assert world.state.written <= world.now


def test_clock_that_is_set_back_does_not_keep_the_state_from_being_written(world: World) -> None:
    world.reachable = False
    world.pass_time(60)

    world.now -= 3600
    world.pass_time(2)

    assert world.state.written <= world.now


def test_node_that_goes_on_while_the_clock_is_set_back_is_minded_as_before(connected: World) -> None:
    connected.reachable = False
    connected.pass_time(100)
    connected.now -= 3600
    connected.reachable = True
    connected.pass_time(20)
    phase, node = connected.state.phase, connected.node

    connected.answering = False
    connected.pass_time(130)

    assert phase is Phase.CONNECTED
    assert node.stopped


def test_clock_that_is_set_back_does_not_prolong_a_pause(world: World) -> None:
    world.pass_time(2)
    world.node.end()
    world.pass_time(1)

    world.now -= 3600
    world.pass_time(3)

    assert world.running


def test_full_disk_does_not_end_the_node(
    connected: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write_state(_: Path, state: NodeState) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(supervisor, "write_state", write_state)
        connected.pass_time(60)
    during = connected.running
    connected.pass_time(11)

    assert during == ["supernode", "superexec"]
    assert {"event": "state-not-written", "errno": errno.ENOSPC}.items() <= _events(capsys)[-1].items()
    assert connected.now - connected.state.written < 12


def test_changes_of_phase_are_said_once_in_the_containers_log(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.pass_time(120)

    events = _events(capsys)
    assert [event["phase"] for event in events if event["event"] == "phase"] == ["connected"]
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)


def test_restarts_are_said_in_the_containers_log(connected: World, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()

    connected.node.end("ERROR so")
    connected.pass_time(1)

    assert [event["reason"] for event in _events(capsys) if event["event"] == "restart"] == [
        "The SuperNode ended with code 1; node.log has its last words."
    ]


def test_last_words_of_a_supernode_which_may_be_the_servers_are_not_shown(connected: World) -> None:
    connected.node.end("call this number")

    connected.pass_time(1)

    assert "number" not in connected.state.model_dump_json()


def test_newest_restarts_are_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_WAITS_S", (0.0,))

    for number in range(30):
        world.pass_time()
        world.node.end()
        world.node.exit_code = number
    world.pass_time()

    assert [restart.reason for restart in world.state.restarts] == [
        f"The SuperNode ended with code {number}; node.log has its last words." for number in range(10, 30)
    ]
    assert len(world.supervisor._restarts) == 20


def test_node_that_is_stopped_ends_its_processes_and_says_so(world: World) -> None:
    folders: list[int] = []

    world.run(10, at_each=lambda: folders.append((world.settings.scratch / "flower").stat().st_mode & 0o777))

    assert folders == [0o700] * 10
    assert [child.name for child in world.children] == ["supernode", "superexec"]
    assert all(child.stopped for child in world.children)
    assert world.state.phase is Phase.STOPPED


def test_error_within_the_loop_ends_the_processes_before_it_ends_the_node(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        if len(world.children) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        world.run(10, at_each=fail)

    assert world.running == []
    assert world.state.phase is Phase.STOPPED


def test_contact_of_an_earlier_supervisor_counts_for_nothing(world: World) -> None:
    pause(world.settings.state_dir, by="the physician")
    world.note(answered=BEGIN - 60, status=401)

    world.run(1)

    assert world.state.last_contact is None


def test_supervisor_that_has_not_stepped_has_written_nothing(world: World) -> None:
    assert read_state(world.settings.state_dir) is None
    assert world.children == []


def _events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_certificate_that_the_server_shows_is_kept_for_the_page_and_renewed_with_it(connected: World) -> None:
    path = server_certificate_path(connected.settings.state_dir)
    seen = []

    for shown in ("first", "first", "", "second"):
        connected.certificate = shown
        connected.pass_time(40)
        seen.append(path.read_text())

    assert seen == ["first", "first", "first", "second"]


def test_clock_that_is_set_ahead_ends_no_node_that_works(connected: World) -> None:
    connected.answering = False
    connected.pass_time(10)

    connected.now += 600
    connected.pass_time(60)
    connected.answering = True
    connected.pass_time(300)

    assert connected.state.restarts == ()
    assert connected.state.phase is Phase.CONNECTED


def test_node_that_stays_silent_after_the_clock_was_set_is_started_anew(connected: World) -> None:
    connected.answering = False
    connected.now += 600

    connected.pass_time(300)

    assert len(connected.state.restarts) >= 1
