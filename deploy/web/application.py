"""A page's application: Flower's own web framework with everything off that a page does not need."""

from __future__ import annotations

from collections.abc import Iterable

import uvicorn
from fastapi import FastAPI
from jinja2 import Template
from starlette.responses import Response
from starlette.types import ASGIApp

from deploy.web.headers import SecurityHeaders
from deploy.web.hosts import KnownHosts
from deploy.web.static import add_style

_MOST_CONNECTIONS = 64


def make_app() -> FastAPI:
    """Return an application that answers /style.css and describes itself to nobody."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_style(app)
    return app


def secure(app: ASGIApp, *, names: Iterable[str] = ()) -> ASGIApp:
    """Return `app` behind the check of the name it is called by, with the security headers around both."""
    return SecurityHeaders(KnownHosts(app, names=names))


def answer_page(template: Template, *, status_code: int = 200, **values: object) -> Response:
    """Return `template` filled with `values`; what no encoding can carry is shown as a question mark."""
    content = template.render(**values).encode("utf-8", errors="replace")
    return Response(content, status_code=status_code, media_type="text/html; charset=utf-8")


def serve(app: ASGIApp, *, host: str, port: int) -> None:
    """Serve `app` until the process is told to end."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=_MOST_CONNECTIONS,
    )
