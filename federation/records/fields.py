"""Checked access to the records of a message: each reader returns a value of the right type or refuses the message.

Every function here raises `RefusalError`, naming what was expected and found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from federation.errors import RefusalCode, RefusalError

PROTOCOL_VERSION = 3
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"

Records = RecordDict


def config_of(content: RecordDict) -> Mapping[str, Any]:
    """Return the config record of `content`, which must carry this protocol version."""
    record = content.get(CONFIG)
    if not isinstance(record, ConfigRecord):
        raise RefusalError(RefusalCode.MALFORMED, f"Expected a config record {CONFIG!r}, found {sorted(content)}.")
    if type(record.get("protocol")) is not int or record["protocol"] != PROTOCOL_VERSION:
        raise RefusalError(
            RefusalCode.WRONG_PROTOCOL, f"Expected protocol {PROTOCOL_VERSION}, found {record.get('protocol')!r}."
        )
    return record


def arrays_of(content: RecordDict) -> ArrayRecord:
    """Return the array record of `content`."""
    record = content.get(ARRAYS)
    if not isinstance(record, ArrayRecord):
        raise RefusalError(RefusalCode.MALFORMED, f"Expected an array record {ARRAYS!r}, found {sorted(content)}.")
    return record


def metrics_of(content: RecordDict) -> Mapping[str, Any]:
    """Return the metric record of `content`."""
    record = content.get(METRICS)
    if not isinstance(record, MetricRecord):
        raise RefusalError(RefusalCode.MALFORMED, f"Expected a metric record {METRICS!r}, found {sorted(content)}.")
    return record


def integer_of(record: Mapping[str, Any], key: str) -> int:
    """Return the integer under `key`; a bool is none."""
    value = record.get(key)
    if type(value) is not int:
        raise RefusalError(RefusalCode.MALFORMED, f"Expected an integer {key!r}, found {value!r}.")
    return value


def bounded_of(record: Mapping[str, Any], key: str, *, largest: int, smallest: int = 1) -> int:
    """Return the integer under `key`, from `smallest` to `largest`."""
    value = integer_of(record, key)
    if not smallest <= value <= largest:
        raise RefusalError(RefusalCode.MALFORMED, f"Expected {key!r} from {smallest} to {largest}, found {value}.")
    return value


def number_of(record: Mapping[str, Any], key: str) -> float:
    """Return the finite number under `key`; a bool is none."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, float | int) or not math.isfinite(value):
        raise RefusalError(RefusalCode.MALFORMED, f"Expected a finite number {key!r}, found {value!r}.")
    return float(value)


def text_of(record: Mapping[str, Any], key: str) -> str:
    """Return the text under `key`."""
    value = record.get(key)
    if not isinstance(value, str):
        raise RefusalError(RefusalCode.MALFORMED, f"Expected a text {key!r}, found {value!r}.")
    return value


def share_of(record: Mapping[str, Any], key: str) -> float:
    """Return the number in [0, 1] under `key`."""
    value = record.get(key)
    if not isinstance(value, float | int) or not 0 <= value <= 1:
        raise RefusalError(RefusalCode.MALFORMED, f"Expected {key!r} between 0 and 1, found {value!r}.")
    return float(value)
