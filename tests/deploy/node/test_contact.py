"""What the server last said, as requests that were really made show it."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.supernode.fleet_http_client import FleetHttpClient

from deploy.flower_run import free_port
from deploy.node import contact
from deploy.node.contact import Contact, note_contacts, read_contact
from tests.deploy.node.made_up_server import Answers, serving

PULL = "/v1/fleet/pull-messages"
HEARTBEAT = "/v1/fleet/send-node-heartbeat"


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(contact, "time", SimpleNamespace(time=clock.time))
    return clock


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Path]:
    logger = logging.getLogger("httpx")
    level, propagate, handlers = logger.level, logger.propagate, list(logger.handlers)
    path = tmp_path / "contact.json"
    note_contacts(path)
    yield path
    logger.setLevel(level)
    logger.propagate, logger.handlers = propagate, handlers


def ask(port: int, path: str) -> None:
    with httpx.Client(trust_env=False) as client:
        client.post(f"http://127.0.0.1:{port}{path}", content=b"x")


def test_requests_of_flowers_own_client_are_noted(notes: Path, clock: Clock) -> None:
    answers = Answers()

    with serving(answers) as port:
        client = FleetHttpClient.from_server_address(f"127.0.0.1:{port}", True, None, [])
        client.PullMessages(PullMessagesRequest())
        clock.now = 1030.0
        client.SendNodeHeartbeat(SendNodeHeartbeatRequest())
        client.close()

    assert answers.asked == [PULL, HEARTBEAT]
    assert read_contact(notes) == Contact(answered=1030.0, pulled=1000.0, status=200)


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_refusal_is_noted_as_a_status_and_no_contact(notes: Path, clock: Clock, status: int) -> None:
    answers = Answers()

    with serving(answers) as port:
        ask(port, PULL)
        clock.now = 1060.0
        answers.statuses[PULL] = status
        ask(port, PULL)

    assert read_contact(notes) == Contact(answered=1000.0, pulled=1000.0, status=status)


def test_other_requests_than_those_of_the_fleet_api_are_no_contact(notes: Path, clock: Clock) -> None:
    with serving(Answers()) as port:
        ask(port, "/health")
        ask(port, "/v1/control/v1/fleet/pull-messages")

    assert not notes.exists()


def test_server_that_cannot_be_reached_is_no_contact(notes: Path, clock: Clock) -> None:
    with serving(Answers()) as port:
        ask(port, HEARTBEAT)
    clock.now = 1060.0
    with pytest.raises(httpx.ConnectError):
        ask(free_port(), HEARTBEAT)

    assert read_contact(notes) == Contact(answered=1000.0, status=200)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("something else", ()),
        ("%s", ("one value",)),
        ("%s %s %s %s %s", ("POST", "http://h/v1/fleet/pull-messages", "HTTP/1.1", "200", "OK")),
        ("%(one)s", ({"one": 1},)),
    ],
)
def test_records_of_another_form_are_passed_over(notes: Path, text: str, values: tuple[object, ...]) -> None:
    logging.getLogger("httpx").info(text, *values)

    assert not notes.exists()


def test_what_cannot_be_noted_costs_no_request(
    notes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_text(path: Path, text: str, **_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(Path, "write_text", write_text)
    answers = Answers()

    with serving(answers) as port:
        ask(port, PULL)

    assert answers.asked == [PULL]
    assert read_contact(notes) == Contact()
    assert "No space left" in capsys.readouterr().err


def test_notes_go_to_no_other_log(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [listener := logging.Handler()])
    monkeypatch.setattr(listener, "emit", lambda record: seen.append(record.name))

    with serving(Answers()) as port:
        ask(port, PULL)
    logging.getLogger("another").warning("said")

    assert seen == ["another"]


@pytest.mark.parametrize("content", ["", "{", '{"answered": 1000.0, "pul', "null", '{"answered": "soon"}'])
def test_half_written_file_says_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "contact.json"
    path.write_text(content)

    assert read_contact(path) == Contact()


def test_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert read_contact(tmp_path / "contact.json") == Contact(answered=0.0, pulled=0.0, status=0)
