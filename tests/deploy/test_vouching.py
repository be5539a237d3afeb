"""A process that is slow to load keeps its task: without that, Flower starts one more every 30 seconds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.proto.runtime_pb2 import SendTaskHeartbeatResponse
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND, TaskType
from flwr.supercore.corestate import in_memory_corestate
from flwr.supercore.date import now
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.superexec.executor import ExecutionSpec
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from deploy.vouching import BEAT_S, PATIENCE_S, VouchingExecutor, vouch


class FakeClock:
    """Time that passes by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def beats_of(*, dies_at: float = 1e9, taken_at: float = 1e9) -> list[float]:
    """Return when heartbeats are sent for a process that ends, or loses its task, at these times."""
    clock, sent = FakeClock(), []

    def beat() -> bool:
        sent.append(clock.now)
        return clock.now < taken_at

    vouch(lambda: clock.now < dies_at, beat, clock=clock, sleep=clock.sleep)
    return sent


def test_process_is_vouched_for_at_once_and_again_and_again() -> None:
    assert beats_of(dies_at=4 * BEAT_S - 1) == [0, BEAT_S, 2 * BEAT_S, 3 * BEAT_S]


def test_process_that_ended_is_not_vouched_for() -> None:
    assert beats_of(dies_at=0) == []


def test_task_that_is_another_s_or_done_ends_it() -> None:
    assert beats_of(taken_at=2 * BEAT_S) == [0, BEAT_S, 2 * BEAT_S]


def test_process_that_never_loads_is_given_up() -> None:
    assert beats_of()[-1] == PATIENCE_S - BEAT_S


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> tuple[InMemoryNodeState, FakeClock]:
    """Return what a SuperNode keeps its tasks in, by a clock that stands still."""
    clock, start = FakeClock(), now()
    monkeypatch.setattr(in_memory_corestate, "now", lambda: start + timedelta(seconds=clock.now))
    return InMemoryNodeState(ObjectStoreFactory().store()), clock


def test_flower_takes_a_task_back_from_a_process_that_loads_for_longer_than_its_claim(
    state: tuple[InMemoryNodeState, FakeClock],
) -> None:
    tasks, clock = state
    task = tasks.create_task(TaskType.CLIENT_APP, 1)
    assert task is not None
    token = tasks.claim_task(task)
    assert token is not None

    clock.sleep(HEARTBEAT_DEFAULT_INTERVAL + 1)

    assert tasks.get_task_by_token(token) is None


def test_task_stays_with_a_process_that_is_vouched_for(state: tuple[InMemoryNodeState, FakeClock]) -> None:
    tasks, clock = state
    task = tasks.create_task(TaskType.CLIENT_APP, 1)
    assert task is not None
    token = tasks.claim_task(task)
    assert token is not None

    loads_for = 10 * HEARTBEAT_DEFAULT_INTERVAL
    vouch(
        lambda: clock.now < loads_for,
        lambda: tasks.acknowledge_task_heartbeat(task),
        clock=clock,
        sleep=clock.sleep,
    )

    assert clock.now >= loads_for
    assert tasks.get_task_by_token(token) is not None
    assert tasks.activate_task(task)


class Runtime(ThreadingHTTPServer):
    """A Runtime API that takes heartbeats."""

    def __init__(self, *, status: int = 200, claimed: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status, self.claimed = status, claimed
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.arrived = threading.Event()


class _Answer(BaseHTTPRequestHandler):
    server: Runtime

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers)))
        content = SendTaskHeartbeatResponse(success=self.server.claimed).SerializeToString()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/protobuf")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.server.arrived.set()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_started_process_is_vouched_for_with_the_token_of_its_task(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 5\n")
    slow.chmod(0o700)
    monkeypatch.setitem(TASK_TYPE_TO_COMMAND, TaskType.CLIENT_APP, str(slow))
    spec = ExecutionSpec(
        task_type=TaskType.CLIENT_APP,
        runtime_api_address=f"127.0.0.1:{runtime.server_port}",
        token="the-token",
        insecure=True,
        root_certificates_path=None,
        runtime_dependency_install=False,
        parent_pid=None,
        suppress_output=True,
        task_id=1,
        fab_hash=None,
    )

    VouchingExecutor().launch(spec)

    assert runtime.arrived.wait(30)
    path, headers = runtime.seen[0]
    assert path == "/v1/runtime/send-task-heartbeat"
    assert any("the-token" in value for value in headers.values())
