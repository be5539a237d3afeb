"""No test of a hospital writes into the home of whoever runs it, or waits for a disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client_app.clinic import Clinic

_MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Move the home, where a site that cannot be identified logs, into a folder of the test run."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def volume() -> Iterator[Path]:
    """A folder in memory where there is such a file system: a ledger forces every row to the disk."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def clinic(volume: Path) -> Callable[..., Clinic]:
    """Make a deployed hospital, by the keywords of `Clinic`."""
    return lambda **settings: Clinic(volume, **settings)
