"""Which private images had a part in a cache: whether a claim of differential privacy can stand depends on it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from federation.accounting.events import event_from_dict
from federation.config.table import Table
from federation.errors import PrivacyError


class Source(StrEnum):
    """The strongest use of private images.

    PUBLIC: none. DP: only by a mechanism whose event is named, which belongs into the hospital's ledger.
    PRIVATE_FILTERED: images of the hospital decided which images were kept, how many of each class, or how bright.
    PRIVATE_ADAPTED: the generator learned from images of the hospital without such a mechanism.
    """

    PUBLIC = "public"
    DP = "dp"
    PRIVATE_FILTERED = "private-filtered"
    PRIVATE_ADAPTED = "private-adapted"


_ORDER = tuple(Source)


class Provenance(Table):
    """What was used to make images.

    Attributes:
        source: the strongest use.
        uses: every use of private images, a sentence each, without anything that describes one of them.
        epsilon: of the mechanism under `Source.DP`, at `delta`; else None.
        delta: of the mechanism; else None.
        event: of the mechanism, as `federation.accounting.events.event_as_dict` writes it; else None.
    """

    source: Source = Field(strict=False)
    uses: tuple[str, ...] = Field((), strict=False)
    epsilon: float | None = Field(None, gt=0)
    delta: float | None = Field(None, gt=0, lt=1)
    event: dict[str, Any] | None = None

    @field_validator("event")
    @classmethod
    def _be_an_event(cls, event: dict[str, Any] | None) -> dict[str, Any] | None:
        if event is not None:
            try:
                event_from_dict(event)
            except PrivacyError as error:
                raise ValueError(str(error)) from None
        return event

    @model_validator(mode="after")
    def _claim_what_is_proven(self) -> Self:
        given = [value is not None for value in (self.epsilon, self.delta, self.event)]
        if any(given) != all(given) or (self.source is Source.DP and not all(given)):
            raise ValueError("Expected epsilon, delta and event together, and under source 'dp' always.")
        if (self.source is Source.PUBLIC) == bool(self.uses):
            raise ValueError(f"Expected uses of private images unless the source is public, found {self.uses}.")
        return self

    @property
    def is_private(self) -> bool:
        """Whether private images shaped the cache in a way that no account knows: no epsilon may be claimed then."""
        return self.source in (Source.PRIVATE_FILTERED, Source.PRIVATE_ADAPTED)

    @classmethod
    def public(cls) -> Self:
        """Return that no private image was used."""
        return cls(source=Source.PUBLIC)


def combine(parts: Iterable[Provenance]) -> Provenance:
    """Return the provenance of what all `parts` had a share in: the strongest source and every use.

    A mechanism's epsilon is kept beside a stronger source, as a record of what was spent; no claim follows from it. Two
    mechanisms at once are not composed here.

    Raises:
        PrivacyError: more than one part brings a mechanism.
    """
    everything = list(parts)
    source = max((part.source for part in everything), key=_ORDER.index, default=Source.PUBLIC)
    private = [part for part in everything if part.event is not None]
    if len(private) > 1:
        raise PrivacyError(f"Expected at most one mechanism in a cache's provenance, found {len(private)}.")
    spent = private[0] if private else None
    return Provenance(
        source=source,
        uses=tuple(use for part in everything for use in part.uses),
        epsilon=spent.epsilon if spent else None,
        delta=spent.delta if spent else None,
        event=spent.event if spent else None,
    )
