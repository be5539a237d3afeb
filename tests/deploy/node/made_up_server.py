"""Loopback servers for a test: HTTP, HTTPS under a made-up authority, and a proxy that opens tunnels."""

from __future__ import annotations

import datetime as dt
import ipaddress
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Authority:
    """A certificate authority that signed one server.

    Attributes:
        ca: PEM file of the authority.
        server: PEM file of the server's certificate and key.
    """

    ca: Path
    server: Path


def make_authority(folder: Path, *, host: str = "127.0.0.1") -> Authority:
    """Make an authority, and a certificate of it for `host`, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    own_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    own = _name("a made-up authority")
    ca = (
        _builder(own, own, own_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own_key.public_key()), critical=False)
        .sign(own_key, hashes.SHA256())
    )
    server = (
        _builder(own, _name(host), server_key.public_key())
        .add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own_key.public_key()), critical=False)
        .sign(own_key, hashes.SHA256())
    )
    key = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    found = Authority(ca=folder / "ca.crt", server=folder / "server.pem")
    found.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    found.server.write_bytes(server.public_bytes(serialization.Encoding.PEM) + key)
    return found


@dataclass(kw_only=True)
class Answers:
    """What a server says, and what it was asked.

    Attributes:
        statuses: by path; 200 for every other one.
        ahead_s: how far its clock is ahead.
        date: the Date header itself, where it is not the clock's.
        asked: paths, in order.
    """

    statuses: dict[str, int] = field(default_factory=dict)
    ahead_s: float = 0.0
    date: str | None = None
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(answers: Answers, authority: Authority | None = None) -> Iterator[int]:
    """Serve on a loopback port, over TLS where an authority signed the server, and yield the port."""

    class Handler(_Quiet):
        protocol_version = "HTTP/1.1"
        timeout: ClassVar[float] = 5.0

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            answers.asked.append(self.path)
            self.send_response(answers.statuses.get(self.path, 200))
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def date_time_string(self, timestamp: float | None = None) -> str:
            if answers.date is not None:
                return answers.date
            return formatdate(dt.datetime.now(tz=dt.UTC).timestamp() + answers.ahead_s, usegmt=True)

    with _Server(("127.0.0.1", 0), Handler) as server:
        if authority is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(authority.server)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        with _running(server):
            yield server.server_address[1]


@contextmanager
def tunnelling(*, lets_through: bool = True) -> Iterator[tuple[int, list[str]]]:
    """Run a proxy that opens tunnels, or answers 403; yield its port and the targets it was asked for."""
    targets: list[str] = []

    class Handler(_Quiet):
        def do_CONNECT(self) -> None:
            targets.append(self.path)
            if not lets_through:
                self.send_error(403)
                return
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=5) as server:
                self.send_response(200)
                self.end_headers()
                _pass_on(self.connection, server)

    with _Server(("127.0.0.1", 0), Handler) as proxy, _running(proxy):
        yield proxy.server_address[1], targets


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_: object, **__: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that trusts nobody hangs up."""


@contextmanager
def _running(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    ends = {one: other, other: one}
    while True:
        readable, _, _ = select.select(list(ends), [], [], 5)
        for end in readable:
            if not (data := end.recv(65536)):
                return
            ends[end].sendall(data)
        if not readable:
            return


def _builder(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(tz=dt.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
