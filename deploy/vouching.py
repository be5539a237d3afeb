"""Starts Flower's process for a task, and vouches for it until it speaks for itself.

Flower takes a task back from a process that has not sent a heartbeat 30 s after it was claimed, and starts another one.
Where Python and its libraries need longer to load, on an old machine or a busy one, processes pile up, each makes the
others slower, and no task is ever answered.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

import httpx
from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest
from flwr.supercore.constant import TASK_TYPE_TO_APPIO_API_ADDRESS_ARG, TASK_TYPE_TO_COMMAND
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor

BEAT_S = 15.0
"""Half of what Flower waits for a claimed task, and a quarter of what it waits after a heartbeat."""

PATIENCE_S = 600.0
"""How long a process may take to load; one that takes longer is taken for dead, as Flower takes it after 30 s."""


class VouchingExecutor(SubprocessExecutor):
    """Flower's executor of local processes, with heartbeats for a process while it loads."""

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Start the process that `spec` describes, and a thread that vouches for it while it lives."""
        output = subprocess.DEVNULL if spec.suppress_output else None
        process = subprocess.Popen(_command(spec), stdout=output, stderr=output)
        arguments = (lambda: process.poll() is None, lambda: _send_heartbeat(spec))
        threading.Thread(target=vouch, args=arguments, daemon=True, name=f"vouch-{spec.task_id}").start()
        return LaunchResult.accepted()


def vouch(
    lives: Callable[[], bool],
    beat: Callable[[], bool],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Send a heartbeat at once and then every `BEAT_S`, while the process lives and loads, and the task is its own.

    The process sends its own, too, once it has loaded; twice as many do no harm.

    Args:
        lives: whether the process has not ended.
        beat: sends a heartbeat; whether the task is still claimed.
        clock: seconds.
        sleep: waits seconds.
    """
    end = clock() + PATIENCE_S
    while lives() and clock() < end and beat():
        sleep(BEAT_S)


def _send_heartbeat(spec: ExecutionSpec) -> bool:
    """Return whether the task is claimed with this token; what cannot be asked counts as yes."""
    client = RuntimeHttpClient.from_server_address(
        server_address=spec.runtime_api_address,
        insecure=spec.insecure,
        root_certificates=spec.root_certificates_path,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="flower-superexec"),
            RuntimeTokenHttpInterceptor(spec.token),
        ],
    )
    try:
        return client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success
    except httpx.HTTPStatusError as error:
        return error.response.is_server_error
    except httpx.TransportError:
        return True
    finally:
        client.close()


def _command(spec: ExecutionSpec) -> list[str]:
    command = [
        TASK_TYPE_TO_COMMAND[spec.task_type],
        TASK_TYPE_TO_APPIO_API_ADDRESS_ARG[spec.task_type],
        spec.runtime_api_address,
        "--token",
        spec.token,
    ]
    if spec.insecure:
        command.append("--insecure")
    elif spec.root_certificates_path is not None:
        command += ["--root-certificates", spec.root_certificates_path]
    return command + (["--parent-pid", str(spec.parent_pid)] if spec.parent_pid is not None else [])
