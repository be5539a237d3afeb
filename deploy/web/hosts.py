"""Which names a page answers to: a name that an attacker's own DNS points at this machine is none of them."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class KnownHosts:
    """An ASGI application that lets only requests through which call this machine by a name it knows.

    Guarantee: a browser that was led here under another name (DNS rebinding) gets 421 and nothing of the page.
    Not guaranteed: who asks. A program on the machine, or one that the port is open to, writes any name it likes.
    """

    def __init__(self, app: ASGIApp, *, names: Iterable[str] = ()) -> None:
        """Wrap `app`, which answers to `LOCAL` and to `names`, whatever the port."""
        self._app = app
        self._names = LOCAL | {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and host_name(Headers(scope=scope).get("host", "")) not in self._names:
            refusal = PlainTextResponse("This page does not answer to that name.\n", status_code=421)
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)


def host_name(host: str) -> str:
    """Return the lower-case name in a Host header, without port and brackets; "" where it is none."""
    try:
        parts = urlsplit(f"//{host}")
        usable = parts.netloc == host and "@" not in host
        return (parts.hostname or "") if usable and (parts.port or 0) >= 0 else ""
    except ValueError:
        return ""
