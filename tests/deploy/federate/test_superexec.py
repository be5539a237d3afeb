"""The server's SuperExec starts what Flower's would, and vouches for it."""

from __future__ import annotations

import subprocess

import pytest
from flwr.supercore.constant import ExecutorType, TaskType
from flwr.supercore.superexec.executor import ExecutionSpec, factory, get_executor
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor

from deploy import vouching
from deploy.federate import superexec


def test_server_app_is_started_as_flower_would_and_vouched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    monkeypatch.setattr(factory, "SubprocessExecutor", SubprocessExecutor)
    monkeypatch.setattr(superexec, "flower_superexec", lambda: None)
    monkeypatch.setattr(vouching, "vouch", lambda *_: None)
    spec = ExecutionSpec(
        task_type=TaskType.SERVER_APP,
        runtime_api_address="superlink:8000",
        token="token",
        insecure=False,
        root_certificates_path="/etc/aegis/ca.crt",
        runtime_dependency_install=False,
        parent_pid=7,
        suppress_output=True,
        task_id=1,
    )

    get_executor(ExecutorType.SUBPROCESS).launch(spec)
    superexec.main()
    get_executor(ExecutorType.SUBPROCESS).launch(spec)

    assert isinstance(get_executor(ExecutorType.SUBPROCESS), vouching.VouchingExecutor)
    assert started[0] == started[1]
    assert started[1][0] == "flwr-serverapp"
