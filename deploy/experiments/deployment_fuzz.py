"""Requests that no honest hospital sends, thousands of them, through the edge of a consortium of containers."""

from __future__ import annotations

import asyncio
import base64
import datetime
import random
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

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
_ODD = (
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "//v1/control/list-runs",
    "/v1/fleet/\u00fc",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzed:
    """What came of it.

    Attributes:
        sent: requests.
        statuses: how often each HTTP status came back; 0: none did.
        let_in: requests, in words, that were answered as if all were well.
    """

    sent: int
    statuses: dict[str, int]
    let_in: list[str]


def fuzz(url: str, authority: Path, *, count: int, seed: int) -> Fuzzed:
    """Send `count` malformed or unauthorized requests to the edge at `url`, below the rate that it limits.

    Every one must be refused: paths that are closed, methods that nobody uses, bodies that are none, signatures by keys
    that nobody registered or over other times.

    Args:
        url: `https://127.0.0.1:PORT`.
        authority: PEM file of the consortium's authority.
        count: of requests.
        seed: of every choice.
    """
    return asyncio.run(_fuzz(url, authority, count, random.Random(seed)))  # noqa: S311 - not for secrets


async def _fuzz(url: str, authority: Path, count: int, choice: random.Random) -> Fuzzed:
    key = ec.generate_private_key(ec.SECP384R1())
    statuses: Counter[str] = Counter()
    let_in: list[str] = []
    gate = asyncio.Semaphore(_SIDE_BY_SIDE)
    trusted = ssl.create_default_context(cafile=str(authority))
    async with httpx.AsyncClient(base_url=url, verify=trusted, trust_env=False, timeout=30.0) as client:

        async def send() -> None:
            request = _draw(client, choice, key)
            async with gate:
                try:
                    status = (await client.send(request)).status_code
                except httpx.HTTPError:
                    status = 0
            statuses[str(status)] += 1
            if 200 <= status < 300:
                let_in.append(f"{request.method} {request.url.path}: {status}")

        tasks = []
        for number in range(count):
            tasks.append(asyncio.create_task(send()))
            if number % _PER_SECOND == _PER_SECOND - 1:
                await asyncio.sleep(1.0)
        await asyncio.gather(*tasks)
    return Fuzzed(sent=count, statuses=dict(statuses), let_in=let_in)


def _draw(client: httpx.AsyncClient, choice: random.Random, key: ec.EllipticCurvePrivateKey) -> httpx.Request:
    """Return one request of a random kind."""
    kinds: tuple[Callable[[], tuple[str, str, bytes, dict[str, str]]], ...] = (
        lambda: (choice.choice(_METHODS), choice.choice(_CLOSED), _noise(choice), {}),
        lambda: (choice.choice(_METHODS), choice.choice(_ODD), _noise(choice), {}),
        lambda: ("POST", _fleet(choice), _noise(choice), {}),
        lambda: ("POST", _fleet(choice), _noise(choice), _garbage(choice)),
        lambda: ("POST", _fleet(choice), _noise(choice), _signature(key, choice)),
        lambda: ("POST", _fleet(choice), b"", _signature(key, choice)),
        lambda: (choice.choice(_METHODS[2:]), _fleet(choice), b"", {}),
    )
    method, path, body, headers = choice.choice(kinds)()
    kind = choice.choice(("application/x-protobuf", "application/protobuf", "application/json", "text/plain"))
    return client.build_request(method, path, content=body, headers={"Content-Type": kind, **headers})


def _fleet(choice: random.Random) -> str:
    return f"/v1/fleet/{choice.choice(_FLEET)}"


def _noise(choice: random.Random) -> bytes:
    return choice.randbytes(choice.randrange(_LONGEST))


def _garbage(choice: random.Random) -> dict[str, str]:
    names = (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER)
    return {name: base64.b64encode(choice.randbytes(60)).decode() for name in names}


def _signature(key: ec.EllipticCurvePrivateKey, choice: random.Random) -> dict[str, str]:
    """Return headers with a valid signature by a key that nobody registered, now or at another time."""
    shift = datetime.timedelta(seconds=choice.choice((0, 0, -3600, 3600)))
    timestamp = (datetime.datetime.now(datetime.UTC) + shift).isoformat()
    return {
        FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(public_key_to_bytes(key.public_key())).decode(),
        FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(sign_message(key, timestamp.encode("ascii"))).decode(),
        TIMESTAMP_HEADER: timestamp,
    }
