"""The status page's answers. Reading changes nothing; only the two guarded forms of the stop switch do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from deploy.node.pause import is_paused, pause, resume
from deploy.status_page.connection import is_healthy, phase_of
from deploy.status_page.observer import Observer, Place
from deploy.status_page.samples import sample
from deploy.status_page.switch import COOKIE, FORM_TYPE, LONGEST_FORM_BYTES, Action, Form, Guard, parse_form
from deploy.status_page.view import build_view
from deploy.web.application import answer_page, make_app, secure
from deploy.web.metrics import MEDIA_TYPE, render
from deploy.web.templates import environment

_SYMBOLS = {"good": "\N{CHECK MARK}", "idle": "\N{BULLET}", "warn": "!", "bad": "\N{MULTIPLICATION X}"}
_PRESSED_BY = "status page"


def make_status_app(
    observer: Observer, *, names: Iterable[str] = (), clock: Callable[[], float] = time.time
) -> ASGIApp:
    """Return the page of the hospital that `observer` looks at.

    Args:
        observer: of the hospital.
        names: under which it answers besides localhost.
        clock: says what time it is, in seconds since 1970.
    """
    app = make_app()
    _add_reading(app, observer, clock)
    switch = _Switch(observer)
    for action in Action:
        switch.add(app, action)
    return secure(app, names=names)


def _add_reading(app: FastAPI, observer: Observer, clock: Callable[[], float]) -> None:
    page = environment(Path(__file__).parent).get_template("status.html")

    @app.get("/")
    def status(request: Request) -> Response:
        still = "still" in request.query_params
        return answer_page(page, view=build_view(observer.look(clock())), still=still, symbols=_SYMBOLS)

    @app.get("/health")
    def health() -> Response:
        node, now = observer.node(), clock()
        healthy = is_healthy(node, now)
        content = {"healthy": healthy, "phase": phase_of(node, now), "paused": observer.pause() is not None}
        return JSONResponse(content, status_code=200 if healthy else 503)

    @app.get("/metrics")
    def metrics() -> Response:
        return PlainTextResponse(render(sample(observer.look(clock()))), media_type=MEDIA_TYPE)


class _Switch:
    """The forms of the stop switch: asking for one changes nothing, sending it does, if the guard lets it."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._guard = observer, Guard()
        templates = environment(Path(__file__).parent)
        self._confirm, self._notice = templates.get_template("confirm.html"), templates.get_template("notice.html")

    def add(self, app: FastAPI, action: Action) -> None:
        """Let `app` answer the two requests of `action`."""

        def ask(request: Request) -> Response:
            place = self._observer.place()
            return self._ask(request, action, place) if place else self._unplaced()

        async def press(request: Request) -> Response:
            body = await _read_form(request)
            if body is None:
                return self._refuse("That was not this page's form.", status_code=400)
            return await run_in_threadpool(self._press, request, action, parse_form(body))

        app.get(f"/{action.value}")(ask)
        app.post(f"/{action.value}")(press)

    def _ask(self, request: Request, action: Action, place: Place, *, problem: str = "") -> Response:
        cookie = self._guard.cookie(request.cookies.get(COOKIE))
        values: dict[str, Any] = {
            "action": action,
            "hospital_id": place.hospital_id,
            "token": self._guard.token(action, cookie),
            "problem": problem,
        }
        answer = answer_page(self._confirm, status_code=400 if problem else 200, **values)
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    def _press(self, request: Request, action: Action, form: Form) -> Response:
        if why := self._guard.refusal(action, form, request.headers, request.cookies.get(COOKIE)):
            return self._refuse(why, status_code=403)
        place = self._observer.place()
        if place is None:
            return self._unplaced()
        if form.hospital_id != place.hospital_id:
            return self._ask(request, action, place, problem="That is not this hospital's id; nothing was changed.")
        try:
            _throw(action, place)
        except OSError as error:
            headline = f"The stop switch could not be changed (error {error.errno})."
            sentence = "Look at the state volume and at the room on it. Stopping the container stops the node, too."
            return answer_page(self._notice, status_code=503, headline=headline, sentence=sentence)
        return RedirectResponse("/", status_code=303)

    def _refuse(self, why: str, *, status_code: int) -> Response:
        sentence = f"{why} Go back to the status page and try again from there."
        return answer_page(self._notice, status_code=status_code, headline="Nothing was changed", sentence=sentence)

    def _unplaced(self) -> Response:
        sentence = (
            "The site policy, which says where the stop switch lies, cannot be used. A node cannot run without it "
            "either; to be sure, stop the container."
        )
        return answer_page(self._notice, status_code=503, headline="The stop switch is out of reach", sentence=sentence)


def _throw(action: Action, place: Place) -> None:
    """Put the switch where `action` says; where it is already, who put it there stays written down."""
    if action is Action.RESUME:
        resume(place.state_dir)
    elif not is_paused(place.state_dir):
        pause(place.state_dir, by=_PRESSED_BY)


async def _read_form(request: Request) -> bytes | None:
    """Return the body of a form; None for one that is too long, or of another type than this page's forms have."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        return None
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_FORM_BYTES:
            return None
    return body
