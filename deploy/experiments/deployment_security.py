"""Who gets in, what changes nothing, and what is never found on the server: tried on a consortium of containers."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deploy.experiments.cells import Result
from deploy.experiments.deployment_doors import open_listener, try_doors
from deploy.experiments.deployment_fuzz import fuzz
from deploy.experiments.deployment_marks import plant_in_images, provoke_failure, require_mark_at, search
from deploy.experiments.deployment_play import await_result, playing, start_run
from deploy.experiments.deployment_stage import HOSPITALS, Stage, docker
from deploy.experiments.deployment_watch import await_phase, find_contradictions
from federation.errors import RunFailedError

_A, _B, _C = HOSPITALS
_LIMIT_S = 1800.0
_ROUNDS = 16
_STATE = """
import hashlib, json, sqlite3
link = sqlite3.connect("file:/var/lib/aegis-server/superlink.db?mode=ro", uri=True)
tables = [name for name, in link.execute("select name from sqlite_master where type = 'table'")]
found = {name: link.execute(f'select count(*) from "{name}"').fetchone()[0] for name in sorted(tables)}
# The server app's own SuperExec writes a nonce with every question.
found.pop("nonce_store", None)
for name, columns in STABLE.items():
    rows = sorted(repr(row) for row in link.execute(f'select {columns} from "{name}"'))
    found[name + ": content"] = hashlib.sha256("\\n".join(rows).encode()).hexdigest()
print(json.dumps(found))
"""
STABLE = {
    "node": "node_id, owner_aid, owner_name, name, location, public_key, registered_at, unregistered_at",
    "run": "run_id, fab_id, fab_version, fab_hash, override_config, federation_id, primary_task_id, series_id",
    "task": "task_id, type, run_id, fab_hash, token, pending_at, starting_at, running_at, finished_at, sub_status",
    "fab": "fab_hash, verifications",
}
"""Columns of the SuperLink's tables that only a registration or a run changes: no heartbeat, nobody coming online."""


def measure_security(settings: dict[str, Any], folder: Path) -> Result:
    """Return what was let in, what malformed requests changed, and where planted marks were found.

    Args:
        settings: `root` and `requests`.
        folder: not used.

    Raises:
        RunFailedError: a door was open, the books disagree, the run failed, or a control shows that nothing is shown.
    """
    del folder
    mark = f"zz{secrets.token_hex(8)}"
    with playing(settings["root"], rounds=_ROUNDS, mark=mark) as stage:
        plant_in_images(stage, mark)
        open_listener(stage)
        result: Result = {"closed": try_doors(stage), **_fuzz(stage, settings["requests"])}
        start_run(stage)
        provoke_failure(stage, _B)
        summary = await_result(stage, limit_s=_LIMIT_S)
        found, searched = search(stage, mark)
        require_mark_at(stage, _B, mark)
        result |= {
            "status": summary.get("status"),
            "updates": summary.get("updates_applied"),
            "contradictions": find_contradictions(stage),
            "marks": found,
            "control": f"the log of {_B}",
            "bytes-searched": searched,
            "revoked": _revoke(stage),
        }
    if faults := find_faults(result):
        raise RunFailedError(f"Expected every door closed and the books to agree, found: {'; '.join(faults)}.")
    return result


def find_faults(result: Result) -> list[str]:
    """Return, in words, what makes a cell of this experiment worthless or worse; nothing is best."""
    faults = [f"{name}: {came}" for name, came in result["closed"].items() if came]
    faults += [] if result["closed"] else ["no door was tried"]
    faults += [] if result["revoked"] else ["a revoked hospital was not refused"]
    faults += [str(fault) for fault in result["contradictions"]]
    if result["status"] != "completed" or not result["updates"]:
        faults.append(f"the run ended as {result['status']} with {result['updates']} updates")
    faults += [] if result.get("control") else ["nothing shows that the search for marks finds any"]
    return faults


def compare(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[Any]]:
    """Return what differs between two states of the SuperLink's database: tables that come or go, too."""
    names = sorted({*before, *after})
    return {name: [before.get(name), after.get(name)] for name in names if before.get(name) != after.get(name)}


def _fuzz(stage: Stage, requests: int) -> Result:
    before = _state(stage)
    url = f"https://localhost:{stage.ports['edge']}"
    registered = (stage.kit(_C) / "node.key").read_bytes()
    fuzzed = fuzz(url, stage.consortium / "ca.crt", registered, count=requests, seed=0)
    return {"fuzzed": asdict(fuzzed), "changed": compare(before, _state(stage))}


def _state(stage: Stage) -> dict[str, Any]:
    """Return the number of rows in the tables of the SuperLink's database, and what its stable columns hold."""
    program = _STATE.replace("STABLE", repr(STABLE))
    found: dict[str, Any] = json.loads(docker("exec", stage.name("superlink"), "python", "-c", program))
    return found


def _revoke(stage: Stage) -> str:
    """Revoke a hospital that is connected, and return what its node then says."""
    stage.aegis("enrol", "revoke", _C, "--folder", str(stage.consortium))
    stage.hand_over()
    stage.compose("--profile", "enrol", "run", "--rm", "-T", "enrol")
    await_phase(stage, _C, "refused", limit_s=300.0)
    return str(stage.node_state(_C)["detail"])
