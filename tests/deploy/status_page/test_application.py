"""The status page as a browser and a monitoring system see it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from starlette.types import ASGIApp

from client_app.site_log import log_failure, log_task
from deploy.node.pause import is_paused, pause
from deploy.node.state import Phase, Restart
from deploy.status_page import application
from deploy.status_page.application import make_status_app
from deploy.status_page.switch import COOKIE
from deploy.web.headers import HEADERS
from federation.errors import SiteErrorCode
from tests.client_app.ledger.place import release
from tests.deploy.status_page.made_up import NOW, Folders, state
from tests.deploy.web.answers import ADDRESS, ask

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'{{ 7 * 7 }}"


@pytest.fixture(autouse=True)
def _no_home(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no policy, the node's state is looked for in the home folder."""
    monkeypatch.setattr("deploy.status_page.observer._default_state_dir", lambda: folders.root / "home")


class Structure(HTMLParser):
    """The tags of a page, in order, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def make_page(folders: Folders) -> ASGIApp:
    return make_status_app(folders.observer(), names=["status.example"], clock=lambda: NOW)


@pytest.fixture
def page(folders: Folders) -> ASGIApp:
    folders.tell(state())
    return make_page(folders)


def open_form(page: ASGIApp, action: str = "pause") -> tuple[str, str]:
    """Cookie and token that a browser has after opening the form."""
    answer = ask(page, f"/{action}")
    (hidden,) = (item for item in Structure(answer.text).named("input") if item.get("type") == "hidden")
    return answer.cookies[COOKIE], hidden["value"] or ""


def press(
    page: ASGIApp, *, action: str = "pause", cookie: str, token: str, typed: str = "north", **changes: Any
) -> httpx.Response:
    fields = {"token": token, "hospital-id": typed}
    headers = {
        "origin": changes.get("origin", ADDRESS),
        "content-type": changes.get("content_type", "application/x-www-form-urlencoded"),
        **({"cookie": f"{COOKIE}={cookie}"} if cookie else {}),
    }
    body = changes.get("body", urlencode(fields).encode())
    return ask(page, f"/{action}", method="POST", headers=headers, content=body)


def test_page_says_how_the_hospital_stands(page: ASGIApp) -> None:
    answer = ask(page, "/")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "Connected to fl.example.org:443; its last answer came 12 s ago." in answer.text
    assert "Models trained: cnn." in answer.text
    assert "an empirical defence, no differential privacy" in answer.text.replace("\n", " ")


def test_every_answer_of_the_page_carries_the_headers(page: ASGIApp) -> None:
    for path in ("/", "/pause", "/resume", "/metrics", "/health", "/style.css", "/nothing"):
        answer = ask(page, path)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, path
        assert "server" not in answer.headers


def test_page_runs_no_script_and_loads_its_own_style_only(page: ASGIApp) -> None:
    found = Structure(ask(page, "/").text)

    assert not {"script", "iframe", "img", "style", "object", "base"} & {tag for tag, _ in found.tags}
    assert [link["href"] for link in found.named("link")] == ["/style.css", "data:,"]
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on") or name == "style"]
    assert {form["method"] for form in found.named("form")} == {"get"}


def test_page_is_ordered_for_those_who_hear_it(page: ASGIApp) -> None:
    text = ask(page, "/").text
    found = Structure(text)

    assert len(found.named("h1")) == 1
    assert found.named("html") == [{"lang": "en"}]
    assert len(found.named("caption")) == len(found.named("table")) > 0
    assert [item["scope"] for item in found.named("th")].count(None) == 0
    assert any(item.get("aria-live") == "polite" and item.get("role") == "status" for item in found.named("div"))
    named = {item["id"] for item in found.named("h2")}
    assert {item["aria-labelledby"] for item in found.named("section")} == named


def test_page_refreshes_itself_until_told_not_to(page: ASGIApp) -> None:
    moving, still = ask(page, "/").text, ask(page, "/?still=1").text

    assert '<meta http-equiv="refresh" content="10">' in moving
    assert "refresh" not in still.partition("</head>")[0]


def test_hostile_texts_stay_texts(folders: Folders) -> None:
    folders.make(data_set="scans", consortium=HOSTILE)
    with folders.open_ledger() as ledger:
        release(ledger, HOSTILE, run_id=HOSTILE, data_set=HOSTILE)
    log_task(folders.state, "north", HOSTILE, model_version=HOSTILE)
    log_failure(folders.state, "north", SiteErrorCode.INTERNAL, ValueError(HOSTILE))
    folders.tell(
        state(
            phase=Phase.REFUSED,
            detail=HOSTILE,
            server=HOSTILE,
            restarts=(Restart(time=NOW - 5, reason=HOSTILE),),
            versions={HOSTILE: HOSTILE},
        )
    )
    pause(folders.state, by=HOSTILE)

    for path in ("/", "/pause", "/resume"):
        text = ask(make_page(folders), path).text
        tags = {tag for tag, _ in Structure(text).tags}
        assert not {"script", "img"} & tags
    shown = ask(make_page(folders), "/").text
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 7
    assert "{{ 7 * 7 }}" in shown


def test_text_that_no_encoding_carries_is_no_error(folders: Folders) -> None:
    folders.tell(state())
    pause(folders.state, by="some\ud800body")

    answer = ask(make_page(folders), "/")

    assert answer.status_code == 200
    assert "by some?body" in answer.text


def test_story_of_an_error_is_not_on_the_page(folders: Folders) -> None:
    log_failure(folders.state, "north", SiteErrorCode.TRAINING_FAILED, ValueError("patient 4711"))

    text = ask(make_page(folders), "/").text

    assert "Local training did not finish." in text
    assert "the log has more" in text
    assert "4711" not in text


def test_page_without_a_single_readable_file_is_no_error(folders: Folders) -> None:
    page = make_page(folders)
    assert ask(page, "/").status_code == 200
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
    folders.tell(state())
    damaged = [path for path in folders.root.rglob("*") if path.is_file()]
    for path in damaged:
        path.write_bytes(b"\xff\x00damaged")

    answers = [ask(page, path) for path in ("/", "/metrics", "/health")]

    assert [answer.status_code for answer in answers] == [200, 200, 503]
    for sentence in ("state file is damaged", "ledger cannot be used", "policy cannot be used", "authority cannot be"):
        assert sentence in answers[0].text


@pytest.mark.parametrize("phase", Phase)
def test_health_is_200_only_where_nobody_need_do_anything(folders: Folders, phase: Phase) -> None:
    folders.tell(state(phase=phase))
    well = phase in (Phase.CONNECTED, Phase.STARTING, Phase.PAUSED)

    answer = ask(make_page(folders), "/health")

    assert answer.status_code == (200 if well else 503)
    assert answer.json() == {"healthy": well, "phase": phase.value, "paused": False}


def test_health_of_an_old_or_missing_state_is_503(folders: Folders) -> None:
    missing = ask(make_page(folders), "/health")
    folders.tell(state(written=NOW - 61))
    old = ask(make_page(folders), "/health")

    assert (missing.status_code, old.status_code) == (503, 503)
    assert missing.json() == old.json() == {"healthy": False, "phase": "unknown", "paused": False}


def test_metrics_are_in_prometheus_own_format(page: ASGIApp) -> None:
    answer = ask(page, "/metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\naegis_node_up 1\n" in answer.text


def test_name_that_an_attackers_dns_points_here_gets_nothing(page: ASGIApp, folders: Folders) -> None:
    cookie, token = open_form(page)

    answers = [
        ask(page, "/", host="evil.example"),
        ask(page, "/metrics", host="evil.example:8077"),
        ask(
            page,
            "/pause",
            method="POST",
            host="evil.example",
            headers={"origin": "http://evil.example", "cookie": f"{COOKIE}={cookie}"},
            data={"token": token, "hospital-id": "north"},
        ),
    ]

    assert [answer.status_code for answer in answers] == [421, 421, 421]
    assert not is_paused(folders.state)
    assert ask(page, "/", host="status.example").status_code == 200


def test_asking_changes_nothing(page: ASGIApp, folders: Folders) -> None:
    for path in ("/pause", "/pause?hospital-id=north", "/resume", "/"):
        ask(page, path)

    assert not is_paused(folders.state)


def test_confirmation_page_demands_the_hospitals_id_and_sets_a_strict_cookie(page: ASGIApp) -> None:
    answer = ask(page, "/pause")

    found = Structure(answer.text)
    assert found.named("form")[0]["method"] == "post"
    assert any(item.get("name") == "hospital-id" and "required" in item for item in found.named("input"))
    assert re.fullmatch(rf"{COOKIE}=[\w-]{{43}}; HttpOnly; Path=/; SameSite=strict", answer.headers["set-cookie"])
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_whole_way_pauses_and_resumes(page: ASGIApp, folders: Folders) -> None:
    cookie, token = open_form(page)
    paused = press(page, cookie=cookie, token=token)
    on = is_paused(folders.state)
    cookie, token = open_form(page, "resume")
    resumed = press(page, action="resume", cookie=cookie, token=token)

    assert (paused.status_code, paused.headers["location"], on) == (303, "/", True)
    assert (resumed.status_code, is_paused(folders.state)) == (303, False)


def test_second_press_leaves_the_first_ones_name_and_time(page: ASGIApp, folders: Folders) -> None:
    pause(folders.state, by="somebody else")
    cookie, token = open_form(page)

    press(page, cookie=cookie, token=token)

    assert "by somebody else" in ask(page, "/").text


@pytest.mark.parametrize("typed", ["", "nort", "North", "north!", "south"])
def test_wrong_id_changes_nothing_and_asks_again(page: ASGIApp, folders: Folders, typed: str) -> None:
    cookie, token = open_form(page)

    answer = press(page, cookie=cookie, token=token, typed=typed)

    assert answer.status_code == 400
    assert "That is not this hospital&#39;s id; nothing was changed." in answer.text
    assert not is_paused(folders.state)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"token": "0" * 64}, 403),
        ({"cookie": ""}, 403),
        ({"cookie": "A" * 43}, 403),
        ({"action": "resume"}, 403),
        ({"content_type": "text/plain"}, 400),
        ({"content_type": "multipart/form-data; boundary=x"}, 400),
        ({"body": b"x" * 5000}, 400),
        ({"body": b""}, 403),
    ],
)
def test_press_that_is_not_this_pages_own_changes_nothing(
    page: ASGIApp, folders: Folders, changes: dict[str, Any], status: int
) -> None:
    cookie, token = open_form(page)
    if changes.get("action") == "resume":
        pause(folders.state, by="x")
    before = is_paused(folders.state)

    answer = press(page, **{"cookie": cookie, "token": token, **changes})

    assert answer.status_code == status
    assert "Nothing was changed" in answer.text
    assert is_paused(folders.state) is before


def test_form_survives_no_restart_of_the_page(page: ASGIApp, folders: Folders) -> None:
    cookie, token = open_form(page)

    answer = press(make_page(folders), cookie=cookie, token=token)

    assert answer.status_code == 403
    assert not is_paused(folders.state)


def test_full_volume_is_said_and_is_no_crash(page: ASGIApp, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(application, "pause", refuse)
    cookie, token = open_form(page)

    answer = press(page, cookie=cookie, token=token)

    assert answer.status_code == 503
    assert "could not be changed (error 28)" in answer.text


def test_switch_without_a_policy_says_what_to_do_instead(folders: Folders) -> None:
    folders.policy.unlink()

    answer = ask(make_page(folders), "/pause")

    assert answer.status_code == 503
    assert "stop the container" in answer.text


def test_switch_works_while_the_policy_is_broken(page: ASGIApp, folders: Folders) -> None:
    cookie, token = open_form(page)
    folders.policy.write_text("broken")

    answer = press(page, cookie=cookie, token=token)

    assert (answer.status_code, is_paused(folders.state)) == (303, True)
