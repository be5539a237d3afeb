"""Keeps dp-accounting from warning of what it should do: leave out a Renyi order whose series does not converge."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_absl_warnings() -> Iterator[None]:
    """Drop warnings of the logger `absl` meanwhile; errors pass."""
    logger = logging.getLogger("absl")
    logger.addFilter(_is_no_warning)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_warning)


def _is_no_warning(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING
