"""What one hospital has declared about one of its splits: the part of the mirror that a checkpoint keeps."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from federation.accounting.events import Event, History, event_as_dict, event_from_dict


class BookedEvent(BaseModel):
    """One kind of release and how often it happened."""

    model_config = ConfigDict(extra="forbid")

    event: dict[str, str | int | float]
    count: int


class Spending(BaseModel):
    """The mirror's entry for one split of one hospital's data.

    Attributes:
        mechanism: how its answers are protected.
        relation: the neighbouring relation.
        unit: whose presence is protected.
        delta: at which epsilon is counted.
        account: the account that binds at the hospital.
        events: what was released in this run, as declared.
        spent: what the hospital says it has spent on the data, earlier runs included.
        cap: what it says it will spend at most.
        releases: entries that it says its ledger holds.
        uncovered: those among them without protection.
        refused: declarations that contradicted themselves or the plan.
        paused: whether the budget leaves no room for another release.
    """

    model_config = ConfigDict(extra="forbid")

    mechanism: str = "none"
    relation: str = ""
    unit: str = ""
    delta: float | None = None
    account: str = ""
    events: list[BookedEvent] = Field(default_factory=list)
    spent: float | None = None
    cap: float | None = None
    releases: int = 0
    uncovered: int = 0
    refused: int = 0
    paused: bool = False

    @property
    def history(self) -> History:
        """The declared releases of this run."""
        history = History()
        for booked in self.events:
            history = history.plus(event_from_dict(booked.event), booked.count)
        return history

    def book(self, event: Event) -> None:
        """Add one release of `event`."""
        content = event_as_dict(event)
        for booked in self.events:
            if booked.event == content:
                booked.count += 1
                return
        self.events.append(BookedEvent(event=content, count=1))
