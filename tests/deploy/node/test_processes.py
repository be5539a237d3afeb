"""Processes that are started, minded and ended, and the log of what they print."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.node import processes
from deploy.node.processes import Child, Kept, ProcessLog

IGNORE = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)"
WAIT = "time.sleep(60)"


def python(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", source, *arguments]


def parent_of(command: list[str]) -> list[str]:
    """Return a command that starts `command` below it."""
    return python(f"import subprocess, time; subprocess.Popen({command!r}); {WAIT}")


def eventually(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Nursery:
    """Starts children that end with the test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "node" / "node.log"
        self.log = ProcessLog(self.path)
        self.children: list[Child] = []

    def start(self, command: Sequence[str], **environment: str) -> Child:
        self.children.append(Child("supernode", command, environment, self.log))
        return self.children[-1]

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def nursery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nursery]:
    monkeypatch.setattr(processes, "_STOP_LIMIT_S", 0.3)
    made = Nursery(tmp_path)
    yield made
    for child in made.children:
        child.stop()
    made.log._handler.close()


def test_everything_that_a_process_prints_is_kept_as_json_lines_with_who_printed_it(nursery: Nursery) -> None:
    child = nursery.start(python("import os, sys; print('out'); sys.stdout.flush(); os.write(2, b'e\\xff\\n')"))

    assert eventually(lambda: not child.running)
    child.stop()

    entries = nursery.entries()
    assert [(entry["from"], entry["line"]) for entry in entries] == [("supernode", "out"), ("supernode", "e\ufffd")]
    assert all(abs(entry["time"] - time.time()) < 60 for entry in entries)
    assert list(child.last_lines) == ["out", "e\ufffd"]


def test_only_the_last_lines_are_remembered(nursery: Nursery) -> None:
    child = nursery.start(python("for number in range(100): print(number)"))

    assert eventually(lambda: len(child.last_lines) == 20 and child.last_lines[-1] == "99")

    assert list(child.last_lines) == [str(number) for number in range(80, 100)]


def test_process_has_the_given_environment_and_no_input(nursery: Nursery) -> None:
    child = nursery.start(
        python("import os, sys; print(os.environ['ONE'], len(os.environ), sys.stdin.read())"), ONE="1"
    )

    assert eventually(lambda: bool(child.last_lines))

    one, count, *_ = child.last_lines[0].split()
    assert one == "1"
    # Python itself may set LC_CTYPE.
    assert int(count) <= 2


def test_log_is_rotated_and_three_older_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_LARGEST_LOG_BYTES", 400)
    log = ProcessLog(tmp_path / "node.log")

    for number in range(100):
        log.write("supernode", f"line {number}")
    log._handler.close()

    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["node.log", "node.log.1", "node.log.2", "node.log.3"]
    assert all(path.stat().st_size <= 400 for path in tmp_path.iterdir())
    newest = (tmp_path / "node.log").read_text().splitlines()[-1]
    assert json.loads(newest)["line"] == "line 99"


def test_full_disk_costs_lines_of_the_log_and_not_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node.log").symlink_to("/dev/full")
    log = ProcessLog(tmp_path / "node.log")

    child = Child("supernode", python("for number in range(3): print(number)"), {}, log)

    assert eventually(lambda: not child.running)
    child.stop()
    with pytest.raises(OSError, match="No space left"):
        log._handler.close()
    assert list(child.last_lines) == ["0", "1", "2"]
    assert capsys.readouterr().err == ""


def test_folder_of_the_log_is_closed_to_others(nursery: Nursery) -> None:
    assert nursery.path.parent.stat().st_mode & 0o777 == 0o700


def test_running_is_said_of_a_living_process_only(nursery: Nursery) -> None:
    child = nursery.start(python("import sys; sys.stdin.read()"))
    other = nursery.start(["sleep", "60"])

    assert eventually(lambda: not child.running)
    assert other.running
    other.stop()
    assert not other.running


def test_process_that_ends_when_asked_is_not_killed(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_STOP_LIMIT_S", 30.0)
    source = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('bye')))"
    child = nursery.start(python(f"{source}; print('ready', flush=True); {WAIT}"))
    assert eventually(lambda: "ready" in child.last_lines)

    child.stop()

    assert list(child.last_lines) == ["ready", "bye"]
    assert child._process.returncode == 0


def test_stop_ends_grandchildren_that_ignore_being_asked(nursery: Nursery) -> None:
    stubborn = python(f"{IGNORE}; {WAIT}")
    child = nursery.start(parent_of(stubborn))
    assert eventually(lambda: "ready" in child.last_lines)
    family = [psutil.Process(child._process.pid), *psutil.Process(child._process.pid).children(recursive=True)]
    assert len(family) == 2

    child.stop()

    assert eventually(lambda: not any(map(is_alive, family)))


def test_process_that_has_ended_is_stopped_without_ado(nursery: Nursery) -> None:
    child = nursery.start(["true"])
    assert eventually(lambda: not child.running)

    child.stop()
    child.stop()

    assert not child.running


def test_command_is_found_any_number_of_generations_below_a_process(nursery: Nursery) -> None:
    below = python(f"import time; print('ready', flush=True); {WAIT}", "/opt/bin/aegis-clientapp", "--token", "t")
    # Taken from the environment, so that it stands in no line above.
    above = python(f"import json, os, subprocess, time; subprocess.Popen(json.loads(os.environ['BELOW'])); {WAIT}")
    child = nursery.start(parent_of(above), BELOW=json.dumps(below))
    assert eventually(lambda: "ready" in child.last_lines)

    found = child.runs_below("aegis-clientapp"), child.runs_below("another-command")
    child.stop()

    assert found == (True, False)
    assert not child.runs_below("aegis-clientapp")


def test_command_in_the_line_of_the_process_itself_is_not_below_it(nursery: Nursery) -> None:
    child = nursery.start(python(f"import time; print('ready', flush=True); {WAIT}", "aegis-clientapp"))
    assert eventually(lambda: "ready" in child.last_lines)

    assert not child.runs_below("aegis-clientapp")


def test_kept_process_is_started_again_some_time_after_it_ended(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[Child] = []

    def start() -> Child:
        children.append(nursery.start(python("pass")))
        return children[-1]

    kept = Kept(start)
    assert eventually(lambda: not children[0].running)
    kept.mind()
    soon = len(children)
    monkeypatch.setattr(processes, "_AGAIN_S", -1.0)
    kept.mind()
    kept.stop()

    assert (soon, len(children)) == (1, 2)


def test_kept_process_that_lives_is_left_alone(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_AGAIN_S", -1.0)
    children: list[Child] = []

    def start() -> Child:
        children.append(nursery.start(python("import time; time.sleep(60)")))
        return children[-1]

    kept = Kept(start)
    kept.mind()
    kept.stop()

    assert len(children) == 1
    assert not children[0].running
