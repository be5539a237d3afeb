"""Requests that no honest hospital sends go over the line as they were drawn, and what is answered well is reported."""

from __future__ import annotations

import random
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.fleet_pb2 import ActivateNodeRequest

from deploy.experiments import deployment_fuzz
from deploy.experiments.deployment_fuzz import Fuzzed, Tally, draw, fuzz
from deploy.trust.hospital_key import make_key, private_file
from tests.deploy.node.made_up_server import Authority, make_authority

ODD = (
    "/v1/fleet/../control/list-runs",
    "//v1/control/list-runs",
    "/v1/control/list-runs/../../fleet/x",
    "/v1/fleet/%2e%2e/control/list-runs",
    "/v1/fleet/..%2fcontrol/list-runs",
    "/v1/fleet/%252e%252e/control/list-runs",
    "/v1/fleet/..;/control/list-runs",
    "/v1/fleet/x/../../control/start-run",
    "/v1/fleet/../runtime/acquire-task",
    "//v1/runtime/acquire-task",
    "/v1/runtime/pull-messages/../../fleet/x",
    "/v1/fleet/..%2fruntime/acquire-task",
)
OPEN = "/v1/fleet/..;/control/list-runs"


@contextmanager
def recording(authority: Authority, *, opened: str = "") -> Iterator[tuple[str, list[bytes]]]:
    """Serve HTTPS and answer 200 to the path `opened` and 404 to all else; yield the URL and the first lines asked."""
    lines: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        raw_requestline: bytes
        timeout = 30.0

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            lines.append(self.raw_requestline)
            self.send_response(200 if self.raw_requestline.split()[1] == opened.encode() else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = do_GET  # noqa: N815 - the library's names

        def log_message(self, *_: object, **__: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.server)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}", lines
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Of a server that limits no rate and is tried with a handful of odd paths."""
    assert set(ODD) <= set(deployment_fuzz._ODD)
    monkeypatch.setattr(deployment_fuzz, "_ODD", ODD)
    monkeypatch.setattr(deployment_fuzz, "_PER_SECOND", 1000)
    return make_authority(tmp_path)


def fuzz_briefly(url: str, authority: Authority) -> Fuzzed:
    return fuzz(url, authority.ca, private_file(make_key()), count=600, seed=0)


def test_odd_paths_go_over_the_line_byte_for_byte(authority: Authority) -> None:
    with recording(authority) as (url, lines):
        fuzzed = fuzz_briefly(url, authority)

    assert {f"POST {path} HTTP/1.1\r\n".encode() for path in ODD} <= set(lines)
    assert (fuzzed.sent, fuzzed.answered, len(lines)) == (600, 600, 600)
    assert fuzzed.let_in == []


def test_odd_path_that_lets_a_stranger_in_is_reported(authority: Authority) -> None:
    with recording(authority, opened=OPEN) as (url, lines):
        fuzzed = fuzz_briefly(url, authority)

    asked = [line.decode().split() for line in lines]
    assert sorted(fuzzed.let_in) == sorted(f"{method} {path}: 200" for method, path, _ in asked if path == OPEN)
    assert f"POST {OPEN}: 200" in fuzzed.let_in
    assert fuzzed.statuses["200"] == len(fuzzed.let_in)


def test_server_of_another_authority_is_sent_nothing(authority: Authority, tmp_path: Path) -> None:
    with recording(make_authority(tmp_path / "other")) as (url, lines):
        fuzzed = fuzz(url, authority.ca, private_file(make_key()), count=20, seed=0)

    assert (fuzzed.answered, lines) == (0, [])


@pytest.mark.usefixtures("authority")
def test_closed_and_odd_paths_are_tried_with_whole_messages() -> None:
    key, client = ec.generate_private_key(ec.SECP384R1()), httpx.AsyncClient(base_url="https://x")
    choice, whole = random.Random(0), ("POST", b"", "application/protobuf")

    drawn = [draw(client, choice, key, key)[0] for _ in range(1500)]
    tried = {
        one.extensions["target"].decode()
        for one in drawn
        if (one.method, one.content, one.headers["content-type"]) == whole
    }

    assert tried >= {*ODD, *deployment_fuzz._CLOSED}


def answer(status: int, kind: str = "application/json") -> httpx.Response:
    return httpx.Response(status, headers={"Content-Type": kind})


def test_tally_tells_answers_from_silence_and_the_superlink_from_the_edge() -> None:
    fleet, closed = httpx.Request("POST", "https://x/v1/fleet/get-run"), httpx.Request("GET", "https://x/docs")
    tally = Tally()

    tally.count(fleet, None, registered=False)
    tally.count(fleet, answer(401), registered=False)
    tally.count(fleet, answer(415), registered=True)
    tally.count(fleet, answer(429, "text/html"), registered=False)
    tally.count(fleet, answer(502), registered=False)
    tally.count(closed, answer(404), registered=False)
    found = tally.sum_up()

    assert (found.sent, found.answered, found.refused_by_superlink) == (6, 5, 2)
    assert found.registered == {"415": 1}
    assert found.statuses == {"0": 1, "401": 1, "429": 1, "502": 1, "404": 1}
    assert found.let_in == []


def test_stranger_that_is_answered_well_is_let_in_and_a_hospital_is_not() -> None:
    fleet, tally = httpx.Request("POST", "https://x/v1/fleet/get-run"), Tally()

    tally.count(fleet, answer(200), registered=True)
    tally.count(fleet, answer(200), registered=False)

    assert tally.sum_up().let_in == ["POST /v1/fleet/get-run: 200"]


def test_requests_of_registered_keys_are_drawn_and_none_is_a_whole_message() -> None:
    key, own = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    client, choice = httpx.AsyncClient(base_url="https://x"), random.Random(0)
    whole = len(ActivateNodeRequest(public_key=b"k" * 215, heartbeat_interval=30.0).SerializeToString())

    drawn = [draw(client, choice, key, own) for _ in range(600)]
    bodies = [request.content for request, registered in drawn if registered]
    keys = {request.headers.get("flwr-public-key") for request, registered in drawn if registered}

    assert 100 < len(bodies) < 300
    assert len(keys) == 1
    assert any(not body for body in bodies)
    assert any(body.startswith(b"\x0a") and 2 < len(body) < whole for body in bodies)
