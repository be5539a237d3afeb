"""Proxies by URL, and what a failed connection is called."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from deploy.doctor.wire import Proxy, ProxyError, Route, explain
from federation.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://proxy:3128", Proxy(host="proxy", port=3128)),
        ("proxy:3128", Proxy(host="proxy", port=3128)),
        ("http://proxy", Proxy(host="proxy", port=80)),
        ("http://u:p%3A@[::1]:8080/", Proxy(host="::1", port=8080, credentials="u:p:")),
    ],
)
def test_proxy_is_read_from_its_url(url: str, expected: Proxy) -> None:
    assert Proxy.parse(url) == expected


@pytest.mark.parametrize("url", ["socks5://proxy:1080", "https://proxy:3128", "http://", "http://proxy:port"])
def test_other_proxies_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="http://host:port"):
        Proxy.parse(url)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProxyError(407), "the proxy answered 407"),
        (ProxyError(0), "the proxy does not speak HTTP"),
        (TimeoutError(), "no answer within 5 s"),
        (ConnectionRefusedError(111, "refused"), "the connection was refused"),
        (OSError(113, "no route"), "EHOSTUNREACH"),
        (ssl.SSLError(1, "wrong version"), "no TLS: the connection ended"),
        (ValueError("secret"), "ValueError"),
    ],
)
def test_failed_connections_have_names(error: Exception, expected: str) -> None:
    assert explain(error) == expected


def test_proxy_that_does_not_speak_http_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        route = Route(host="aegis.example", port=1, proxy=Proxy(host="127.0.0.1", port=listener.getsockname()[1]))

        def answer() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(1000)
                link.sendall(b"SSH-2.0-server\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ProxyError) as caught:
            route.connect()
        thread.join()

    assert caught.value.status == 0


def test_server_with_an_ipv6_address_is_named_in_brackets() -> None:
    assert Route(host="::1", port=8443).server == "[::1]:8443"
