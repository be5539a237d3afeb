"""`aegis node run`: from a kit that cannot be used yet to a node that is told to stop."""

from __future__ import annotations

import errno
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from deploy.node import command
from deploy.node.settings import NodeSettings
from deploy.node.state import NodeState, Phase, read_state
from deploy.status_page.command import status
from tests.deploy.node.made_up_node import PORT, make_settings, write_kit, write_policy

Capsys = pytest.CaptureFixture[str]


class Node:
    """`aegis node run` in this process, without the processes that it starts.

    Attributes:
        happened: what was done, in order.
        page: command line of the status page.
        settings: with which the supervisor was run.
        while_running: called while it is.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.happened, self.page = folder, list[str](), list[str]()
        self.settings: NodeSettings | None = None
        self.while_running: Callable[[threading.Event], None] = lambda stop: None
        self._handlers: dict[int, Callable[[int, None], None]] = {}
        node = self

        class MadeUpSupervisor:
            def __init__(self, settings: NodeSettings) -> None:
                node.settings = settings

            def run(self, stop: threading.Event, beside: Any = None) -> None:
                node.happened.append("supervised")
                node.while_running(stop)

        class MadeUpPage:
            def __init__(self, name: str, line: Sequence[str], environment: Mapping[str, str], log: Any) -> None:
                node.happened.append("page started")
                node.page = list(line)
                log._handler.close()

            def stop(self) -> None:
                node.happened.append("page stopped")

        patch.setattr(command, "Supervisor", MadeUpSupervisor)
        patch.setattr(command, "Child", MadeUpPage)
        patch.setattr(signal, "signal", self._handlers.__setitem__)
        patch.setattr(command, "_RETRY_S", 0.01)
        patch.setenv("HOME", str(folder / "home"))

    def run(self, *arguments: str) -> Result:
        scratch = str(self.folder / "scratch")
        return CliRunner().invoke(
            command.node, ["run", "--kit", str(self.folder / "kit"), "--scratch", scratch, *arguments]
        )

    def send(self, number: int) -> None:
        self._handlers[number](number, None)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    """Yield an event that is set after ten seconds at the latest, so that no failing test waits for ever."""
    event = threading.Event()
    timer = threading.Timer(10, event.set)
    timer.start()
    yield event
    timer.cancel()


def await_state(state_dir: Path, stop: threading.Event) -> NodeState:
    """Return the state once it is written."""
    while not stop.is_set():
        if state := read_state(state_dir):
            return state
        stop.wait(0.01)
    raise AssertionError


def await_settings(folder: Path, stop: threading.Event) -> NodeSettings | None:
    return command._await_settings(folder / "kit", folder / "site.toml", stop, scratch=folder, port=PORT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_node_runs_until_it_is_told_to_stop(node: Node, number: int) -> None:
    write_kit(node.folder / "kit")
    write_policy(node.folder / "kit")
    told: list[bool] = []

    def while_running(stop: threading.Event) -> None:
        told.append(stop.is_set())
        node.send(number)
        told.append(stop.is_set())

    node.while_running = while_running
    result = node.run()

    assert result.exit_code == 0
    assert told == [False, True]
    assert node.happened == ["page started", "supervised", "page stopped"]


def test_settings_are_those_that_were_asked_for(node: Node) -> None:
    write_kit(node.folder / "kit")
    policy = write_policy(node.folder)

    node.run("--policy", str(policy), "--flower-port", "9999")

    assert node.settings is not None
    assert node.settings.policy_path == policy
    assert node.settings.folder == node.folder / "kit"
    assert node.settings.scratch == node.folder / "scratch"
    assert node.settings.port == 9999


def test_page_is_served_for_the_same_kit_and_policy(node: Node) -> None:
    write_kit(node.folder / "kit")
    policy = write_policy(node.folder / "kit")

    node.run("--page-host", "0.0.0.0", "--page-port", "8080")

    assert node.page[:4] == [sys.executable, "-m", "deploy.cli", "status"]
    group: Any = get_command(status)
    with group.commands["serve"].make_context("serve", node.page[5:]) as context:
        assert node.page[4] == "serve"
        assert context.params["policy"] == str(policy)
        assert context.params["kit"] == str(node.folder / "kit")
        assert (context.params["host"], context.params["port"]) == ("0.0.0.0", 8080)


def test_page_may_be_left_out(node: Node) -> None:
    write_kit(node.folder / "kit")
    write_policy(node.folder / "kit")

    node.run("--page-host", "")

    assert node.happened == ["supervised"]


def test_page_ends_with_a_node_that_fails(node: Node) -> None:
    write_kit(node.folder / "kit")
    write_policy(node.folder / "kit")

    def fail(stop: threading.Event) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    node.while_running = fail
    result = node.run()

    assert isinstance(result.exception, OSError)
    assert node.happened[-1] == "page stopped"


def test_page_is_up_while_kit_or_policy_cannot_be_used(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def write_state(_: Path, state: NodeState) -> None:
        seen.append(list(node.happened))
        node.send(signal.SIGTERM)

    monkeypatch.setattr(command, "write_state", write_state)
    result = node.run()

    assert result.exit_code == 0
    assert seen == [["page started"]]
    assert node.happened == ["page started", "page stopped"]


def test_usable_kit_is_taken_at_once(tmp_path: Path, stop: threading.Event) -> None:
    expected = make_settings(tmp_path)

    found = await_settings(tmp_path, stop)

    assert found is not None
    assert (found.kit, found.policy) == (expected.kit, expected.policy)


def test_kit_that_cannot_be_used_is_told_and_read_again(node: Node, tmp_path: Path, stop: threading.Event) -> None:
    policy = write_policy(tmp_path)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(await_settings, tmp_path, stop)
        state = await_state(tmp_path / "state", stop)
        write_kit(tmp_path / "kit")
        settings = waiting.result(10)

    assert settings is not None
    assert settings.policy_path == policy
    assert state.phase is Phase.MISCONFIGURED
    assert "found no kit.toml" in state.detail
    assert set(state.versions) >= {"aegis", "flwr"}


def test_without_a_policy_the_state_lies_where_the_page_looks_for_it_then(
    node: Node, tmp_path: Path, stop: threading.Event
) -> None:
    write_kit(tmp_path / "kit")

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(await_settings, tmp_path, stop)
        state = await_state(tmp_path / "home" / ".aegis", stop)
        stop.set()
        settings = waiting.result(10)

    assert settings is None
    assert "site.toml" in state.detail


def test_what_is_wrong_is_said_once_in_the_log_and_again_when_it_changes(
    node: Node, tmp_path: Path, stop: threading.Event, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    write_policy(tmp_path)
    written: list[NodeState] = []

    def write_state(_: Path, state: NodeState) -> None:
        written.append(state)
        if len(written) == 3:
            (tmp_path / "kit").mkdir()
            (tmp_path / "kit" / "kit.toml").write_text("consortium = 7")
        if len(written) == 6:
            stop.set()

    monkeypatch.setattr(command, "write_state", write_state)
    await_settings(tmp_path, stop)

    details = [json.loads(line)["detail"] for line in capsys.readouterr().out.splitlines()]
    assert len(details) == 2
    assert "found no kit.toml" in details[0]
    assert "hospital-id" in details[1]
    assert len({state.since for state in written}) == 1
    assert [state.written for state in written] == sorted(state.written for state in written)


def test_full_disk_does_not_keep_the_kit_from_being_read_again(
    node: Node, tmp_path: Path, stop: threading.Event, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    write_policy(tmp_path)

    def write_state(_: Path, state: NodeState) -> None:
        write_kit(tmp_path / "kit")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(command, "write_state", write_state)
    settings = await_settings(tmp_path, stop)

    assert settings is not None
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["errno"] == errno.ENOSPC
