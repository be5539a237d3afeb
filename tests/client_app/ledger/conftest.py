"""Fixtures of the ledger's tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client_app.ledger.place import Place

_MEMORY = Path("/dev/shm")


@pytest.fixture
def place() -> Iterator[Place]:
    """Folders on a file system in memory where there is one: forcing to disk is what takes these tests' time."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Place(Path(folder))
