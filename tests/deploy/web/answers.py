"""Asking an application without a network."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
from starlette.types import ASGIApp

ADDRESS = "http://127.0.0.1:8077"


def ask(
    app: ASGIApp, path: str, *, method: str = "GET", host: str = "127.0.0.1:8077", **options: Any
) -> httpx.Response:
    """Return what `app` answers, an error of its own as 500."""

    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        headers = {"host": host, **options.pop("headers", {})}
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            return await client.request(method, path, headers=headers, **options)

    return anyio.run(answer)
