"""One deployment for all tests of faults: real processes take seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.deployment import Deployment


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("deployment"), ["north", "south"]) as deployment:
        yield deployment


@pytest.fixture
def deployment(processes: Deployment) -> Deployment:
    """Two hospitals, north and south; whatever the test before has killed or held is back."""
    processes.restore()
    return processes
