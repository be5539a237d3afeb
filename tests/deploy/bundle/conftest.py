"""One bundle for all tests that only read it."""

from __future__ import annotations

import pytest

from tests.deploy.bundle.packed import Packed, pack


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return pack(tmp_path_factory.mktemp("packed"))
