"""Where data lie on this machine: `data.root`, checked once for every reader."""

from __future__ import annotations

from pathlib import Path

from federation.config.tables import DataConfig
from federation.errors import ConfigurationError, DataError


def absolute_root(data: DataConfig) -> Path:
    """Return `data.root` as an absolute path to something that exists.

    Raises:
        ConfigurationError: it is empty or relative (a simulation's workers start in folders of their own).
        DataError: nothing is there.
    """
    if not data.root:
        raise ConfigurationError(f"Expected data.root to say where the {data.name!r} data are, found nothing: set it.")
    root = Path(data.root)
    if not root.is_absolute():
        raise ConfigurationError(
            f"Expected data.root to be an absolute path, found {data.root!r}: use {root.resolve()}."
        )
    if not root.exists():
        raise DataError(f"Expected data at data.root={data.root!r}, found nothing there: correct the path or mount it.")
    return root
