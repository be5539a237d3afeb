"""The doors of a consortium of containers, tried from where an attacker would stand; a refusal must be seen to count.

Every attempt ends with a word of its own program: it was refused, or it got through. What ends otherwise, because an
engine, an image or a name failed, is an error and no refusal. Beside the attempts stand controls: the same programs,
aimed where they must get through, or from where they must.
"""

from __future__ import annotations

import functools
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from deploy.experiments.deployment_images import HOSPITAL_IMAGE
from deploy.experiments.deployment_stage import HOSPITALS, HOST, OWNER, Stage, attempt, docker
from deploy.trust.hospital_key import make_key, private_file
from federation.errors import RunFailedError

REFUSED, THROUGH = "REFUSED", "GOT THROUGH"
_A, _B, _ = HOSPITALS
_GUEST = "hospital-guest"
_ENDED_BY_TIMEOUT = 124
_WRONG = "a wrong one of more than enough letters"
_NO_CONNECTION, _NOT_REGISTERED = "Failed to initialize the connection to the SuperLink", "[code: 2004]"
_CONNECTED = "SuperNode ID:"
_CONNECT = """
import socket
try:
    socket.create_connection(({host!r}, {port}), 5).close()
except OSError as error:
    print("REFUSED", error)
else:
    print("GOT THROUGH")
"""
_ASK = """
import ssl, httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.auth import create_superexec_auth_metadata, derive_auth_secret
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
headers = {{"Content-Type": "application/protobuf"}}
headers |= dict(RuntimeVersionMetadata.from_local_component("flower-superexec").as_metadata())
if {secret!r}:
    method = "/flwr.proto.Runtime/AcquireTask"
    wrong = derive_auth_secret({secret!r}.encode())
    headers |= create_superexec_auth_metadata(auth_secret=wrong, method=method, request=AcquireTaskRequest())
trusted = ssl.create_default_context(cafile="/etc/aegis/ca.crt")
through = httpx.Proxy({proxy!r}, ssl_context=trusted) if {proxy!r} else None
usual = dict(headers=headers, verify=trusted, trust_env=False, timeout=30, proxy=through)
answer = httpx.request({method!r}, {url!r}, **usual)
status = answer.status_code
print("REFUSED" if status in {refusals} else "GOT THROUGH" if status < 300 else "UNCLEAR", status)
"""
_LISTENER, _LISTENS_AFTER_S = 9099, 5.0
_ACQUIRE = "https://superlink:8000/v1/runtime/acquire-task"
_EDGE = f"https://{HOST}:8443"
_GATEWAY = ("network", "inspect", "bridge", "-f", "{{(index .IPAM.Config 0).Gateway}}")

Attempt = Callable[[Stage], str]


def open_listener(stage: Stage) -> None:
    """Let something listen on a hospital's network: its own programs do not, and there would be no door to try."""
    docker("exec", "-d", stage.name(_B), "python", "-m", "http.server", str(_LISTENER), "--directory", "/opt")
    threading.Event().wait(_LISTENS_AFTER_S)


@contextmanager
def listening_outside() -> Iterator[tuple[str, int]]:
    """Let this process answer HTTP outside every network of a stage until the block ends; yield address and port.

    The address is this machine's own in the engine's default bridge. Every container whose network has a way out
    reaches it by its default route; a container of internal networks has none, and cannot make one.

    Raises:
        RunFailedError: the engine has no default bridge, or is not on this machine.
    """
    address = docker(*_GATEWAY).strip()
    try:
        server = ThreadingHTTPServer((address, 0), _Answer)
    except OSError as error:
        raise RunFailedError(f"Expected the default bridge's {address!r} to be this machine's: {error}.") from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with server:
        thread.start()
        try:
            yield address, server.server_port
        finally:
            server.shutdown()
            thread.join()


