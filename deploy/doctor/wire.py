"""The way to a server, step by step: through a proxy where there is one, over TLS, one HTTP request at a time.

Each step can fail for a reason of its own, and a check asks for one step only; a client library would hide which.
"""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from deploy.doctor.checks import NETWORK_LIMIT_S
from federation.errors import AegisError, ConfigurationError

_NO_TIME_CHECK = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, for which the standard library has no name.
_LONGEST_ANSWER_BYTES = 65536
_DEFAULT_PROXY_PORT = 80


class ProxyError(AegisError):
    """A proxy did not let us through.

    Attributes:
        status: what it answered; 0 where it did not speak HTTP.
    """

    def __init__(self, status: int) -> None:
        """Build the error from the `status` that the proxy answered."""
        super().__init__(f"Expected 200 from the proxy, found {status}.")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy that opens tunnels.

    Attributes:
        host: its name or address.
        port: its port.
        credentials: `user:password`; empty for none.
    """

    host: str
    port: int
    credentials: str = ""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Return the proxy at `url`.

        Raises:
            ConfigurationError: it is no `http://host:port`.
        """
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname or "", parts.port or _DEFAULT_PROXY_PORT
        except ValueError:
            host, port, parts = "", 0, urlsplit("")
        if parts.scheme != "http" or not host:
            raise ConfigurationError("Expected a proxy as http://host:port, found another form: correct it.")
        user = unquote(parts.username or "")
        return cls(host=host, port=port, credentials=f"{user}:{unquote(parts.password or '')}" if user else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answered.

    Attributes:
        status: of HTTP.
        headers: by lower-case name.
        body: its first 64 KiB.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How to get to a server.

    Attributes:
        host: its name or address.
        port: its port.
        proxy: on the way; None for none.
        name: what its certificate calls it; empty for `host`.
    """

    host: str
    port: int
    proxy: Proxy | None = None
    name: str = ""

    @property
    def server(self) -> str:
        """The server as `host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        """Return a connection to the server.

        Raises:
            OSError: nobody can be reached.
            ProxyError: the proxy refused.
        """
        if self.proxy is None:
            return socket.create_connection((self.host, self.port), timeout=NETWORK_LIMIT_S)
        link = socket.create_connection((self.proxy.host, self.proxy.port), timeout=NETWORK_LIMIT_S)
        try:
            status = _ask_for_tunnel(link, self.server, self.proxy.credentials)
            if status != http.client.OK:
                raise ProxyError(status)
        except (OSError, ProxyError):
            link.close()
            raise
        return link

    def secure(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        """Return a TLS connection to the server.

        Raises:
            OSError: nobody can be reached, or there is no trust under `context` (`ssl.SSLError`).
            ProxyError: the proxy refused.
        """
        link = self.connect()
        try:
            return context.wrap_socket(link, server_hostname=self.name or self.host)
        except OSError:
            link.close()
            raise

    def ask(
        self,
        context: ssl.SSLContext,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Return what the server answers to one request on a connection of its own.

        Raises:
            OSError: nobody can be reached, or there is no trust under `context`.
            ProxyError: the proxy refused.
            http.client.HTTPException: the server does not speak HTTP.
        """
        with closing(http.client.HTTPConnection(self.host, self.port)) as connection:
            connection.sock = self.secure(context)
            connection.request(method, path, body=body, headers=dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(status=response.status, headers=found, body=response.read(_LONGEST_ANSWER_BYTES))


def trusting(authority: Path, *, names: bool = True, dates: bool = True) -> ssl.SSLContext:
    """Return a TLS context that trusts the certificate authority in the file `authority` and no other.

    Args:
        authority: PEM.
        names: whether the server's name must stand in its certificate.
        dates: whether the certificates must be valid today.

    Raises:
        OSError: the file cannot be read, or holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=authority)
    context.check_hostname = names
    if not dates:
        context.verify_flags |= _NO_TIME_CHECK
    return context


def trusting_anyone() -> ssl.SSLContext:
    """Return a TLS context that looks at whatever certificate is shown; nothing is sent under it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def explain(error: Exception) -> str:
    """Return why a connection failed, in a few words."""
    if isinstance(error, ProxyError):
        return f"the proxy answered {error.status}" if error.status else "the proxy does not speak HTTP"
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {getattr(error, 'reason', None) or 'the connection ended'}"
    if isinstance(error, TimeoutError):
        return f"no answer within {NETWORK_LIMIT_S:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, OSError):
        return errno.errorcode.get(error.errno or 0, "") or type(error).__name__
    return type(error).__name__


def _ask_for_tunnel(link: socket.socket, server: str, credentials: str) -> int:
    """Return the status with which a proxy answers the wish for a tunnel to `server`; 0 where it speaks no HTTP."""
    lines = [f"CONNECT {server} HTTP/1.1", f"Host: {server}"]
    if credentials:
        lines.append(f"Proxy-Authorization: Basic {b64encode(credentials.encode()).decode()}")
    link.sendall("\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer and len(answer) < _LONGEST_ANSWER_BYTES:
        piece = link.recv(1)
        if not piece:
            break
        answer += piece
    words = answer.partition(b"\r\n")[0].split()
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() else 0
