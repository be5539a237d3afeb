"""The way out of the hospital: the server's name, the proxy, the connection."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import closing

from deploy.doctor.checks import NETWORK_LIMIT_S, Check, Finding, failed, ok, skipped
from deploy.doctor.hospital import Hospital
from deploy.doctor.wire import ProxyError, explain
from federation.errors import ConfigurationError

_LIMIT_S = 2 * NETWORK_LIMIT_S
_WRONG_CREDENTIALS = 407
_FORBIDDEN = 403
_GATEWAY = (502, 503, 504)


def _resolve(site: Hospital) -> Finding:
    host = site.kit().host
    if site.kit().proxy:
        return skipped("the proxy looks the name up")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return ok("the kit names an address")
    try:
        found = socket.getaddrinfo(host, site.kit().port, type=socket.SOCK_STREAM)
    except OSError as error:
        return failed(f"{host} is not known here ({getattr(error, 'strerror', None) or type(error).__name__})")
    return ok(f"{host} is {', '.join(sorted({str(entry[4][0]) for entry in found}))}")


def _pass_proxy(site: Hospital) -> Finding:
    if not site.kit().proxy:
        unused = site.unused_proxy
        return skipped(f"the kit names none{f', and {unused} is none that the node uses' if unused else ''}")
    try:
        route = site.route()
        with closing(route.connect()):
            return ok(f"it opens a tunnel to {route.server}")
    except ConfigurationError as error:
        return failed(str(error), 'Write `proxy = "http://host:port"` into kit.toml.')
    except ProxyError as error:
        return _judge_proxy(error.status)
    except OSError as error:
        return failed(f"it cannot be reached: {explain(error)}", "Correct `proxy` in kit.toml, or start the proxy.")


def _judge_proxy(status: int) -> Finding:
    if status == _WRONG_CREDENTIALS:
        return failed(
            "it answered 407: it wants another user and password",
            "Write them into `proxy` in kit.toml: http://user:password@host:port.",
        )
    if status == _FORBIDDEN:
        return failed("it answered 403: it lets nobody through to this server and port")
    if status in _GATEWAY:
        return failed(f"it answered {status}: it cannot reach the server itself")
    return failed(f"it answered {status}" if status else "it does not speak HTTP")


def _reach(site: Hospital) -> Finding:
    route = site.route()
    try:
        with closing(route.connect()):
            return ok(f"{route.server} takes connections{' through the proxy' if route.proxy else ''}")
    except (OSError, ProxyError) as error:
        unused = site.unused_proxy if route.proxy is None else ""
        mend = (
            f"If the way out leads through the proxy in {unused}, write it as `proxy` into kit.toml." if unused else ""
        )
        return failed(f"{route.server}: {explain(error)}", mend)


CHECKS: tuple[Check[Hospital], ...] = (
    Check(
        id="dns",
        title="the server's name",
        expected="an address for it",
        mend="Correct the name server of this machine or container, or ask the coordinator whether the name is right.",
        look=_resolve,
        needs=("kit-readable",),
        limit_s=NETWORK_LIMIT_S,
        network=True,
    ),
    Check(
        id="proxy",
        title="the proxy on the way out",
        expected="200 to CONNECT, where the kit names a proxy; the environment's is none that the node uses",
        mend="Ask whoever runs the proxy to allow CONNECT to the server's host and port, for this machine.",
        look=_pass_proxy,
        needs=("kit-readable",),
        limit_s=_LIMIT_S,
        network=True,
    ),
    Check(
        id="route",
        title="the way to the server",
        expected="a TCP connection to the only port a hospital ever connects to",
        mend="Ask whoever runs the firewall to allow outgoing TCP to that host and port; nothing need be let in.",
        look=_reach,
        needs=("kit-readable", "dns", "proxy"),
        limit_s=_LIMIT_S,
        network=True,
    ),
)
