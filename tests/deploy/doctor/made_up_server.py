"""A server on the loopback interface that answers as a consortium's edge does, and can be spoilt in every way."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.error import ApiErrorCode
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

from tests.deploy.doctor.made_up_certificates import Pair

_LEAST_INTERVAL_S = 10.0


class MadeUpServer(ThreadingHTTPServer):
    """The edge of a consortium.

    Attributes:
        known_keys: PEM public keys of registered nodes.
        health: status of /health.
        open_paths: statuses of paths that should not be there.
        clock_offset_s: its clock minus the real one.
        activated: nodes that were activated: the doctor must activate none.
    """

    daemon_threads = True

    def __init__(self, folder: Path, pair: Pair) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._folder = folder
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.known_keys: set[bytes] = set()
        self.health = 200
        self.open_paths: dict[str, int] = {}
        self.clock_offset_s = 0.0
        self.activated: list[bytes] = []
        self.present(pair)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def present(self, pair: Pair) -> None:
        """Show this certificate from the next connection on."""
        pair.write(self._folder / "shown.crt")
        self._context.load_cert_chain(self._folder / "shown.crt", self._folder / "shown.key")

    def get_request(self) -> tuple[Any, Any]:
        link, address = super().get_request()
        return self._context.wrap_socket(link, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are no news."""


class _Handler(BaseHTTPRequestHandler):
    server: MadeUpServer

    def do_GET(self) -> None:
        self._answer(self.server.health if self.path == "/health" else self.server.open_paths.get(self.path, 404))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/fleet/activate-node":
            self._answer(self.server.open_paths.get(self.path, 404))
        elif not self._is_signed():
            self._answer(401)
        else:
            self._activate(ActivateNodeRequest.FromString(body))

    def _activate(self, request: ActivateNodeRequest) -> None:
        """Do as `flwr.superlink.servicer.fleet.fleet_handlers.activate_node` does."""
        if request.public_key not in self.server.known_keys:
            self._answer(412, ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED)
        elif request.heartbeat_interval < _LEAST_INTERVAL_S:
            self._answer(400, ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL)
        else:
            self.server.activated.append(request.public_key)
            self._answer(200)

    def _is_signed(self) -> bool:
        timestamp = self.headers[TIMESTAMP_HEADER]
        public_key = bytes_to_public_key(b64decode(self.headers[FLEET_HTTP_PUBLIC_KEY_HEADER]))
        signature = b64decode(self.headers[FLEET_HTTP_SIGNATURE_HEADER])
        age = (datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds()
        return -5 < age < 305 and verify_signature(public_key, timestamp.encode(), signature)

    def _answer(self, status: int, code: int | None = None) -> None:
        body = json.dumps({"code": code, "detail": "told"} if code is not None else {}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date header."""
        return format_datetime(datetime.now(UTC) + timedelta(seconds=self.server.clock_offset_s), usegmt=True)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class MadeUpProxy(ThreadingHTTPServer):
    """A proxy that answers CONNECT with a status, and opens tunnels where it is 200."""

    daemon_threads = True

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self.status = status
        self.asked: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _ProxyHandler(BaseHTTPRequestHandler):
    server: MadeUpProxy

    def do_CONNECT(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
        self.send_response(self.server.status)
        self.end_headers()
        if self.server.status == 200:
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=5) as beyond:
                there = threading.Thread(target=_pump, args=(self.connection, beyond), daemon=True)
                there.start()
                _pump(beyond, self.connection)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    """Let `server` answer until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
