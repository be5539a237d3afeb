"""A hospital's key renewed in the middle of a run, as docs/deploy/coordinator.md says: no fault, an everyday task."""

from __future__ import annotations

import shutil

from deploy.experiments.deployment_play import await_connection
from deploy.experiments.deployment_stage import Stage
from deploy.experiments.deployment_watch import await_contribution
from deploy.trust.consortium_folder import ConsortiumFolder

_REPLACED = ("kit.toml", "node.key", "node.key.pub")


def renew_key(stage: Stage, hospital: str) -> str:
    """Give a hospital a new key, let it contribute with it, end the old key, and see that the hospital stays connected.

    Returns:
        How long it took, in words.

    Raises:
        RunFailedError: it did not contribute, or is not connected.
    """
    where = ("--folder", str(stage.consortium))
    stage.aegis("enrol", "rekey", hospital, *where)
    _register(stage)
    new = sorted(stage.kit(hospital).parent.glob(f"{hospital}~*"))[-1]
    for name in _REPLACED:
        shutil.copy2(new / name, stage.kit(hospital) / name)
    stage.hand_over()
    stage.compose("restart", hospital)
    changed = await_contribution(stage, hospital)
    stage.aegis("enrol", "retire", hospital, *where)
    _register(stage)
    await_connection(stage, hospital)
    return f"contributes with the new key after {changed:.0f} s, and stays connected when the old one has ended"


def keys_of(stage: Stage, hospital: str) -> tuple[str, list[str]]:
    """Return the public key of a hospital that the consortium knows, and those that have ended."""
    found = ConsortiumFolder(path=stage.consortium).read().find(hospital)
    return found.public_key, [old.public_key for old in found.retired]


def _register(stage: Stage) -> None:
    stage.hand_over()
    stage.compose("--profile", "enrol", "run", "--rm", "-T", "enrol")
