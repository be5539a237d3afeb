"""The guard before the stop switch: only this page's own form, in the browser that was given it, for its own action."""

from __future__ import annotations

import pytest

from deploy.status_page.switch import Action, Form, Guard, parse_form

HEADERS = {"host": "localhost:8077", "origin": "http://localhost:8077"}


def refused(guard: Guard, *, token: str, cookie: str | None, **headers: str) -> str:
    return guard.refusal(Action.PAUSE, Form(token=token, hospital_id="north"), HEADERS | headers, cookie)


def test_own_form_counts() -> None:
    guard = Guard()
    cookie = guard.cookie(None)

    assert refused(guard, token=guard.token(Action.PAUSE, cookie), cookie=cookie) == ""


def test_form_behind_a_proxy_that_speaks_tls_counts() -> None:
    guard = Guard()
    cookie = guard.cookie(None)
    headers = {"host": "status.hospital.example", "origin": "https://status.hospital.example"}

    assert refused(guard, token=guard.token(Action.PAUSE, cookie), cookie=cookie, **headers) == ""


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "http://evil.example",
        "http://localhost:8078",
        "http://localhost",
        "http://localhost:8077.evil.example",
        "http://evil.example#http://localhost:8077",
        "http://x@localhost:8077",
        "file://localhost:8077",
        "http://[",
    ],
)
def test_form_of_another_origin_does_not_count(origin: str) -> None:
    guard = Guard()
    cookie = guard.cookie(None)

    why = refused(guard, token=guard.token(Action.PAUSE, cookie), cookie=cookie, origin=origin)

    assert why == "The form came from another page than this one."


def test_token_of_another_browser_action_or_process_does_not_count() -> None:
    guard, other = Guard(), Guard()
    cookie, foreign = guard.cookie(None), guard.cookie(None)
    tokens = [
        guard.token(Action.PAUSE, foreign),
        guard.token(Action.RESUME, cookie),
        other.token(Action.PAUSE, cookie),
        "",
        "\N{SNOWMAN}",
    ]

    answers = {refused(guard, token=token, cookie=cookie) for token in tokens}

    assert answers == {"The form is older than this page's program, or its cookie is gone."}


@pytest.mark.parametrize("cookie", [None, ""])
def test_form_without_its_cookie_does_not_count(cookie: str | None) -> None:
    guard = Guard()

    assert refused(guard, token=guard.token(Action.PAUSE, ""), cookie=cookie) != ""


def test_cookie_is_kept_if_it_looks_like_ours_and_drawn_anew_if_not() -> None:
    guard = Guard()
    own = guard.cookie(None)

    assert guard.cookie(own) == own
    assert len({guard.cookie(wrong) for wrong in (None, "", "x", own + "x", own[:-1] + ";")}) == 5


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"token=a&hospital-id=+north+", Form(token="a", hospital_id="north")),
        (b"token=a&hospital-id=n%C3%B6rd", Form(token="a", hospital_id="n\N{LATIN SMALL LETTER O WITH DIAERESIS}rd")),
        (b"token=a&token=b&hospital-id=north", Form(token="", hospital_id="north")),
        (b"", Form(token="", hospital_id="")),
        (b"token=%ff", Form(token="", hospital_id="")),
        (b"token=\xff", Form(token="", hospital_id="")),
        (b"&".join(b"x=%d" % number for number in range(99)), Form(token="", hospital_id="")),
    ],
)
def test_form_is_read_and_what_is_none_is_empty(body: bytes, form: Form) -> None:
    assert parse_form(body) == form
