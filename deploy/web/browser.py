"""A browser without a window, for pictures of the pages and for tests: Chromium, told what to do over two pipes.

No driver and no port are needed: Chromium speaks its DevTools protocol, one JSON text and a zero byte after another,
on the descriptors 3 and 4.
"""

from __future__ import annotations

import base64
import fcntl
import io
import itertools
import json
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from PIL import Image

from federation.errors import ConfigurationError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_S = 60.0
_COLOURS = 128
_FIRST_FREE = 10
_END = b"\0"
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)


def find_browser() -> str | None:
    """Return the Chromium that is installed here; None for none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Tab:
    """The one page that a browser shows."""

    def __init__(self, writer: int, reader: int) -> None:
        """Speak through these two descriptors to a browser that has just been started."""
        self._writer, self._reader = writer, reader
        self._numbers = itertools.count(1)
        self._read = b""
        self._session = self._shown = ""
        self._loaded: set[str] = set()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")
        self._call("Page.setLifecycleEventsEnabled", enabled=True)

    def show(self, width: int, *, scheme: Literal["light", "dark"] = "light") -> None:
        """Be `width` pixels wide, and prefer this colour scheme."""
        size = {"width": width, "height": 400, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def open(self, url: str) -> None:
        """Show the page at `url` and wait until it has loaded."""
        answer = self._call("Page.navigate", url=url)
        if "errorText" in answer:
            raise TimeoutError(f"Expected a page at {url}, found {answer['errorText']}.")
        self._shown = str(answer["loaderId"])
        self._await(lambda _: self._shown in self._loaded)
        self._loaded.clear()

    def await_another(self) -> None:
        """Wait until another page than the one that was shown last has loaded, after a click for example."""
        self._await(lambda _: bool(self._loaded - {self._shown}))
        self._shown = (self._loaded - {self._shown}).pop()
        self._loaded.clear()

    def evaluate(self, expression: str) -> Any:
        """Return what `expression` in JavaScript is in the page, whatever the page itself may run."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise ValueError(f"Expected {expression!r} to work in the page, found {answer['exceptionDetails']}.")
        return answer["result"].get("value")

    def photograph(self, path: Path) -> None:
        """Write the whole page to `path` as PNG of 128 colours, however long it is."""
        options = {"format": "png", "captureBeyondViewport": True, "optimizeForSpeed": False}
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self._call("Page.captureScreenshot", clip=clip, **options)
        with Image.open(io.BytesIO(base64.b64decode(answer["data"]))) as picture:
            picture.convert("RGB").quantize(_COLOURS).save(path, optimize=True)

    def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": number, "method": method, "params": parameters, **session}
        os.write(self._writer, json.dumps(message).encode() + _END)
        answer = self._await(lambda found: found.get("id") == number)
        if "error" in answer:
            raise ValueError(f"Expected {method} to work, found {answer['error']}.")
        result: dict[str, Any] = answer["result"]
        return result

    def _await(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first message after which `wanted` is true; pages that have loaded meanwhile are noted."""
        deadline = time.monotonic() + _PATIENCE_S
        message: dict[str, Any] = {}
        while not wanted(message):
            message = json.loads(self._next(deadline))
            event = message.get("params", {})
            if message.get("method") == "Page.lifecycleEvent" and event["name"] == "load":
                self._loaded.add(event["loaderId"])
        return message

    def _next(self, deadline: float) -> bytes:
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            while _END not in self._read:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"Expected an answer of the browser within {_PATIENCE_S:g} s, found none.")
                part = os.read(self._reader, 1 << 20)
                if not part:
                    raise ConnectionError("Expected an answer of the browser, found that it has ended.")
                self._read += part
        message, _, self._read = self._read.partition(_END)
        return message


@contextmanager
def browser() -> Iterator[Tab]:
    """Start a browser for the block, with a profile of its own.

    Raises:
        ConfigurationError: none is installed.
    """
    program = find_browser()
    if program is None:
        raise ConfigurationError(f"Expected one of {', '.join(PROGRAMS)} on this machine, found none: install one.")
    (its_end, writer), (reader, its_other_end) = _pipe(), _pipe()
    with TemporaryDirectory(prefix="aegis-browser-", ignore_cleanup_errors=True) as profile:
        command = [program, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$@" 3</proc/self/fd/{its_end} 4>/proc/self/fd/{its_other_end}', "sh", *command],
            pass_fds=(its_end, its_other_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_end)
        os.close(its_other_end)
        try:
            yield Tab(writer, reader)
        finally:
            os.close(writer)
            os.close(reader)
            process.kill()
            process.wait()


def _pipe() -> tuple[int, int]:
    """Return the ends of a pipe, neither of them a descriptor that the browser wants for itself."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
