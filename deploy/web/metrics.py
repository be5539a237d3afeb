"""Numbers as Prometheus reads them: its text exposition format, version 0.0.4."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One number.

    Attributes:
        name: of the metric, with its unit; all samples of one name have the same `help` and `kind`.
        value: infinite and NaN ones are allowed.
        help: what the number is, in one line.
        kind: `counter` for what only grows while the process that counts lives, else `gauge`.
        labels: which of the metric's numbers it is; values may be any text.
    """

    name: str
    value: float
    help: str
    kind: Literal["gauge", "counter"] = "gauge"
    labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)

    def __post_init__(self) -> None:
        """Check the names, which this project writes itself.

        Raises:
            ValueError: a name that Prometheus would refuse.
        """
        for name in (self.name, *self.labels):
            if not _NAME.fullmatch(name):
                raise ValueError(f"Expected a metric or label named like {_NAME.pattern}, found {name!r}.")


def render(samples: Iterable[Sample]) -> str:
    """Return `samples` in the text format: those of one name together, in the order in which names first occur."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        families.setdefault(sample.name, []).append(sample)
    lines: list[str] = []
    for name, family in families.items():
        lines += [f"# HELP {name} {_escape(family[0].help)}", f"# TYPE {name} {family[0].kind}"]
        lines += [f"{name}{_labels(sample.labels)} {_number(sample.value)}" for sample in family]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = [f'{name}="{_escape(value, quotes=True)}"' for name, value in labels.items()]
    return "{" + ",".join(pairs) + "}"


def _escape(text: str, *, quotes: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
