"""The page as a program of its own, over a real connection."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.web.headers import HEADERS
from tests.deploy.status_page.made_up import Folders, state

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
START = "from deploy.status_page.command import status; status(prog_name='aegis status')"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def process(folders: Folders) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program, and the address it says it serves."""
    folders.tell(state(written=time.time()))
    options = ["--policy", str(folders.policy), "--kit", str(folders.kit), "--port", str(free_port()), "--json"]
    command = [sys.executable, "-c", START, "serve", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            yield started, json.loads(started.stdout.readline())["address"]
        finally:
            started.kill()


def test_page_is_served_with_its_headers_until_told_to_end(process: tuple[subprocess.Popen[str], str]) -> None:
    started, address = process

    with httpx.Client(transport=httpx.HTTPTransport(retries=8), base_url=address, trust_env=False) as client:
        page, health = client.get("/"), client.get("/health")
    started.send_signal(signal.SIGTERM)

    assert (page.status_code, health.json()["phase"]) == (200, "connected")
    assert {name: page.headers.get(name) for name in HEADERS} == HEADERS
    assert "server" not in page.headers
    assert started.wait(30) in (0, -signal.SIGTERM)


def test_page_listens_on_this_machine_only(process: tuple[subprocess.Popen[str], str]) -> None:
    _, address = process

    assert address.startswith("http://127.0.0.1:")
