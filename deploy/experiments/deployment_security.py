"""Who gets in, what changes nothing, and what is never found on the server: tried on a consortium of containers."""

from __future__ import annotations

import json
import secrets
import urllib.request
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from deploy.experiments.cells import Result
from deploy.experiments.deployment_fuzz import fuzz
from deploy.experiments.deployment_images import HOSPITAL_IMAGE
from deploy.experiments.deployment_play import await_result, playing, start_run
from deploy.experiments.deployment_stage import HOSPITALS, OWNER, Stage, docker
from deploy.experiments.deployment_watch import await_phase, find_contradictions
from federation.errors import RunFailedError

_A, _B, _C = HOSPITALS
_LIMIT_S = 1800.0
_SERVER_SIDE = ("superlink", "serverapp", "coordinator", "edge", "federation")
_PLACES = {"superlink": "/var/lib/aegis-server /tmp", "serverapp": "/runs /tmp", "edge": "/tmp"}  # noqa: S108 - theirs
_OUTSIDE = "import socket; socket.create_connection(('192.0.2.1', 443), 5)"
_STATE = """
import json, sqlite3
link = sqlite3.connect("file:/var/lib/aegis-server/superlink.db?mode=ro", uri=True)
tables = [name for name, in link.execute("select name from sqlite_master where type = 'table'")]
print(json.dumps({name: link.execute(f'select count(*) from "{name}"').fetchone()[0] for name in sorted(tables)}))
"""


def measure_security(settings: dict[str, Any], folder: Path) -> Result:
    """Return what was let in, what malformed requests changed, and where planted marks were found.

    Args:
        settings: `root` and `requests`.
        folder: not used.
    """
    del folder
    mark = f"zz{secrets.token_hex(8)}"
    with playing(settings["root"], rounds=4, mark=mark) as stage:
        _plant_in_images(stage, mark)
        closed = {name: _try(attempt, stage) for name, attempt in _ATTEMPTS.items()}
        before = _state(stage)
        url = f"https://localhost:{stage.ports['edge']}"
        fuzzed = fuzz(url, stage.consortium / "ca.crt", count=settings["requests"], seed=0)
        changed = {name: [before[name], count] for name, count in _state(stage).items() if before.get(name) != count}
        start_run(stage)
        summary = await_result(stage, limit_s=_LIMIT_S)
        found, searched = _search(stage, mark)
        contradictions = find_contradictions(stage)
        revoked = _revoke(stage)
    return {
        "closed": closed,
        "fuzzed": asdict(fuzzed),
        "changed": changed,
        "status": summary.get("status"),
        "updates": summary.get("updates_applied"),
        "contradictions": contradictions,
        "marks": found,
        "bytes-searched": searched,
        "revoked": revoked,
    }


def _plant_in_images(stage: Stage, mark: str) -> None:
    """Write the mark into a text chunk of every image, as devices write names of patients."""
    text = PngInfo()
    text.add_text("PatientName", mark)
    for path in (stage.folder / "data").rglob("*.png"):
        with Image.open(path) as image:
            image.load()
            image.save(path, pnginfo=text)


def _try(attempt: Callable[[Stage], str], stage: Stage) -> str:
    """Return an empty text where the attempt was refused, and else what came of it."""
    try:
        return attempt(stage)
    except (RunFailedError, OSError):
        return ""


def _inside(service: str, program: str) -> Callable[[Stage], str]:
    """Return an attempt that runs a program in a container and fails where the program does."""

    def attempt(stage: Stage) -> str:
        docker("exec", stage.name(service), "python", "-c", program.replace("SUPERLINK", _address(stage, "superlink")))
        return "it got through"

    return attempt


def _unregistered_node(stage: Stage) -> str:
    """Start a SuperNode with a key that nobody has registered; it must end by itself."""
    key = stage.folder / "stranger"
    if not key.exists():
        from deploy.trust.hospital_key import make_key, private_file

        key.write_bytes(private_file(make_key()))
        key.chmod(0o644)
    mounts = ("-v", f"{key}:/key:ro", "-v", f"{stage.consortium / 'ca.crt'}:/ca.crt:ro")
    node = (
        *("flower-supernode", "--superlink", "federation.example:8443", "--root-certificates", "/ca.crt"),
        *("--auth-supernode-private-key", "/key", "--max-retries", "1"),
    )
    usual = ("--rm", "--user", str(OWNER), "--network", stage.network(_A))
    docker("run", *usual, *mounts, HOSPITAL_IMAGE, "timeout", "60", *node)
    return "it was accepted"


_ATTEMPTS: dict[str, Callable[[Stage], str]] = {
    "SuperLink's port from a hospital's network": _inside(
        _A, "import socket; socket.create_connection(('SUPERLINK', 8000), 5)"
    ),
    "another hospital's network": _inside(_A, "import socket; socket.create_connection(('hospital-b', 8077), 5)"),
    "the way out of a hospital's network": _inside(
        _A, "import socket; socket.create_connection(('192.0.2.1', 443), 5)"
    ),
    "the way out of the server's network": _inside(
        "serverapp", "import socket; socket.create_connection(('192.0.2.1', 443), 5)"
    ),
    "a SuperNode with an unregistered key": _unregistered_node,
}


def _address(stage: Stage, service: str) -> str:
    networks = stage.inspect(service)["NetworkSettings"]["Networks"]
    return str(next(iter(networks.values()))["IPAddress"])


def _state(stage: Stage) -> dict[str, int]:
    """Return the number of rows in every table of the SuperLink's database."""
    rows: dict[str, int] = json.loads(docker("exec", stage.name("superlink"), "python", "-c", _STATE))
    return rows


def _search(stage: Stage, mark: str) -> tuple[list[str], int]:
    """Return where the mark stands in anything that the server has written, and how many bytes were searched."""
    found, searched = [], 0
    for service, places in _PLACES.items():
        count = f"cat $(find {places} -type f 2>/dev/null) /dev/null | wc -c"
        searched += int(docker("exec", stage.name(service), "sh", "-c", count))
        hits = docker("exec", stage.name(service), "sh", "-c", f"grep -rl {mark} {places} || true").split()
        found += [f"{service}: {path}" for path in hits]
    for service in _SERVER_SIDE:
        log = stage.compose("logs", "--no-color", service)
        searched += len(log)
        found += [f"{service}: log"] if mark in log else []
    for path in ("/", "/metrics", "/health"):
        with urllib.request.urlopen(f"http://127.0.0.1:{stage.ports['page']}{path}", timeout=30) as answer:
            page = answer.read()
        searched += len(page)
        found += [f"coordinator: {path}"] if mark.encode() in page else []
    return found, searched


def _revoke(stage: Stage) -> str:
    """Revoke a hospital that is connected, and return what its node then says."""
    stage.aegis("enrol", "revoke", _C, "--folder", str(stage.consortium))
    stage.hand_over()
    stage.compose("--profile", "enrol", "run", "--rm", "-T", "enrol")
    await_phase(stage, _C, "refused", limit_s=300.0)
    return str(stage.node_state(_C)["detail"])
