"""The way to the server, tried out: does anybody answer there, and what time is it there?"""

from __future__ import annotations

import queue
import ssl
import threading
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from deploy.trust.kit import Kit

PROXY_VARIABLES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
"""Environment variables, in capitals here, from which an HTTP client takes a proxy."""
_TIMEOUT_S = 5.0
_LONGEST_S = 10.0
_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What came of one try.

    Attributes:
        reachable: whether the server said that it is well, over TLS that the consortium's authority vouches for.
        found: why not, in words for the hospital's own people.
        clock_skew_s: its clock minus ours; None where it told no time. Whole seconds are all that HTTP tells.
        certificate: that it showed, PEM; empty where none was seen.
        time: when it was tried.
    """

    reachable: bool
    found: str = ""
    clock_skew_s: float | None = None
    certificate: str = ""
    time: float = 0.0


def proxies(kit: Kit) -> dict[str, str]:
    """Return the environment variables under which Flower's client takes the hospital's proxy, and only on this way."""
    if not kit.proxy:
        return {}
    own = "127.0.0.1,localhost,::1"
    return {"HTTPS_PROXY": kit.proxy, "https_proxy": kit.proxy, "NO_PROXY": own, "no_proxy": own}


def probe(kit: Kit, folder: Path) -> Probe:
    """Return whether the server of `kit` can be reached, through the kit's proxy where it names one.

    Args:
        kit: which server, and through which proxy.
        folder: of the kit, with the certificate of its authority.
    """
    now = time.time()
    try:
        trusted = ssl.create_default_context(cafile=str(folder / kit.ca))
        with (
            httpx.Client(verify=trusted, proxy=kit.proxy or None, timeout=_TIMEOUT_S, trust_env=False) as client,
            client.stream("GET", f"https://{kit.server}/health") as answer,
        ):
            shown = _certificate(answer)  # as long as the connection is open
    except (httpx.HTTPError, ssl.SSLError, OSError) as error:
        return Probe(reachable=False, found=f"{type(error).__name__}: {error}", time=now)
    middle = (now + time.time()) / 2
    skew = _skew(answer.headers.get("date", ""), middle)
    well = answer.status_code == _OK
    found = "" if well else f"it answers {answer.status_code}"
    return Probe(reachable=well, found=found, clock_skew_s=skew, certificate=shown, time=now)


class Prober:
    """Tries the way again and again, and never waits long: a server could answer a byte at a time."""

    def __init__(self, kit: Kit, folder: Path) -> None:
        """Try nothing yet."""
        self._kit, self._folder = kit, folder
        self._results: queue.SimpleQueue[Probe] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def probe(self) -> Probe:
        """Return what came of one try, after ten seconds at most."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._try, daemon=True)
            self._thread.start()
        try:
            return self._results.get(timeout=_LONGEST_S)
        except queue.Empty:
            return Probe(reachable=False, found=f"no whole answer within {_LONGEST_S:g} s", time=time.time())

    def _try(self) -> None:
        self._results.put(probe(self._kit, self._folder))


def _certificate(answer: httpx.Response) -> str:
    stream = answer.extensions.get("network_stream")
    channel = stream.get_extra_info("ssl_object") if stream is not None else None
    shown = channel.getpeercert(True) if channel is not None else None
    return ssl.DER_cert_to_PEM_cert(shown) if shown else ""


def _skew(date: str, now: float) -> float | None:
    try:
        # The date is the begin of a second.
        return parsedate_to_datetime(date).timestamp() + 0.5 - now
    except (TypeError, ValueError):
        return None
