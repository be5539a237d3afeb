"""What became of a federation whose server was killed: which updates are in its model, and whether all that must be.

Everything is told from the books and from the disk: the server's own counters are what is examined.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from deploy.experiments.async_kills_hospitals import INFO
from deploy.experiments.async_kills_victim import Place
from deploy.experiments.async_kills_watch import fingerprint
from federation.models import build_model
from federation.parameters import read_parameters
from server_app.summary import Summary

_NOT_COMPARED = {"wall_s", "resumed", "bytes_up", "bytes_down"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found in one federation that came to its end.

    Attributes:
        lost: updates that were held on the disk, or made part of a durable version, and are not in the model's history.
        doubled: updates that are in it more than once.
        faults: everything else that is not as it must be, a sentence each.
        dropped: updates that a server had accepted and not made durable when it was killed.
        applied: updates in the history.
        waiting: updates that are held and wait for a version that was not asked for.
    """

    lost: int
    doubled: int
    faults: list[str]
    dropped: int
    applied: int
    waiting: int


def read_book(place: Place, kind: str) -> list[dict[str, Any]]:
    """Return the lines of `kind` in the book of `place`, in order; half a line at its end is none."""
    if not place.book.exists():
        return []
    lines = place.book.read_text(encoding="utf-8").split("\n")[:-1]
    return [line for line in map(json.loads, lines) if line["kind"] == kind]


def newest_version(place: Place) -> int:
    """Return the newest durable version, -1 when there is none."""
    names = [path.stem.removeprefix("version-") for path in (place.run / "checkpoints").glob("version-*.safetensors")]
    return max(map(int, names), default=-1)


def find_kept(place: Place) -> set[str]:
    """Return the fingerprints of all updates that a killed server must not lose: in a durable version, or held."""
    durable = newest_version(place)
    history = {version: steps for version, steps in _surviving_history(place).items() if version <= durable}
    return {step["print"] for steps in history.values() for step in steps} | _find_held(place)


def _find_held(place: Place) -> set[str]:
    return {_digest_of(path) for path in (place.run / "buffer").glob("update-*.safetensors")}


def examine(place: Place, kept: set[str], unbroken: Place | None) -> Findings:
    """Compare the finished federation at `place` with its book.

    Args:
        place: where its last server came to the end.
        kept: fingerprints of updates that were found after kills.
        unbroken: the same federation whose server was never killed, where both must be the same.
    """
    history = _surviving_history(place)
    applied = Counter(step["print"] for version in sorted(history) for step in history[version])
    waiting = _find_held(place)
    kept = kept | {line["print"] for line in read_book(place, "held")}
    accepted = {line["print"] for line in read_book(place, "accepted")}
    summary = _read_summary(place)
    faults = [] if _replay(place, history) == _digest_of(place.run / "model.safetensors") else ["model differs"]
    if summary.updates_applied != sum(applied.values()):
        faults.append(f"{summary.updates_applied} updates counted, {sum(applied.values())} in the model")
    if sorted(history) != list(range(1, summary.model_version + 1)):
        faults.append(f"versions {sorted(history)} of {summary.model_version}")
    if unbroken is not None:
        faults += _compare(place, unbroken)
    return Findings(
        lost=len(kept - set(applied) - waiting),
        doubled=sum(times - 1 for times in applied.values()) + len(waiting & set(applied)),
        faults=faults,
        dropped=len(accepted - kept - set(applied)),
        applied=sum(applied.values()),
        waiting=len(waiting),
    )


def _surviving_history(place: Place) -> dict[int, list[dict[str, Any]]]:
    """Return the updates of every version; what a later server made in place of a lost version counts."""
    return {line["version"]: line["updates"] for line in read_book(place, "apply")}


def _replay(place: Place, history: dict[int, list[dict[str, Any]]]) -> str:
    """Return the digest of the model after the steps of `history`, made by the formula of FedAvgM."""
    settings = place.configure(resume=False)
    momentum, rate = settings.aggregation.server_momentum, settings.aggregation.server_learning_rate
    parameters = read_parameters(build_model(settings.model, INFO, seed=settings.run.seed))
    velocity = {name: torch.zeros_like(value) for name, value in parameters.items()}
    for version in sorted(history):
        velocity = {name: value * momentum for name, value in velocity.items()}
        for step in history[version]:
            for name, values in step["values"].items():
                velocity[name] = torch.add(velocity[name], torch.tensor(values), alpha=step["coefficient"])
        parameters = {name: torch.add(value, velocity[name], alpha=rate) for name, value in parameters.items()}
    return fingerprint(parameters)


def _compare(place: Place, unbroken: Place) -> list[str]:
    """Return what is different at `place` from a federation that was never interrupted."""
    found, expected = _read_summary(place).model_dump(), _read_summary(unbroken).model_dump()
    faults = [
        f"{key}: {found[key]} instead of {expected[key]}"
        for key in expected
        if key not in _NOT_COMPARED | {"configuration"} and found[key] != expected[key]
    ]
    same = _digest_of(place.run / "model.safetensors") == _digest_of(unbroken.run / "model.safetensors")
    return faults if same else [*faults, "model differs from the unbroken run's"]


def _read_summary(place: Place) -> Summary:
    return Summary.model_validate_json((place.run / "summary.json").read_text(encoding="utf-8"))


def _digest_of(path: Path) -> str:
    """Return the fingerprint of the tensors in the file at `path`."""
    return fingerprint(safetensors.torch.load_file(path))