class _Answer(BaseHTTPRequestHandler):
    timeout = 30.0

    def do_GET(self) -> None:
        """Answer that all is well."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object, **__: object) -> None:
        """Say nothing."""


def try_doors(stage: Stage) -> dict[str, str]:
    """Return what came of every attempt by its name: an empty text where it was refused.

    Raises:
        RunFailedError: an attempt ended without a word, or a control did not get through.
    """
    with listening_outside() as (address, port):
        controls, attempts = _ways_out(address, port)
        for name, control in {**_CONTROLS, **controls}.items():
            if not read_word(control(stage)):
                raise RunFailedError(
                    f"Expected the control {name!r} to get through, found {REFUSED}: nothing is shown."
                )
        return {name: read_word(one(stage)) for name, one in {**_ATTEMPTS, **attempts}.items()}


def read_word(said: str) -> str:
    """Return an empty text where a program says that it was refused, and what it says where it got through.

    Raises:
        RunFailedError: it says neither.
    """
    last = said.strip().rpartition("\n")[2]
    if last.startswith(REFUSED):
        return ""
    if last.startswith(THROUGH):
        return last
    raise RunFailedError(f"Expected {REFUSED} or {THROUGH}, found {said[-2000:]!r}: the attempt shows nothing.")


def judge_node(status: int, said: str) -> str:
    """Return in the words of the other attempts what came of a SuperNode that was given a minute.

    Args:
        status: with which it ended; 124 where only the clock ended it.
        said: both its outputs.

    Raises:
        RunFailedError: it was neither refused by the SuperLink for its key nor connected.
    """
    if status not in (0, _ENDED_BY_TIMEOUT) and _NO_CONNECTION in said and _NOT_REGISTERED in said:
        return REFUSED
    if _CONNECTED in said:
        return f"{THROUGH}: the SuperNode was accepted"
    raise RunFailedError(f"Expected a SuperNode to be refused or accepted, found {status}: {said[-2000:]}")


def _connect(stage: Stage, *, service: str, host: str, port: int) -> str:
    """Try a TCP connection from a container; a container is aimed at by address, since its name may just be unknown."""
    address = _address(stage, host) if host in ("superlink", _B) else host
    return stage.execute(service, "python", "-c", _CONNECT.format(host=address, port=port))


def _connect_anew(stage: Stage, *, network: str, host: str, port: int) -> str:
    """Try a TCP connection from a container of its own on a network of the stage."""
    program = _CONNECT.format(host=host, port=port)
    done = _run_once(stage, "control", network, HOSPITAL_IMAGE, "python", "-c", program)
    return f"{done.stderr}\n{done.stdout}"


def _ask(
    stage: Stage,
    *,
    service: str,
    url: str,
    refusals: tuple[int, ...],
    secret: str = "",
    method: str = "POST",
    proxy: str = "",
) -> str:
    """Try a request from a container, and take the statuses in `refusals` for a refusal."""
    program = _ASK.format(url=url, refusals=refusals, secret=secret, method=method, proxy=proxy)
    return stage.execute(service, "python", "-c", program)


def _stranger(stage: Stage) -> str:
    """Start a SuperNode with a key that nobody has registered."""
    key = stage.folder / "stranger"
    if not key.exists():
        key.write_bytes(private_file(make_key()))
        key.chmod(0o644)
    return _start_node(stage, str(key))


def _guest(stage: Stage) -> str:
    """Start a SuperNode with the key of a hospital that is registered and does not run: it must be accepted."""
    if not stage.kit(_GUEST).exists():
        stage.aegis("enrol", "hospital", _GUEST, "--folder", str(stage.consortium))
        stage.hand_over()
        stage.compose("--profile", "enrol", "run", "--rm", "-T", "enrol")
    return _start_node(stage, str(stage.kit(_GUEST) / "node.key"))


def _start_node(stage: Stage, key: str) -> str:
    mounts = ("-v", f"{key}:/key:ro", "-v", f"{stage.consortium / 'ca.crt'}:/ca.crt:ro")
    node = (
        *("flower-supernode", "--superlink", f"{HOST}:8443", "--root-certificates", "/ca.crt"),
        *("--auth-supernode-private-key", "/key", "--max-retries", "1"),
    )
    done = _run_once(stage, "node", _A, *mounts, HOSPITAL_IMAGE, "timeout", "-k", "10", "60", *node)
    return judge_node(done.returncode, done.stdout + done.stderr)


def _run_once(stage: Stage, name: str, network: str, *rest: str) -> subprocess.CompletedProcess[str]:
    """Return how a container on a network of the stage ended, which is gone afterwards whatever happens."""
    name = f"{stage.project}-{name}"
    usual = ("--rm", "--name", name, "--user", str(OWNER), "--network", stage.network(network))
    try:
        return attempt(["docker", "run", *usual, *rest])
    finally:
        attempt(["docker", "rm", "-f", name])


def _address(stage: Stage, service: str) -> str:
    networks = stage.inspect(service)["NetworkSettings"]["Networks"]
    return str(next(iter(networks.values()))["IPAddress"])


def _ways_out(address: str, port: int) -> tuple[dict[str, Attempt], dict[str, Attempt]]:
    """Return controls and attempts that are aimed at what listens outside; the edge itself may reach it."""
    straight = functools.partial(_connect, host=address, port=port)
    by_edge = functools.partial(_ask, service=_A, method="GET", refusals=(404,), proxy=_EDGE)
    controls: dict[str, Attempt] = {
        "the way out of the edge's outer network": functools.partial(
            _connect_anew, network="outside", host=address, port=port
        ),
        "the health check with the edge for a proxy": functools.partial(by_edge, url=f"http://{HOST}/health"),
    }
    attempts: dict[str, Attempt] = {
        "the way out of a hospital's network": functools.partial(straight, service=_A),
        "the way out of the server's network": functools.partial(straight, service="serverapp"),
        "the way out with the edge for a proxy": functools.partial(by_edge, url=f"http://{address}:{port}/"),
    }
    return controls, attempts


_CONTROLS: dict[str, Attempt] = {
    "the edge's port from a hospital's network": functools.partial(_connect, service=_A, host=HOST, port=8443),
    "the SuperLink's port from its own network": functools.partial(
        _connect, service="serverapp", host="superlink", port=8000
    ),
    "another hospital's network from within": functools.partial(_connect, service=_B, host=_B, port=_LISTENER),
    "the health check through the edge": functools.partial(
        _ask, service=_A, url=f"{_EDGE}/health", method="GET", refusals=(404,)
    ),
    "the health check in the server's network": functools.partial(
        _ask, service="serverapp", url="https://superlink:8000/health", method="GET", refusals=(401, 403)
    ),
    "the list of runs in the server's network": functools.partial(
        _ask, service="serverapp", url="https://superlink:8000/v1/control/list-runs", refusals=(401, 403, 404)
    ),
    "a SuperNode with a registered key": _guest,
}
_ATTEMPTS: dict[str, Attempt] = {
    "SuperLink's port from a hospital's network": functools.partial(_connect, service=_A, host="superlink", port=8000),
    "another hospital's network": functools.partial(_connect, service=_A, host=_B, port=_LISTENER),
    "the list of runs through the edge": functools.partial(
        _ask, service=_A, url=f"{_EDGE}/v1/control/list-runs", refusals=(404,)
    ),
    "a task of the server through the edge": functools.partial(
        _ask, service=_A, url=f"{_EDGE}/v1/runtime/acquire-task", refusals=(404,)
    ),
    "a task of the server without the secret": functools.partial(
        _ask, service="serverapp", url=_ACQUIRE, refusals=(401, 403)
    ),
    "a task of the server with a wrong secret": functools.partial(
        _ask,
        service="serverapp",
        url=_ACQUIRE,
        refusals=(401, 403),
        secret=_WRONG,
    ),
    "a SuperNode with an unregistered key": _stranger,
}
