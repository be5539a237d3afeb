"""A page served beside whatever else this process does, for pictures and tests."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

_PATIENCE_S = 30.0


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Serve `app` on a free port of 127.0.0.1 for the block, and say under which address.

    Raises:
        TimeoutError: it did not start.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", server_header=False, ws="none", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            _await_start(server)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(_PATIENCE_S)


def _await_start(server: uvicorn.Server) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not server.started:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Expected the page to be served within {_PATIENCE_S:g} s.")
        time.sleep(0.02)
