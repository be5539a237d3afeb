"""The hospital's log as the page may show it, written by the hospital's own client."""

from __future__ import annotations

import json

import pytest

from client_app.site_log import log_failure, log_task
from deploy.status_page.site_log import EVENTS, log_paths, newest, read_log
from federation.errors import SiteErrorCode
from tests.deploy.status_page.made_up import Folders

SECRET = "Patient 4711 in /srv/images/4711.png"


def write(folders: Folders, *lines: str) -> None:
    folders.log.write_text("".join(f"{line}\n" for line in lines))


def test_tasks_are_told_in_fixed_words_with_their_version(folders: Folders) -> None:
    log_task(folders.state, "north", "ready", model_version=7)
    log_task(folders.state, "north", "discarded", model_version=7)
    log_task(folders.state, "north", "update", model_version=8, examples=812)
    log_task(folders.state, "north", "outbox-failed", error=SECRET)

    found = read_log(folders.state, "north")

    assert [entry.words for entry in newest(found, 9)] == [
        "A copy for the outbox could not be written; the log has more.",
        "Released an update (model version 8).",
        "Deleted an update that was not wanted; nothing was released (model version 7).",
        "Trained; the update waits for the coordinator's decision (model version 7).",
    ]


def test_failure_shows_its_fixed_sentence_and_nothing_of_its_story(folders: Folders) -> None:
    log_failure(folders.state, "north", SiteErrorCode.DATA_UNAVAILABLE, ValueError(SECRET))

    found = read_log(folders.state, "north")

    assert [entry.words for entry in found.entries] == ["The hospital's data could not be read."]
    assert SECRET in folders.log.read_text()
    assert "4711" not in repr(found)
    assert "Traceback" not in repr(found)


def test_divergence_on_private_images_stays_in_the_log(folders: Folders) -> None:
    log_task(folders.state, "north", "diverged", model_version=7)
    log_task(folders.state, "north", "update", model_version=7)

    found = read_log(folders.state, "north")

    assert [entry.event for entry in found.entries] == ["update"]
    assert "diverged" not in found.counts
    assert sum(found.counts.values()) == 1
    assert found.damaged == 0


def test_refusals_are_counted_by_code_newest_first(folders: Folders) -> None:
    times = {SiteErrorCode.POLICY_MODEL: [10, 30], SiteErrorCode.BUDGET_EXHAUSTED: [20]}
    lines = [
        json.dumps({"time": time, "event": "failure", "code": int(code)}) for code, at in times.items() for time in at
    ]
    write(folders, *lines, json.dumps({"time": 5, "event": "failure", "code": 999}))

    found = read_log(folders.state, "north").refusals

    assert [(item.name, item.count, item.latest) for item in found] == [
        ("policy-model", 2, 30),
        ("budget-exhausted", 1, 20),
        ("unknown", 1, 5),
    ]
    assert found[0].sentence == "The site policy does not allow this model."
    assert found[2].sentence == "A failure that this page does not know; the log has more."


def test_every_code_has_a_name_and_its_sentence(folders: Folders) -> None:
    for code in SiteErrorCode:
        log_failure(folders.state, "north", code, ValueError(SECRET))

    found = {item.name: item.sentence for item in read_log(folders.state, "north").refusals}

    assert sorted(found.values()) == sorted(code.sentence for code in SiteErrorCode)
    assert all(name.replace("-", "").isalpha() for name in found)


def test_event_that_nobody_knows_is_none_of_its_own_words(folders: Folders) -> None:
    write(folders, json.dumps({"time": 1, "event": "<script>"}), json.dumps({"time": 2, "event": ["update"]}))

    found = read_log(folders.state, "north")

    assert {entry.words for entry in found.entries} == {"Something that this page does not know; the log has more."}
    assert found.counts["other"] == 2
    assert tuple(found.counts) == EVENTS


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        "{}",
        '{"event": "update"}',
        '{"time": "x", "event": "update"}',
        '{"time": NaN, "event": "update"}',
        '{"time": 1e999, "event": "update"}',
        '{"time": 1' + "0" * 400 + ', "event": "update"}',
        "[" * 100_000,
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_damaged_line_is_counted_and_costs_no_other(folders: Folders, line: str) -> None:
    good = json.dumps({"time": 1, "event": "update", "model_version": 3})
    folders.log.write_bytes(f"{good}\n{line}\n{good}\n".encode("latin-1"))

    found = read_log(folders.state, "north")

    assert (len(found.entries), found.damaged) == (2, 1)


@pytest.mark.parametrize("version", [True, "7", -1, 1.5, None, 10**30])
def test_version_that_is_none_is_left_out(folders: Folders, version: object) -> None:
    write(folders, json.dumps({"time": 1, "event": "update", "model_version": version}))

    assert read_log(folders.state, "north").entries[0].words == "Released an update."


def test_older_file_comes_first_and_a_line_half_written_waits(folders: Folders) -> None:
    older, newer = log_paths(folders.state, "north")
    older.write_text(json.dumps({"time": 1, "event": "ready"}) + "\n")
    newer.write_text(json.dumps({"time": 2, "event": "update"}) + '\n{"time": 3, "eve')

    found = read_log(folders.state, "north")

    assert [entry.event for entry in found.entries] == ["ready", "update"]
    assert found.damaged == 0


def test_older_file_is_the_one_that_the_client_leaves_behind(folders: Folders) -> None:
    log_task(folders.state, "north", "ready", model_version=1)
    with folders.log.open("a") as file:
        file.write(json.dumps({"time": 1, "event": "x", "text": "x" * 5_000_001}) + "\n")
    log_task(folders.state, "north", "update", model_version=2)

    older, newer = log_paths(folders.state, "north")

    assert (older.exists(), newer.exists()) == (True, True)
    assert read_log(folders.state, "north").counts["ready"] == 1


def test_only_the_end_of_an_enormous_file_is_read(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.status_page.site_log._MOST_BYTES", 100)
    write(folders, *(json.dumps({"time": time, "event": "update"}) for time in range(50)))

    found = read_log(folders.state, "north")

    assert [entry.time for entry in found.entries] == [47, 48, 49]
    assert found.damaged == 0


def test_hospital_that_never_worked_has_an_empty_log(folders: Folders) -> None:
    found = read_log(folders.state, "north")

    assert (found.entries, found.damaged, found.refusals) == ((), 0, ())
