"""Hospitals of these tests live in the same folders as those of tests/client_app."""

from __future__ import annotations

from tests.client_app.conftest import _own_home, volume

__all__ = ["_own_home", "volume"]
