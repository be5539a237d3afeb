"""What was released, as immutable events: the vocabulary in which hospitals, ledgers and the server speak of spending.

An event says nothing about data, only about a mechanism's parameters; `federation.accounting` turns events into
epsilon. Read next: `federation.accounting.accounts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from federation.accounting.bounds import require_multiplier
from federation.errors import PrivacyError

_LARGEST_COUNT = 10**9


class Relation(StrEnum):
    """Which two data sets count as neighbours.

    ADD_REMOVE: one has one unit more. ZERO_OUT: one unit's contribution is replaced by zero. REPLACE_ONE: one unit is
    replaced by any other, which doubles the sensitivity of a clipped sum.
    """

    ADD_REMOVE = "add-remove"
    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"

    def sensitivity(self, clip_norm: float) -> float:
        """Return the L2 sensitivity of a sum whose summands have an L2 norm of at most `clip_norm`."""
        return 2 * clip_norm if self is Relation.REPLACE_ONE else clip_norm


class Unit(StrEnum):
    """Whose presence is protected: one image or row, one patient, or everything a hospital put into one update."""

    RECORD = "record"
    PATIENT = "patient"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GaussianRelease:
    """One release with Gaussian noise, everything in it used.

    Attributes:
        noise_multiplier: standard deviation of the noise over the L2 sensitivity.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        """Check the bounds."""
        require_multiplier(self.noise_multiplier)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SampledGaussianRelease:
    """One release after `steps` steps of DP-SGD on Poisson samples (arXiv 1607.00133, algorithm 1); add/remove.

    Attributes:
        noise_multiplier: standard deviation of the noise over the clip norm.
        sampling_probability: with which each unit enters a step, independently.
        steps: number of steps, empty samples included.
    """

    noise_multiplier: float
    sampling_probability: float
    steps: int

    def __post_init__(self) -> None:
        """Check the bounds."""
        require_multiplier(self.noise_multiplier)
        if not 0 < self.sampling_probability <= 1:
            raise PrivacyError(f"Expected 0 < sampling_probability={self.sampling_probability} <= 1.")
        if type(self.steps) is not int or not 1 <= self.steps <= _LARGEST_COUNT:
            raise PrivacyError(f"Expected steps={self.steps!r} as an integer from 1 to {_LARGEST_COUNT}.")


Event = GaussianRelease | SampledGaussianRelease
_KINDS: dict[str, type[Event]] = {"gaussian": GaussianRelease, "sampled-gaussian": SampledGaussianRelease}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def event_as_dict(event: Event) -> dict[str, str | int | float]:
    """Return `event` as scalars under kebab-case keys, `kind` among them."""
    fields = {name.replace("_", "-"): getattr(event, name) for name in type(event).__dataclass_fields__}
    return {"kind": _NAMES[type(event)], **fields}


def event_from_dict(content: Mapping[str, Any]) -> Event:
    """Return the event that `event_as_dict` turned into `content`.

    Raises:
        PrivacyError: the kind is unknown, a field is missing, unknown or of the wrong type, or a bound is broken.
    """
    kind = _KINDS.get(str(content.get("kind")))
    if kind is None:
        raise PrivacyError(f"Expected an event of kind {' or '.join(_KINDS)}, found {content.get('kind')!r}.")
    fields = {key.replace("-", "_"): value for key, value in content.items() if key != "kind"}
    if set(fields) != set(kind.__dataclass_fields__):
        raise PrivacyError(f"Expected the fields {sorted(kind.__dataclass_fields__)}, found {sorted(fields)}.")
    if wrong := [key for key, value in fields.items() if type(value) not in (int, float)]:
        raise PrivacyError(f"Expected numbers, found {wrong}.")
    values: dict[str, Any] = {key: value if key == "steps" else float(value) for key, value in fields.items()}
    return kind(**values)


@dataclass(frozen=True, slots=True)
class History:
    """How often each event happened; the order does not matter to any account.

    Attributes:
        counts: number of releases per event, each at least 1.
    """

    counts: Mapping[Event, int] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """Return the history of `events`."""
        counts: dict[Event, int] = {}
        for event in events:
            counts[event] = counts.get(event, 0) + 1
        return cls(MappingProxyType(counts))

    def plus(self, event: Event, count: int = 1) -> History:
        """Return this history with `count` (at least 0) more releases of `event`."""
        if count < 0:
            raise PrivacyError(f"Expected count={count} >= 0.")
        if not count:
            return self
        return History(MappingProxyType({**self.counts, event: self.counts.get(event, 0) + count}))

    @property
    def releases(self) -> int:
        """The number of releases."""
        return sum(self.counts.values())
