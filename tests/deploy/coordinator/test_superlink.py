"""What Flower's command says of the nodes, how long it is believed, and what is told when it says nothing."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from deploy.coordinator.superlink import KEPT_S, SuperLink, parse_listing
from tests.deploy.coordinator.made_up import NOW

LISTED = {
    "success": True,
    "nodes": [
        {
            "node-id": "17",
            "owner-name": "x",
            "status": "online",
            "created-at": "2027-01-15 07:00:00Z",
            "online-at": "2027-01-15 07:30:00Z",
            "online-elapsed": 1800.0,
            "offline-at": "N/A",
            "deleted-at": "N/A",
        },
        {
            "node-id": "18",
            "status": "offline",
            "online-at": "2027-01-15 07:00:00Z",
            "offline-at": "2027-01-15 07:15:00Z",
        },
        {"node-id": "19", "status": "registered", "online-at": "N/A", "offline-at": "N/A"},
    ],
}


@pytest.fixture
def flwr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a script that stands in for Flower's command; it counts its calls beside itself."""
    script = tmp_path / "flwr"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return script


def say(script: Path, lines: str) -> None:
    script.write_text(f'#!/bin/sh\necho "$@" >> {script.parent}/calls\n{lines}\n')
    script.chmod(0o755)


def calls(script: Path) -> list[str]:
    return (script.parent / "calls").read_text().splitlines()


def test_nodes_are_told_by_id_with_their_times() -> None:
    answer = parse_listing(json.dumps(LISTED), NOW)

    assert answer.failure == ""
    assert {key: (node.status, node.online_at, node.offline_at) for key, node in answer.nodes.items()} == {
        "17": ("online", NOW - 1800, None),
        "18": ("offline", NOW - 3600, NOW - 2700),
        "19": ("registered", None, None),
    }


@pytest.mark.parametrize(
    ("text", "otherwise", "expected"),
    [
        (
            '{"success": false, "error-message": "\\nUsing x\\n\\nConnection refused."}',
            "",
            "not reached: Connection refused.",
        ),
        ('{"success": false}', "", "not reached: no reason given."),
        ("", "Traceback\nImportError: no flwr\n", "found: ImportError: no flwr"),
        ("", "", "found: nothing"),
        ("[]", "", r"found: \[\]"),
        ('{"success": true, "nodes": [{}]}', "", "Expected a list of nodes"),
    ],
)
def test_silence_is_told_in_a_sentence(text: str, otherwise: str, expected: str) -> None:
    answer = parse_listing(text, NOW, otherwise=otherwise)

    assert answer.nodes == {}
    assert re.search(expected, answer.failure)


def test_flood_of_words_is_cut() -> None:
    answer = parse_listing("x" * 100_000, NOW)

    assert len(answer.failure) < 500


def test_flowers_command_is_asked_for_the_connection_in_its_own_home(flwr: Path, tmp_path: Path) -> None:
    say(flwr, f"echo '{json.dumps(LISTED)}'; echo \"$FLWR_HOME $FLWR_TELEMETRY_ENABLED $NO_PROXY\" >> {tmp_path}/calls")

    answer = SuperLink("main", tmp_path / "home", direct="superlink").ask()

    assert list(answer.nodes) == ["17", "18", "19"]
    assert calls(flwr) == ["supernode list main --format json", f"{tmp_path}/home 0 superlink"]


def test_answer_is_kept_for_ten_seconds(flwr: Path, tmp_path: Path) -> None:
    say(flwr, f"echo '{json.dumps(LISTED)}'")
    now = [NOW]
    link = SuperLink("main", tmp_path, clock=lambda: now[0])
    numbers = []
    for later in (0.0, KEPT_S - 0.1, KEPT_S, 3 * KEPT_S):
        now[0] = NOW + later
        link.ask()
        numbers.append(len(calls(flwr)))

    assert (KEPT_S, numbers) == (10, [1, 1, 2, 3])


def test_failure_is_kept_as_long_and_then_asked_again(flwr: Path, tmp_path: Path) -> None:
    say(flwr, "echo broken >&2; exit 1")
    now = [NOW]
    link = SuperLink("main", tmp_path, clock=lambda: now[0])
    first, second = link.ask(), link.ask()
    say(flwr, f"echo '{json.dumps(LISTED)}'")
    now[0] += KEPT_S

    third = link.ask()

    assert first.failure.endswith("found: broken")
    assert second is first
    assert third.failure == ""


def test_clock_that_was_set_back_does_not_keep_an_answer_for_ever(flwr: Path, tmp_path: Path) -> None:
    say(flwr, f"echo '{json.dumps(LISTED)}'")
    now = [NOW]
    link = SuperLink("main", tmp_path, clock=lambda: now[0])
    link.ask()
    now[0] = NOW - 1000

    assert link.ask().asked_at == NOW - 1000


def test_missing_command_is_told_in_a_sentence(flwr: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert "cannot be started" in SuperLink("main", tmp_path).ask().failure


def test_command_that_hangs_is_given_up(flwr: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.coordinator.superlink._MOST_S", 0.2)
    say(flwr, "exec sleep 60")

    assert SuperLink("main", tmp_path).ask().failure == "The SuperLink did not answer within 0.2 s."
