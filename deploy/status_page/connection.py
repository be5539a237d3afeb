"""How the hospital stands with the server, in one plain sentence, and whether that is well."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from deploy.node.state import NodeState, Phase
from deploy.status_page.observer import Fault, Pause
from deploy.web.words import ago, moment

FRESH_S = 60.0
HEALTHY = frozenset({Phase.CONNECTED, Phase.STARTING, Phase.PAUSED})
UNKNOWN = "unknown"


class Mood(StrEnum):
    """How a sentence is meant; it decides its colour, and its words say the same."""

    GOOD = "good"
    IDLE = "idle"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What the top of the page says.

    Attributes:
        phase: a `Phase`, or "unknown" where nothing fresh is known.
        mood: how it is meant.
        headline: the one sentence.
        details: what else there is to say about it.
    """

    phase: str
    mood: Mood
    headline: str
    details: tuple[str, ...] = ()


def is_fresh(node: NodeState, now: float) -> bool:
    """Return whether `node` still says something: its supervisor wrote it within the last minute."""
    return abs(now - node.written) <= FRESH_S


def is_healthy(node: NodeState | Fault | None, now: float) -> bool:
    """Return whether the node's state is fresh and one that needs nobody: connected, starting or paused."""
    return isinstance(node, NodeState) and is_fresh(node, now) and node.phase in HEALTHY


def phase_of(node: NodeState | Fault | None, now: float) -> str:
    """Return the node's phase, "unknown" where nothing fresh is known of it."""
    return node.phase.value if isinstance(node, NodeState) and is_fresh(node, now) else UNKNOWN


def describe(node: NodeState | Fault | None, pause: Pause | None, now: float) -> Connection:
    """Return how the hospital stands at `now`."""
    if pause is not None:
        return _paused(node, pause, now)
    if node is None:
        headline = "No node has run here yet: nothing is sent and nothing received."
        return Connection(phase=UNKNOWN, mood=Mood.WARN, headline=headline)
    if isinstance(node, Fault):
        return Connection(phase=UNKNOWN, mood=Mood.BAD, headline=f"Not known. {node.sentence}")
    if not is_fresh(node, now):
        return _stale(node, now)
    mood, headline = _say(node, now)
    details = (node.detail,) if node.detail and node.phase is not Phase.CONNECTED else ()
    return Connection(phase=node.phase.value, mood=mood, headline=headline, details=details)


def say_skew(skew_s: float) -> str:
    """Return by how much the two clocks differ; HTTP tells whole seconds only."""
    if abs(skew_s) < 1:
        return "less than a second apart"
    return f"this machine's clock is {abs(skew_s):.0f} s {'behind' if skew_s > 0 else 'ahead of'} the server's"


def _paused(node: NodeState | Fault | None, pause: Pause, now: float) -> Connection:
    by = f" by {pause.by}" if pause.by else ""
    since = f"Since {moment(pause.since)} ({ago(now - pause.since)}){by}." if pause.since is not None else ""
    seen = node if isinstance(node, NodeState) and is_fresh(node, now) else None
    stopping = seen is not None and seen.phase not in (Phase.PAUSED, Phase.STOPPED)
    unminded = "" if seen else "The node's supervisor has not said within the last minute that it stopped the node."
    return Connection(
        phase=Phase.PAUSED.value,
        mood=Mood.IDLE if seen else Mood.WARN,
        headline=(
            "Pausing: the node is stopped within seconds."
            if stopping
            else "Paused by this hospital: nothing leaves it until somebody resumes it."
        ),
        details=tuple(text for text in (since, unminded) if text),
    )


def _stale(node: NodeState, now: float) -> Connection:
    age = now - node.written
    last = f"{ago(age)} it was: {node.phase.value}. {node.detail}".strip()
    why = (
        "The node's supervisor wrote nothing for more than a minute: it does not run, or its volume is full."
        if age > 0
        else "The node's state is dated in the future: this machine's clock was set back."
    )
    return Connection(phase=UNKNOWN, mood=Mood.BAD, headline=f"Not known. {why}", details=(last,))


def _say(node: NodeState, now: float) -> tuple[Mood, str]:
    server = node.server or "the server"
    contact = "no answer yet" if node.last_contact is None else f"its last answer came {ago(now - node.last_contact)}"
    skew = "the clocks differ" if node.clock_skew_s is None else say_skew(node.clock_skew_s)
    match node.phase:
        case Phase.CONNECTED:
            return Mood.GOOD, f"Connected to {server}; {contact}."
        case Phase.STARTING:
            return Mood.IDLE, f"Starting; {contact} from {server}."
        case Phase.UNREACHABLE:
            return Mood.BAD, f"Not connected: {server} cannot be reached; {contact}."
        case Phase.REFUSED:
            return Mood.BAD, f"Not connected: {server} refuses this hospital."
        case Phase.CLOCK_SKEWED:
            return Mood.BAD, f"Not connected: {skew}."
        case Phase.MISCONFIGURED:
            return Mood.BAD, "Not connected: the kit or the site policy cannot be used."
        case Phase.RESTARTING:
            return Mood.WARN, f"Starting anew; {contact} from {server}."
        case Phase.PAUSED:
            return Mood.IDLE, "Resumed; the node starts within seconds."
        case Phase.STOPPED:
            return Mood.WARN, "Stopped: the node was told to end. Nothing leaves until it is started."
