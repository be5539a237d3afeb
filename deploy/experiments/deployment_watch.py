"""What can be seen of a federation of containers while it goes on, and whether its books agree."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from deploy.experiments.deployment_stage import HOSPITALS, Stage, docker, wait_until
from federation.errors import RunFailedError

_LONG_S = 600.0
_TRIES, _AGAIN_S = 3, 5.0
_READ = 'for file in /runs/*/events.jsonl; do if test -e "$file"; then cat "$file" || exit 3; fi; done'


def persist(look: Callable[[], str]) -> str:
    """Return what `look` sees; an engine under load gets three tries.

    Raises:
        RunFailedError: the last try failed, too.
    """
    for _ in range(_TRIES - 1):
        try:
            return look()
        except RunFailedError:
            time.sleep(_AGAIN_S)
    return look()


def events(stage: Stage) -> list[dict[str, Any]]:
    """Return the events of the run so far: none where no run has begun; half a line at the end is none.

    Raises:
        RunFailedError: they could not be read, three times.
    """
    text = persist(lambda: docker("exec", stage.name("coordinator"), "sh", "-c", _READ))
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
    """Wait until an update that a hospital is asked for from now on is in the model, and return the seconds that took.

    What it was asked for before may have been trained before, too, and would tell nothing of what happened since.
    """
    known = len(events(stage))
    return wait_until(
        lambda: has_contributed(events(stage)[known:], hospital),
        f"an update of {hospital}",
        limit_s=limit_s,
        watch=[lambda: str(stage.node_state(hospital)), lambda: str(events(stage)[-10:])],
    )


def has_contributed(seen: list[dict[str, Any]], hospital: str) -> bool:
    """Return whether a hospital was asked, in these events, for an update that went into the model in them, too."""
    asked: set[int] = set()
    for event in seen:
        if event["event"] == "dispatch" and event["task"] == "train" and event["hospital"] == hospital:
            asked.add(event["number"])
        if event["event"] == "apply" and any(
            row["hospital"] == hospital and row["number"] in asked for row in event["updates"]
        ):
            return True
    return False


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

    There must be versions, without a gap, no update in two of them, every ledger sound, and no update in the model that
    its hospital has not booked. The reverse is no contradiction: what was booked and then lost on the way stays spent.
    """
    versions = history(stage)
    if not versions:
        return ["no versions"]
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
