"""Which hospitals' nodes the SuperLink knows and which of them are online, as Flower's own command says.

The command takes seconds of CPU, so that an answer is kept for a while. Flower calls a node online until it has missed
its heartbeats for a minute; a node that still beats may all the same have stopped working, which `watch` looks for.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deploy.flower_run import flower_environment

KEPT_S = 10.0
_MOST_S = 8.0
_MOST_TEXT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node that has been registered.

    Attributes:
        status: "registered" (never connected), "online", "offline" or "unregistered".
        online_at: when it last came online, in seconds since 1970; None when it never did.
        offline_at: when it last went offline, likewise.
    """

    status: str
    online_at: float | None
    offline_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the SuperLink said.

    Attributes:
        asked_at: when it was asked, in seconds since 1970.
        nodes: by Flower's id of the node.
        failure: why it said nothing, in a sentence; empty when it answered.
    """

    asked_at: float
    nodes: Mapping[str, Node] = field(default_factory=dict)
    failure: str = ""


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")

    node_id: str = Field(alias="node-id")
    status: str
    online_at: str = Field("", alias="online-at")
    offline_at: str = Field("", alias="offline-at")


class _Listing(BaseModel):
    model_config = ConfigDict(extra="ignore")

    success: bool
    nodes: list[_Line] = Field(default_factory=list)
    error_message: str = Field("", alias="error-message")


class SuperLink:
    """Asks one SuperLink, at most every `KEPT_S` seconds and once at a time."""

    def __init__(
        self, connection: str, home: Path, *, direct: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        """Prepare to ask; nothing is asked yet.

        Args:
            connection: name of it in Flower's configuration.
            home: Flower's folder, which holds that.
            direct: host that is reached without any proxy that the environment names.
            clock: says what time it is, in seconds since 1970.
        """
        self._command = ["flwr", "supernode", "list", connection, "--format", "json"]
        self._environment = flower_environment(home)
        if direct:
            around = ",".join(part for part in (os.environ.get("NO_PROXY", ""), direct) if part)
            self._environment |= {"NO_PROXY": around, "no_proxy": around}
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: Answer | None = None

    def ask(self) -> Answer:
        """Return what the SuperLink says, or said a moment ago."""
        with self._lock:
            now = self._clock()
            if self._answer is None or not 0 <= now - self._answer.asked_at < KEPT_S:
                self._answer = self._ask(now)
            return self._answer

    def _ask(self, now: float) -> Answer:
        try:
            finished = subprocess.run(
                self._command, env=self._environment, capture_output=True, text=True, timeout=_MOST_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Answer(asked_at=now, failure=f"The SuperLink did not answer within {_MOST_S:g} s.")
        except OSError as error:
            return Answer(asked_at=now, failure=f"Flower's command cannot be started: {error.strerror}.")
        return parse_listing(finished.stdout, now, otherwise=finished.stderr)


def parse_listing(text: str, asked_at: float, *, otherwise: str = "") -> Answer:
    """Return the answer that Flower's command printed as `text`.

    Args:
        text: its output, JSON.
        asked_at: when it was asked, in seconds since 1970.
        otherwise: what is quoted where `text` says nothing.
    """
    try:
        listing = _Listing.model_validate_json(text)
    except ValidationError:
        said = _last_line(otherwise or text) or "nothing"
        return Answer(asked_at=asked_at, failure=f"Expected a list of nodes from Flower's command, found: {said}")
    if not listing.success:
        said = _last_line(listing.error_message) or "no reason given."
        return Answer(asked_at=asked_at, failure=f"The SuperLink was not reached: {said}")
    nodes = {
        line.node_id: Node(status=line.status, online_at=_time(line.online_at), offline_at=_time(line.offline_at))
        for line in listing.nodes
    }
    return Answer(asked_at=asked_at, nodes=nodes)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_MOST_TEXT] if lines else ""


def _time(text: str) -> float | None:
    """Return a time of Flower's, such as 2027-03-01 09:30:12Z, in seconds since 1970; None for "N/A"."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
