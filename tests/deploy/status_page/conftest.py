"""Fixtures of the status page's tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.status_page.made_up import Folders

_MEMORY = Path("/dev/shm")


@pytest.fixture
def folders() -> Iterator[Folders]:
    """The folders of a hospital that has just been set up, in memory where that is possible: ledgers force to disk."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Folders(Path(folder)).make()
