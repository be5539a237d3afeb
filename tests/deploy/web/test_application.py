"""A page's application: nothing it does not need is on, and every answer carries the headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI, Response
from starlette.types import ASGIApp

from deploy.web.application import answer_page, make_app, secure
from deploy.web.headers import HEADERS
from deploy.web.templates import environment
from tests.deploy.web.answers import ask


@pytest.fixture
def app() -> FastAPI:
    made = make_app()

    @made.get("/boom")
    def boom() -> Response:
        raise ValueError("a secret")

    @made.get("/talkative")
    def talkative() -> Response:
        return Response("x", headers={"Server": "me 1.0", "Cache-Control": "public", "Referrer-Policy": "unsafe-url"})

    return made


@pytest.fixture
def page(app: FastAPI) -> ASGIApp:
    return secure(app, names=["Status.Hospital.example"])


@pytest.mark.parametrize(
    ("path", "method", "host", "status"),
    [
        ("/style.css", "GET", "localhost:8077", 200),
        ("/nowhere", "GET", "localhost:8077", 404),
        ("/style.css", "POST", "localhost:8077", 405),
        ("/boom", "GET", "localhost:8077", 500),
        ("/talkative", "GET", "localhost:8077", 200),
        ("/style.css", "GET", "evil.example", 421),
    ],
)
def test_every_answer_carries_the_security_headers(
    page: ASGIApp, path: str, method: str, host: str, status: int
) -> None:
    answer = ask(page, path, method=method, host=host)

    assert answer.status_code == status
    assert {name: answer.headers.get_list(name) for name in HEADERS} == {
        name: [value] for name, value in HEADERS.items()
    }
    assert "server" not in answer.headers


def test_policy_allows_own_style_and_forms_and_nothing_else(page: ASGIApp) -> None:
    answer = ask(page, "/style.css")

    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    )
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"


def test_error_tells_nothing_of_itself(page: ASGIApp) -> None:
    answer = ask(page, "/boom")

    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9", 200),
        ("127.0.0.1:8077", 200),
        ("[::1]:8077", 200),
        ("status.hospital.example", 200),
        ("status.hospital.example:80", 200),
        ("127.0.0.1.evil.example", 421),
        ("evil.example", 421),
        ("evil.example@localhost", 421),
        ("localhost@evil.example", 421),
        ("localhost/evil.example", 421),
        ("localhost:port", 421),
        ("::1", 421),
        ("[::1", 421),
        ("127.0.0.2", 421),
        ("0.0.0.0", 421),
        ("", 421),
    ],
)
def test_page_answers_to_names_it_knows_and_to_no_other(page: ASGIApp, host: str, status: int) -> None:
    assert ask(page, "/style.css", host=host).status_code == status


def test_page_describes_itself_to_nobody(page: ASGIApp) -> None:
    answers = [ask(page, path).status_code for path in ("/docs", "/redoc", "/openapi.json")]

    assert answers == [404, 404, 404]


def test_style_is_css(page: ASGIApp) -> None:
    answer = ask(page, "/style.css")

    assert answer.headers["content-type"].startswith("text/css")
    assert "prefers-color-scheme: dark" in answer.text


def test_template_escapes_every_value_whatever_its_file_is_called(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "page.txt").write_text(
        "{% extends 'base.html' %}{% block main %}{{ text }}{% endblock %}"
    )

    answer = answer_page(environment(tmp_path).get_template("page.txt"), text="<script>alert('x')</script> & \ud800")

    assert b"&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; ?" in bytes(answer.body)
    assert b"<script" not in bytes(answer.body)


def test_template_with_a_name_that_nobody_gave_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "page.html").write_text("{{ forgotten }}")

    with pytest.raises(Exception, match="'forgotten' is undefined"):
        environment(tmp_path).get_template("page.html").render()
