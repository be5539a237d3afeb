"""The coordinator's page: drawn on the server from one look, read-only, and escaped throughout.

Names of runs and reasons of refusals come from files and from hospitals, and are shown as text whatever they hold.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from deploy.coordinator.measures import measure
from deploy.coordinator.overview import Lookout
from deploy.coordinator.view import build_view
from deploy.web.application import answer_page, make_app
from deploy.web.metrics import MEDIA_TYPE, render
from deploy.web.templates import environment
from federation.errors import ConfigurationError

_RELOAD_S = 30


def make_page(lookout: Lookout) -> FastAPI:
    """Return the application that answers /, /runs/NAME, /metrics and /health about what `lookout` sees.

    Guarantee: it answers GET only, and no request changes anything.
    """
    app = make_app()
    templates = environment(Path(__file__).parent)
    page, missing = templates.get_template("coordinator.html"), templates.get_template("missing.html")

    @app.get("/")
    def show_newest(request: Request) -> Response:
        reload_s = 0 if "still" in request.query_params else _RELOAD_S
        return answer_page(page, view=build_view(lookout.look()), reload_s=reload_s)

    @app.get("/runs/{name}")
    def show_run(name: str) -> Response:
        try:
            return answer_page(page, view=build_view(lookout.look(name)), reload_s=0)
        except ConfigurationError:
            return answer_page(missing, status_code=404, name=name)

    @app.get("/metrics")
    def show_metrics() -> Response:
        text = render(measure(lookout.look()))
        return Response(text.encode("utf-8", errors="replace"), media_type=MEDIA_TYPE)

    @app.get("/health")
    def show_health() -> Response:
        return PlainTextResponse("ok\n")

    return app
