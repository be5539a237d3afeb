"""What every answer tells the browser: run nothing, load nothing from elsewhere, keep nothing, be framed by nobody."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-resource-policy": "same-origin",
}
_PAIRS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_REPLACED = frozenset(HEADERS) | {"server"}


class SecurityHeaders:
    """An ASGI application around another one.

    Guarantee: every answer that `app` begins carries `HEADERS` with these values, whatever `app` says, and no `Server`.
    Not guaranteed: answers that `app` never gets to make, those of the HTTP server to malformed requests: run uvicorn
        with server_header=False.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`; this goes outermost, so that errors and refusals carry the headers, too."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [
                    pair for pair in message.get("headers", []) if pair[0].decode("latin-1").lower() not in _REPLACED
                ]
                message = {**message, "headers": kept + _PAIRS}
            await send(message)

        await self._app(scope, receive, send_with_headers)
