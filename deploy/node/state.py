"""What the supervisor of a hospital's node knows, in one file on the hospital's own volume, for whoever looks.

The status page, the doctor and the container's health check read it; nobody but the supervisor writes it, and it
never leaves the hospital.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path

from pydantic import Field, ValidationError

from federation.config.table import Table
from federation.durable import write_durably
from federation.errors import DataError

_MOST_RESTARTS = 20


class Phase(StrEnum):
    """How the hospital stands with the server.

    `CONNECTED` is said only of a node whose own requests the server has just answered; a process that merely runs is
    none.
    """

    STARTING = "starting"
    CONNECTED = "connected"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    CLOCK_SKEWED = "clock-skewed"
    MISCONFIGURED = "misconfigured"
    RESTARTING = "restarting"
    PAUSED = "paused"
    STOPPED = "stopped"


class Restart(Table):
    """One restart of the SuperNode.

    Attributes:
        time: seconds since 1970.
        reason: in words.
    """

    time: float
    reason: str


class NodeState(Table):
    """What is known at one moment.

    Attributes:
        written: when, in seconds since 1970; more than a minute ago, nothing of this is known any more.
        phase: how the hospital stands with the server.
        since: when this phase began.
        detail: in words for the hospital's own people, with what to do about it.
        server: `host:port`.
        last_contact: when the server last answered the node; None: never since the supervisor started.
        clock_skew_s: the server's clock minus this machine's, in seconds; None: not known.
        restarts: of the SuperNode, newest last.
        versions: of `aegis`, `flwr`, `torch` and `python`; `image`, where the image tells its digest or name.
        started: when the supervisor was started.
    """

    written: float
    phase: Phase
    since: float
    detail: str = ""
    server: str = ""
    last_contact: float | None = None
    clock_skew_s: float | None = None
    restarts: tuple[Restart, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)
    started: float


def node_folder(state_dir: Path) -> Path:
    """Return where the node keeps its own files below the hospital's state volume."""
    return state_dir / "node"


def state_path(state_dir: Path) -> Path:
    """Return the file with the node's state."""
    return node_folder(state_dir) / "state.json"


def server_certificate_path(state_dir: Path) -> Path:
    """Return the file with the certificate that the server last showed, PEM."""
    return node_folder(state_dir) / "server.crt"


def write_state(state_dir: Path, state: NodeState) -> None:
    """Replace the file with the node's state; of restarts the newest twenty are kept."""
    node_folder(state_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
    shown = state.model_copy(update={"restarts": state.restarts[-_MOST_RESTARTS:]})
    write_durably(state_path(state_dir), shown.model_dump_json(by_alias=True).encode(), mode=0o600)


def read_state(state_dir: Path) -> NodeState | None:
    """Return the node's state; None where no supervisor has written one.

    Raises:
        DataError: the file is damaged.
    """
    try:
        return NodeState.model_validate_json(state_path(state_dir).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValidationError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"Expected the node's state in {state_path(state_dir)}, found: {error}") from None
