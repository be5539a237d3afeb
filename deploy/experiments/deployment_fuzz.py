"""Requests that no honest hospital sends, thousands of them, through the edge of a consortium of containers."""

from __future__ import annotations

import asyncio
import base64
import datetime
import random
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from federation.errors import ConfigurationError

_Kind = Callable[[], tuple[str, str, bytes, dict[str, str]]]

_FLEET = (
    *(
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
    ),
    *("pull-object", "push-object", "confirm-message-received", "register-node", "unregister-node"),
)
_CLOSED = (
    *("/v1/control/start-run", "/v1/control/list-runs", "/v1/control/register-node", "/v1/control/stop-run"),
    *(
        "/v1/runtime/acquire-task",
        "/v1/runtime/pull-messages",
        "/v1/runtime/push-object",
        "/docs",
        "/openapi.json",
        "/",
    ),
)
_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD")
_PER_SECOND = 90
_SIDE_BY_SIDE = 16
_LONGEST = 4096
# Ways to the closed APIs on which two parsers of paths may disagree; they are sent byte for byte.
_AROUND = (
    *("/v1/fleet/../{0}", "/v1/fleet/x/../../{0}", "/v1/fleet//../{0}", "/v1/fleet/./../{0}", "/v1/fleet/..\\{0}"),
    *("/v1/fleet/%2e%2e/{0}", "/v1/fleet/..%2f{0}", "/v1/fleet/%2e%2e%2f{0}", "/v1/fleet/..%5c{0}"),
    *("/v1/fleet/%252e%252e/{0}", "/v1/fleet/..%252f{0}", "/v1/fleet/%c0%ae%c0%ae/{0}"),
    *("/v1/fleet/..;/{0}", "/v1/fleet/;/../{0}", "/v1/fleet/..%00/{0}", "/v1/fleet/..%3b/{0}"),
    *("//v1/{0}", "/v1//{0}", "/v1/./{0}", "/%761/{0}", "/V1/{0}", "/v1/{0}/", "https://localhost/v1/{0}"),
    # These the edge takes for paths below /v1/fleet/, and it passes them on as they came.
    *("/v1/{0}/../../fleet/x", "/v1/{0}/%2e%2e/%2e%2e/fleet/x", "/v1/{0}%2f..%2f..%2ffleet/x"),
    *("/v1/{0};/../../fleet/x", "/v1/{0}%00/../../fleet/x", "/v1/{0}%3f/../../fleet/x", "/v1/{0}%23/../../fleet/x"),
    *("/v1/{0}?/../../fleet/x", "/v1/{0}#/../../fleet/x"),
)
_BEHIND = ("control/list-runs", "control/start-run", "runtime/acquire-task", "runtime/pull-messages")
_ODD = (*(way.format(name) for way in _AROUND for name in _BEHIND), "/v1/fleet/%c3%bc", "/v1/fleet/%ff")
_WHOLE = {"Content-Type": "application/protobuf"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzed:
    """What came of it.

    Attributes:
        sent: requests.
        answered: those that an HTTP status came back for.
        refused_by_superlink: those that the edge let through and the SuperLink itself refused, in JSON as only it does.
        statuses: how often each HTTP status came back to strangers; 0: none did.
        registered: the same of requests that a registered key had signed and that were malformed.
        let_in: requests of strangers, in words, that were answered as if all were well.
    """

    sent: int
    answered: int
    refused_by_superlink: int
    statuses: dict[str, int]
    registered: dict[str, int]
    let_in: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts answers as they come."""

    statuses: Counter[str] = field(default_factory=Counter)
    registered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    let_in: list[str] = field(default_factory=list)

    def count(self, request: httpx.Request, answer: httpx.Response | None, *, registered: bool) -> None:
        """Count one answer; None where no status came back."""
        status = 0 if answer is None else answer.status_code
        (self.registered if registered else self.statuses)[str(status)] += 1
        if answer is not None and 400 <= status < 500 and _is_superlinks(request, answer):
            self.refused[str(status)] += 1
        if 200 <= status < 300 and not registered:
            self.let_in.append(f"{request.method} {_target(request)}: {status}")

    def sum_up(self) -> Fuzzed:
        """Return what came of all requests that were counted."""
        sent = self.statuses.total() + self.registered.total()
        return Fuzzed(
            sent=sent,
            answered=sent - self.statuses["0"] - self.registered["0"],
            refused_by_superlink=self.refused.total(),
            statuses=dict(+self.statuses),
            registered=dict(+self.registered),
            let_in=self.let_in,
        )


def fuzz(url: str, authority: Path, registered: bytes, *, count: int, seed: int) -> Fuzzed:
    """Send `count` malformed or unauthorized requests to the edge at `url`, below the rate that it limits.

    Every one must be refused: paths that are closed, ways around that, methods that nobody uses, bodies that are none,
    signatures by keys that nobody registered or over other times. Requests with a good signature of a hospital and a
    body that is none may be answered as they please, as long as nothing changes.

    Args:
        url: `https://127.0.0.1:PORT`.
        authority: PEM file of the consortium's authority.
        registered: file of a hospital's private key, in OpenSSH's format.
        count: of requests.
        seed: of every choice.

    Raises:
        ConfigurationError: `registered` is another kind of key.
    """
    own = load_ssh_private_key(registered, password=None)
    if not isinstance(own, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(f"Expected an ECDSA key of a hospital, found {type(own).__name__}.")
    return asyncio.run(_fuzz(url, authority, own, count, random.Random(seed)))  # noqa: S311 - not for secrets


async def _fuzz(
    url: str, authority: Path, own: ec.EllipticCurvePrivateKey, count: int, choice: random.Random
) -> Fuzzed:
    key, tally = ec.generate_private_key(ec.SECP384R1()), Tally()
    gate = asyncio.Semaphore(_SIDE_BY_SIDE)
    trusted = ssl.create_default_context(cafile=str(authority))
    async with httpx.AsyncClient(base_url=url, verify=trusted, trust_env=False, timeout=30.0) as client:

        async def send() -> None:
            request, registered = draw(client, choice, key, own)
            async with gate:
                try:
                    answer: httpx.Response | None = await client.send(request)
                except httpx.HTTPError:
                    answer = None
            tally.count(request, answer, registered=registered)

        tasks = []
        for number in range(count):
            tasks.append(asyncio.create_task(send()))
            if number % _PER_SECOND == _PER_SECOND - 1:
                await asyncio.sleep(1.0)
        await asyncio.gather(*tasks)
    return tally.sum_up()


def draw(
    client: httpx.AsyncClient, choice: random.Random, key: ec.EllipticCurvePrivateKey, own: ec.EllipticCurvePrivateKey
) -> tuple[httpx.Request, bool]:
    """Return one request of a random kind, and whether a registered key, `own`, has signed it.

    Its path goes over the line as it was drawn: a URL's would be put in order first.
    """
    strangers: tuple[_Kind, ...] = (
        lambda: (choice.choice(_METHODS), choice.choice(_CLOSED), _noise(choice), {}),
        lambda: (choice.choice(_METHODS), choice.choice(_ODD), _noise(choice), {}),
        # To most of these an empty body is a whole message: nothing but the edge refuses it.
        lambda: ("POST", choice.choice(_CLOSED), b"", _WHOLE),
        lambda: ("POST", choice.choice(_ODD), b"", _WHOLE),
        lambda: ("POST", _fleet(choice), _noise(choice), {}),
        lambda: ("POST", _fleet(choice), _noise(choice), _garbage(choice)),
        lambda: ("POST", _fleet(choice), _noise(choice), _signature(key, choice)),
        lambda: ("POST", _fleet(choice), b"", _signature(key, choice)),
        lambda: (choice.choice(_METHODS[2:]), _fleet(choice), b"", {}),
    )
    registered: tuple[_Kind, ...] = (
        lambda: ("POST", _fleet(choice), _noise(choice), _signature(own, choice)),
        lambda: ("POST", _fleet(choice), b"", _signature(own, choice)),
        lambda: ("POST", _fleet(choice), _truncated(own, choice), _signature(own, choice)),
    )
    number = choice.randrange(len(strangers) + len(registered))
    method, path, body, headers = (*strangers, *registered)[number]()
    kind = choice.choice(("application/x-protobuf", "application/protobuf", "application/json", "text/plain"))
    every, exact = {"Content-Type": kind, **headers}, {"target": path.encode("ascii")}
    return client.build_request(method, "/", content=body, headers=every, extensions=exact), number >= len(strangers)


def _is_superlinks(request: httpx.Request, answer: httpx.Response) -> bool:
    """Return whether the SuperLink gave this answer: below the path that the edge lets through, and not in HTML."""
    in_json = answer.headers.get("content-type", "").startswith("application/json")
    return _target(request).startswith("/v1/fleet/") and in_json


def _target(request: httpx.Request) -> str:
    """Return the path of a request as it goes over the line."""
    target: bytes = request.extensions.get("target", request.url.raw_path)
    return target.decode("ascii")


def _fleet(choice: random.Random) -> str:
    return f"/v1/fleet/{choice.choice(_FLEET)}"


def _noise(choice: random.Random) -> bytes:
    return choice.randbytes(choice.randrange(_LONGEST))


def _truncated(key: ec.EllipticCurvePrivateKey, choice: random.Random) -> bytes:
    """Return the beginning of the message by which the holder of `key` would come online."""
    whole = ActivateNodeRequest(public_key=public_key_to_bytes(key.public_key()), heartbeat_interval=30.0)
    body = bytes(whole.SerializeToString())
    return body[: choice.randrange(1, len(body))]


def _garbage(choice: random.Random) -> dict[str, str]:
    names = (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER)
    return {name: base64.b64encode(choice.randbytes(60)).decode() for name in names}


def _signature(key: ec.EllipticCurvePrivateKey, choice: random.Random) -> dict[str, str]:
    """Return headers with a valid signature by `key`, now or at another time."""
    shift = datetime.timedelta(seconds=choice.choice((0, 0, -3600, 3600)))
    timestamp = (datetime.datetime.now(datetime.UTC) + shift).isoformat()
    return {
        FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(public_key_to_bytes(key.public_key())).decode(),
        FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(sign_message(key, timestamp.encode("ascii"))).decode(),
        TIMESTAMP_HEADER: timestamp,
    }
