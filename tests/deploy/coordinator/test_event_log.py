"""The event log is read on, never again, and never beyond its last whole line."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.coordinator.event_log import EventLog, last_event, parse_event


def write(path: Path, *events: str, tail: str = "") -> None:
    path.write_text("".join(f'{{"event": "{name}", "wall_s": 1.0}}\n' for name in events) + tail)


def look(log: EventLog) -> tuple[bool, list[str | None]]:
    with log.look() as reading:
        return reading.anew, [event.event if event else None for event in reading.events]


def test_second_look_brings_only_what_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "start", "enrol")
    log = EventLog(path)
    first = look(log)

    write(path, "start", "enrol", "apply")
    second = look(log)

    assert first == (False, ["start", "enrol"])
    assert second == (False, ["apply"])


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "start", "enrol")
    log = EventLog(path)
    look(log)
    content = path.read_bytes()

    with path.open("r+b") as file:  # in place: the same file, whose read part has been damaged since
        file.write(b"x" * len(content))
        file.write(b'{"event": "apply", "wall_s": 2.0}\n')

    assert look(log) == (False, ["apply"])


def test_half_written_last_line_is_left_for_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "start", tail='{"event": "app')
    log = EventLog(path)
    first = look(log)

    write(path, "start", "apply")

    assert first == (False, ["start"])
    assert look(log) == (False, ["apply"])


def test_log_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "start", "enrol")
    log = EventLog(path)
    look(log)

    path.rename(tmp_path / "old.jsonl")
    write(path, "start", "enrol", "apply")

    assert look(log) == (True, ["start", "enrol", "apply"])


def test_log_that_has_shrunk_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "start", "enrol", "apply")
    log = EventLog(path)
    look(log)

    write(path, "start")

    assert look(log) == (True, ["start"])


def test_missing_log_has_no_events_until_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    before = look(log)

    write(path, "start")

    assert before == (False, [])
    assert look(log) == (False, ["start"])


@pytest.mark.parametrize(
    "line",
    [
        b"no json\n",
        b"[1, 2]\n",
        b'{"wall_s": 1.0}\n',
        b'{"event": "apply", "wall_s": -1}\n',
        b'{"event": "apply", "wall_s": NaN}\n',
        b'{"event": "apply", "wall_s": 1, "updates": 7}\n',
        b'{"event": "\xff", "wall_s": 1}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_line_that_is_no_event_is_none_and_no_error(line: bytes) -> None:
    assert parse_event(line) is None


def test_last_event_is_the_last_whole_one_even_of_a_long_log(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, *["dispatch"] * 5000, "finish", tail='{"event": "half')

    found = last_event(path)

    assert found is not None
    assert found.event == "finish"


def test_log_without_an_event_or_without_a_file_has_no_last_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    missing = last_event(path)

    path.write_text("no event\n")

    assert missing is None
    assert last_event(path) is None
