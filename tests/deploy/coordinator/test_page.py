"""The page: what it shows in every state, that it changes nothing, and that no name gets out of its place."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial
from html import escape, unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.coordinator import view
from deploy.coordinator.budgets import Budget
from deploy.coordinator.page import make_page
from deploy.coordinator.superlink import Answer
from deploy.web.application import secure
from deploy.web.headers import HEADERS
from tests.deploy.coordinator.made_up import (
    HOSTILE,
    NOW,
    answer,
    evaluation,
    event,
    hospital,
    lookout,
    step,
    write_consortium,
    write_run,
)
from tests.deploy.web.answers import ask
from tests.doubles import Hospitals
from tests.server_app.runs import run, seconds


def client(folder: Path, said: Answer | None = None) -> Callable[..., httpx.Response]:
    return partial(ask, secure(make_page(lookout(folder, said))))


def text_of(html: str) -> str:
    """Return what a reader sees, with single blanks."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html.partition("</head>")[2])).split())


def show(folder: Path, said: Answer | None = None, path: str = "/") -> str:
    answered = client(folder, said)(path)
    assert answered.status_code == 200
    return text_of(answered.text)


def tree(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}" for path in files}


def test_consortium_without_a_run(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"), name="Heart & Lungs")

    text = show(tmp_path, answer(a="registered"))

    assert "Heart & Lungs Hospitals connect to fl.example.org:8443." in text
    assert "a never connected" in text
    assert "There is no run yet." in text


def test_run_in_progress(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"), hospital("b"))
    events = [
        event("start", 0),
        event("enrol", 1, hospital="a", examples=1234),
        event("dispatch", 1, task="train", hospital="a", version=0, number=1),
        event("update", 10, hospital="a"),
        step(20, 1, a=2),
        event("refusal", 40, hospital="b", reason="site-error:policy-model"),
        evaluation(50, 1, 0.75, a=0.5, b=0.25),
    ]
    write_run(tmp_path / "runs", "lungs", events, age_s=120, aggregation__rounds=30)

    text = show(tmp_path, answer(a="online", b="online"))

    assert "Run lungs in progress last event 2 min ago" in text
    assert "Model version 1 of 30 planned" in text
    assert "Accuracy 0.750 on the server's images" in text
    assert "Accuracy at the worst hospital 0.250 b" in text
    assert "Staleness 2.00 versions on average, at most 2" in text
    assert "a 1 234 1 of 1 2.00 0" in text
    assert "site-error:policy-model 1 0" in text
    assert "a online for 5 h 3 s ago" in text


def test_half_written_last_line_is_not_shown_until_it_is_whole(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium")
    whole = [event("start", 0), step(1, 1, a=0)]
    write_run(tmp_path / "runs", "lungs", whole, tail='{"event": "apply", "wall_s": 2, "version": 2')
    page = client(tmp_path)
    before = text_of(page("/").text)

    write_run(tmp_path / "runs", "lungs", [*whole, step(2, 2, a=0)])
    after = text_of(page("/").text)

    assert "Model version 1 " in before
    assert "no events" not in before
    assert "Model version 2 " in after


def test_failed_run_says_why(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium")
    end = event("finish", 9, status="failed", reason="Expected 3 hospitals, found 1.")
    write_run(tmp_path / "runs", "lungs", [event("start", 0), end])

    text = show(tmp_path)

    assert "Run lungs failed" in text
    assert "It failed: Expected 3 hospitals, found 1." in text


def test_silent_superlink_is_told_and_the_run_is_shown_all_the_same(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"))
    write_run(tmp_path / "runs", "lungs", [event("start", 0), step(1, 7, a=0)])

    text = show(tmp_path, Answer(asked_at=NOW, failure="The SuperLink was not reached: no route."))

    assert "superlink The SuperLink was not reached: no route." in text
    assert "a unknown" in text
    assert "Model version 7" in text


def test_revoked_hospital_is_shown_as_such(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("out", revoked="2026-05-01"))

    assert "out revoked on 2026-05-01" in show(tmp_path, answer(out="unregistered"))


def test_budgets_are_shown_as_the_mirror_has_them(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "privacy__mechanism": "update-gaussian",
        "aggregation__rounds": 3,
        "run__hospital_evaluation": False,
    }
    run(tmp_path / "runs", seconds(5, 5), Hospitals(caps={0: 0.4}), **settings)

    text = show(tmp_path)

    assert re.search(r"hospital-000 budget spent 10 .* 0\.400 at \u03b4 = 1e-05 100 % 0\.000", text)
    assert re.search(r"hospital-001 10 .* 0\.600 at \u03b4 = 1e-05 8 % 7\.(399|400)", text)


@pytest.mark.parametrize(
    ("budget", "spent", "left"),
    [
        (Budget(spent=1.0001, cap=8.0, delta=1e-5, paused=False, holds=True), "1.001", "6.999"),
        (Budget(spent=1.0, cap=8.0, delta=1e-5, paused=False, holds=True), "1.000", "7.000"),
        (Budget(spent=8.5, cap=8.0, delta=1e-5, paused=True, holds=True), "8.500", "0.000"),
        (Budget(spent=1.0, cap=8.0, delta=1e-5, paused=False, holds=False), "no guarantee", "\u2013"),
        (None, "\u2013", "\u2013"),
    ],
)
def test_spent_is_rounded_up_and_left_rounded_down(budget: Budget | None, spent: str, left: str) -> None:
    assert (view._spent(budget).text, view._left(budget).text) == (spent, left)


def test_hospital_without_an_update_is_silent_only_once_the_run_has_ended(tmp_path: Path) -> None:
    begun = [event("start", 0), event("enrol", 1, hospital="a", examples=3)]
    write_run(tmp_path / "runs", "going", begun)
    write_run(tmp_path / "runs", "ended", [*begun, event("finish", 9, status="stopped", reason="")])

    assert "a silent 3" not in show(tmp_path, path="/runs/going")
    assert "a silent 3" in show(tmp_path, path="/runs/ended")


def test_older_run_is_shown_when_it_is_asked_for(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "old", [event("start", 0), step(1, 3, a=0)], age_s=900)
    write_run(tmp_path / "runs", "new", [event("start", 0), step(1, 9, a=0)], age_s=60)

    assert "Run new in progress" in show(tmp_path)
    assert "Run old in progress" in show(tmp_path, path="/runs/old")


@pytest.mark.parametrize("name", ["nothing", "...", "%2e%2e%2fsecret", "..%2fsecret", "%2fetc", "a%00b", "x" * 500])
def test_unknown_run_is_not_found(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "runs", "new", [event("start", 0)])
    write_run(tmp_path, "secret", [event("start", 0), step(1, 42, a=0)])

    answered = client(tmp_path)(f"/runs/{name}")

    assert answered.status_code == 404
    assert "version 42" not in answered.text


def test_hostile_names_and_reasons_are_shown_as_text(tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "|")
    events = [
        event("start", 0),
        event("enrol", 1, hospital=HOSTILE, examples=1),
        event("refusal", 2, hospital=HOSTILE, reason=f"reason{HOSTILE}"),
        evaluation(3, 0, 0.5, **{HOSTILE: 0.1}),
        event("finish", 4, status="failed", reason=f"because{HOSTILE}"),
    ]
    write_run(tmp_path / "runs", name, events)
    write_consortium(tmp_path / "consortium", name=f"Lungs{HOSTILE}")

    said = Answer(asked_at=NOW, failure=f"failure{HOSTILE}")
    html = client(tmp_path, said)("/").text

    assert "<script" not in html
    for text in (f"because{HOSTILE}", f"reason{HOSTILE}", f"Lungs{HOSTILE}", f"failure{HOSTILE}", name):
        assert escape(text, quote=False) in html.replace("&#34;", '"').replace("&#39;", "'")


def test_hostile_name_in_the_address_is_shown_as_text(tmp_path: Path) -> None:
    answered = client(tmp_path)("/runs/<script>alert(1)<|script>")

    assert answered.status_code == 404
    assert "<script" not in answered.text


def test_link_to_a_run_leads_to_it_whatever_it_is_called(tmp_path: Path) -> None:
    name = 'a b"><?#%2f'
    write_run(tmp_path / "runs", name, [event("start", 0), step(1, 5, a=0)])
    page = client(tmp_path)
    (link,) = re.findall(r'href="(/runs/[^"]*)"', page("/").text)

    answered = page(unescape(link))

    assert answered.status_code == 200
    assert "Model version 5" in text_of(answered.text)


def test_every_answer_carries_the_headers(tmp_path: Path) -> None:
    page = client(tmp_path)

    for path in ("/", "/metrics", "/health", "/style.css", "/runs/none", "/nowhere"):
        headers = page(path).headers
        assert {name: headers.get(name) for name in HEADERS} == dict(HEADERS)


def test_foreign_name_is_not_answered(tmp_path: Path) -> None:
    page = partial(ask, secure(make_page(lookout(tmp_path)), names=["page"]))

    foreign = [page(path, host="evil.example").status_code for path in ("/", "/metrics", "/health", "/runs/a")]
    known = page("/health", host="page:8078").status_code

    assert (foreign, known) == ([421] * 4, 200)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_changed(tmp_path: Path, method: str) -> None:
    page = client(tmp_path)

    assert {page(path, method=method).status_code for path in ("/", "/metrics", "/health", "/runs/a")} == {405}


def test_looking_changes_no_file(tmp_path: Path) -> None:
    write_consortium(tmp_path / "consortium", hospital("a"))
    run(tmp_path / "runs", seconds(5, 5), Hospitals(), aggregation__rounds=2)
    before, page = tree(tmp_path), client(tmp_path)

    for path in ("/", "/runs/run", "/metrics", "/health"):
        assert page(path).status_code == 200

    assert tree(tmp_path) == before


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
def test_page_does_not_describe_itself(tmp_path: Path, path: str) -> None:
    assert client(tmp_path)(path).status_code == 404


def test_health_is_told_without_a_look(tmp_path: Path) -> None:
    def never() -> Answer:
        raise AssertionError("asked")

    watching = lookout(tmp_path)
    watching._ask = never

    answered = ask(make_page(watching), "/health")

    assert (answered.status_code, answered.text) == (200, "ok\n")


def test_page_loads_itself_again_unless_it_is_told_not_to(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "a", [event("start", 0)])
    page = client(tmp_path)

    reloading = ["http-equiv" in page(path).text for path in ("/", "/?still=1", "/runs/a")]

    assert reloading == [True, False, False]


def test_metrics_are_in_prometheus_own_format(tmp_path: Path) -> None:
    answered = client(tmp_path)("/metrics")

    assert answered.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE aegis_superlink_up gauge\naegis_superlink_up 1\n" in answered.text
