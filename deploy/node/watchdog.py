"""How a hospital's node is doing, judged from outside of it, and whether it must be started anew.

A pure function of what was observed, so that every case stands in a table of tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploy.node.contact import Contact
from deploy.node.route import Probe
from deploy.node.state import Phase

LARGEST_LEAD_S = 5.0
"""How far this machine's clock may be ahead of the server's before its signatures are refused (flwr 1.42)."""
LARGEST_LAG_S = 305.0
SILENT_AFTER_S = 90.0
"""Heartbeats come every 30 s at most, and Flower calls a node offline after two."""
IDLE_AFTER_S = 120.0
"""A node without a task asks for one every 3 s; one whose task has died is told so after 70 s at most."""
_REFUSING = (401, 403, 412)
_SEVERAL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known about the node at one moment.

    Attributes:
        now: in seconds since 1970, like all times here.
        running: whether the SuperNode's process is alive.
        started: when it was started.
        busy: when a task last ran; 0: never.
        contact: what the server last said to it.
        probe: what came of trying the way to the server beside the node; None: not tried yet.
        failures: how often in a row it ended by itself soon after it was started.
    """

    now: float
    running: bool
    started: float
    busy: float
    contact: Contact
    probe: Probe | None
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How the node stands.

    Attributes:
        phase: how it stands with the server.
        detail: in words, with what to do.
        restart: why a running node must be started anew; empty when it need not.
        startable: whether it makes sense to start one that is not running.
    """

    phase: Phase
    detail: str
    restart: str = ""
    startable: bool = True


def judge(seen: Observation) -> Verdict:
    """Return how the node stands: by the server's own answers, not by whether a process runs."""
    skew = seen.probe.clock_skew_s if seen.probe else None
    if skew is not None and not -LARGEST_LEAD_S <= skew <= LARGEST_LAG_S:
        return Verdict(phase=Phase.CLOCK_SKEWED, detail=_about_clock(skew), startable=False)
    if not seen.running:
        return _judge_ended(seen)
    return _judge_running(seen)


def _judge_ended(seen: Observation) -> Verdict:
    if seen.contact.status in _REFUSING:
        detail = (
            "The server does not accept this hospital's key: it is not registered, was revoked, or is in use by "
            "another machine, or by a node that ended a minute ago. Ask the coordinator to compare the fingerprint of "
            "node.key.pub."
        )
        return Verdict(phase=Phase.REFUSED, detail=detail)
    if seen.probe is not None and not seen.probe.reachable:
        return Verdict(phase=Phase.UNREACHABLE, detail=_about_route(seen.probe))
    return _starting(seen, "The node is being started.")


def _judge_running(seen: Observation) -> Verdict:
    heard = max(seen.contact.answered, seen.started)
    silent = seen.now - heard
    if silent > SILENT_AFTER_S:
        if seen.probe is not None and seen.probe.reachable and seen.probe.time > heard:
            why = f"The server is well, but has not heard from this node for {silent:.0f} s."
            return Verdict(phase=Phase.RESTARTING, detail=why, restart=why)
        detail = _about_route(seen.probe) if seen.probe else "The server has not answered."
        return Verdict(phase=Phase.UNREACHABLE, detail=detail)
    idle = seen.now - max(seen.contact.pulled, seen.busy, seen.started)
    if idle > IDLE_AFTER_S and seen.probe is not None and seen.probe.reachable:
        why = f"This node has neither asked for a task nor worked on one for {idle:.0f} s."
        return Verdict(phase=Phase.RESTARTING, detail=why, restart=why)
    if seen.contact.answered < seen.started:
        if seen.probe is not None and not seen.probe.reachable:
            return Verdict(phase=Phase.UNREACHABLE, detail=_about_route(seen.probe))
        return _starting(seen, "The node waits for the server's first answer.")
    return Verdict(phase=Phase.CONNECTED, detail="The server answers this node.")


def _starting(seen: Observation, detail: str) -> Verdict:
    """Return that the node is on its way up; of one that keeps ending nobody says so any more."""
    if seen.failures < _SEVERAL:
        return Verdict(phase=Phase.STARTING, detail=detail)
    return Verdict(phase=Phase.RESTARTING, detail="The node keeps ending by itself; node.log says why.")


def _about_clock(skew: float) -> str:
    side = "behind" if skew > 0 else "ahead of"
    return (
        f"This machine's clock is {abs(skew):.0f} s {side} the server's, so the server refuses its signatures: "
        f"set the clock by NTP (at most {LARGEST_LEAD_S:g} s ahead, {LARGEST_LAG_S:g} s behind)."
    )


def _about_route(tried: Probe) -> str:
    return f"The server cannot be reached ({tried.found}); `aegis doctor hospital` says where the way ends."
