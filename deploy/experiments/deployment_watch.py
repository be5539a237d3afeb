"""What can be seen of a federation of containers while it goes on, and whether its books agree."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from deploy.experiments.deployment_stage import HOSPITALS, Stage, docker, wait_until
from federation.errors import RunFailedError

_LONG_S = 600.0


def events(stage: Stage) -> list[dict[str, Any]]:
    """Return the events of the run so far; half a line at the end is none."""
    try:
        text = docker("exec", stage.name("coordinator"), "sh", "-c", "cat /runs/*/events.jsonl")
    except RunFailedError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1] if line.endswith("}")]


def history(stage: Stage) -> dict[int, list[dict[str, Any]]]:
    """Return the updates of every version; what a later server made in place of a lost version counts."""
    return {event["version"]: event["updates"] for event in events(stage) if event["event"] == "apply"}


def version(stage: Stage) -> int:
    """Return the newest version; 0 before there is one."""
    return max(history(stage), default=0)


def contributions(stage: Stage) -> Counter[str]:
    """Return how many updates of each hospital are in the versions so far."""
    return Counter(row["hospital"] for rows in history(stage).values() for row in rows)


def await_contribution(stage: Stage, hospital: str, *, limit_s: float = _LONG_S) -> float:
    """Wait until another update of a hospital is in the model, and return the seconds that took."""
    before = contributions(stage)[hospital]
    return wait_until(
        lambda: contributions(stage)[hospital] > before,
        f"an update of {hospital}",
        limit_s=limit_s,
        watch=[lambda: str(stage.node_state(hospital)), lambda: str(events(stage)[-10:])],
    )


def await_version(stage: Stage, *, more: int = 1, limit_s: float = _LONG_S) -> float:
    """Wait until there are so many more versions, and return the seconds that took."""
    before = version(stage)
    return wait_until(
        lambda: version(stage) >= before + more,
        f"{more} more versions than {before}",
        limit_s=limit_s,
        watch=[lambda: str(events(stage)[-10:]), lambda: stage.compose("ps", "-a")],
    )


def await_phase(stage: Stage, hospital: str, phase: str, *, limit_s: float = _LONG_S) -> float:
    """Wait until the node of a hospital says that it is in `phase`, and return the seconds that took."""
    return wait_until(
        lambda: stage.node_state(hospital).get("phase") == phase,
        f"{hospital} to be {phase}",
        limit_s=limit_s,
        watch=[lambda: str(stage.node_state(hospital))],
    )


def refusals(stage: Stage) -> Counter[str]:
    """Return how often the server refused something, by its reason."""
    return Counter(event["reason"] for event in events(stage) if event["event"] == "refusal")


def ledger(stage: Stage, hospital: str) -> dict[str, Any]:
    """Return what a hospital's ledger says.

    Raises:
        RunFailedError: it is not sound.
    """
    where = ("--state-dir", "/var/lib/aegis", "--hospital-id", hospital, "--keys-dir", "/var/lib/aegis-keys", "--json")
    found: dict[str, Any] = json.loads(docker("exec", stage.name(hospital), "aegis", "ledger", "show", *where))
    return found


def find_contradictions(stage: Stage) -> list[str]:
    """Return, a sentence each, in what the model's history and the hospitals' ledgers disagree; nothing is best.

    Every version must be there, no update in two of them, every ledger sound, and no update in the model that its
    hospital has not booked. The reverse is no contradiction: what was booked and then lost on the way stays spent.
    """
    versions = history(stage)
    faults = [] if sorted(versions) == list(range(1, len(versions) + 1)) else [f"versions {sorted(versions)}"]
    rows = [(row["hospital"], row["number"]) for rows in versions.values() for row in rows]
    faults += [
        f"update {number} of {name} is in the model {n} times" for (name, number), n in Counter(rows).items() if n > 1
    ]
    applied = Counter(name for name, _ in rows)
    for hospital in HOSPITALS:
        try:
            lines = ledger(stage, hospital)["data-sets"]
        except (RunFailedError, ValueError, KeyError) as error:
            faults.append(f"the ledger of {hospital}: {error}")
            continue
        booked = sum(line["releases"] for line in lines if line["data-set"] == "chest")
        if booked < applied[hospital]:
            faults.append(f"{hospital} has booked {booked} updates, and {applied[hospital]} are in the model")
    return faults
