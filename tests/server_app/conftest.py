"""Runs of these tests write no report, which takes ten times as long as they do, and force nothing to the disk."""

from __future__ import annotations

import pytest


@pytest.fixture
def drawn() -> None:
    """Ask for the report all the same."""


@pytest.fixture(autouse=True)
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the report unless the test asks for it, and do not wait for a disk whose power nobody cuts."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("server_app.report.write_report", lambda summary, path: None)
