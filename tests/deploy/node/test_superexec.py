"""Flower's SuperExec starts the hospital's own ClientApp, whatever kind of task a server asks for."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.proto.task_pb2 import Task
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND, ExecutorType, TaskType
from flwr.supercore.superexec.executor import factory, get_executor
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.plugin import AutoExecPlugin

from deploy.node import superexec

ROOT = Path(__file__).parents[3]


class Ended:
    """A process that has ended."""

    def poll(self) -> int:
        return 0


@pytest.fixture
def argv(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """Yield the command lines that Flower starts; nothing is."""
    started: list[list[str]] = []
    before = dict(TASK_TYPE_TO_COMMAND)

    def start(command: list[str], **_: object) -> Ended:
        started.append(command)
        return Ended()

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(factory, "SubprocessExecutor", SubprocessExecutor)
    monkeypatch.setattr(superexec, "flower_superexec", lambda: None)
    yield started
    TASK_TYPE_TO_COMMAND.update(before)


def launch(kind: TaskType) -> None:
    executor = get_executor(ExecutorType.SUBPROCESS)
    plugin = AutoExecPlugin("127.0.0.1:9094", True, None, executor=executor)
    plugin.launch_task("token", Task(task_id=1, type=kind, fab_hash="0" * 64))


@pytest.mark.parametrize("kind", list(TaskType))
def test_every_kind_of_task_is_answered_by_the_hospitals_own_clientapp(argv: list[list[str]], kind: TaskType) -> None:
    superexec.main()
    launch(kind)

    [[command, *arguments]] = argv
    assert command == superexec.CLIENT_APP_COMMAND
    assert arguments[:5] == ["--runtime-api-address", "127.0.0.1:9094", "--token", "token", "--insecure"]
    assert "--allow-runtime-dependency-installation" not in arguments


def test_flower_as_it_comes_starts_another_command(argv: list[list[str]]) -> None:
    launch(TaskType.CLIENT_APP)

    assert argv[0][0] == "flwr-clientapp"


def test_superexec_runs_once_the_command_is_replaced(argv: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(superexec, "flower_superexec", lambda: seen.append(TASK_TYPE_TO_COMMAND[TaskType.CLIENT_APP]))

    superexec.main()

    assert seen == [superexec.CLIENT_APP_COMMAND]


def test_command_is_installed_with_the_project() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]

    assert scripts[superexec.CLIENT_APP_COMMAND] == "deploy.node.clientapp:main"
