"""From an enrolment kit to the first update in the model, by the commands of the page that hospitals are given."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.experiments.cells import Result
from deploy.experiments.deployment_images import HOSPITAL_IMAGE, SERVER_IMAGE
from deploy.experiments.deployment_packets import Listener
from deploy.experiments.deployment_play import playing, start_run
from deploy.experiments.deployment_stage import HOSPITALS, OWNER, Stage, docker, run, wait_until
from deploy.experiments.deployment_watch import contributions
from federation.errors import RunFailedError

_DOCTOR = "cd kit && docker compose run --rm hospital aegis doctor hospital --kit /etc/aegis"
COMMANDS = (
    "docker load -i aegis-hospital.tar",
    f"chown -R {OWNER} kit",
    _DOCTOR,
    "cd kit && docker compose run --rm hospital aegis cache build /var/lib/aegis/cache --policy /etc/aegis/site.toml "
    "--generator folder --weights /etc/aegis/public --weights-are-public --filter none --labels balanced --unchecked "
    "--images 256",
    "cd kit && docker compose up -d",
)
"""What the hospital's administrator types, in the folder that was handed over; `site.toml` and `.env` are edited."""

_NEW, *_OTHERS = HOSPITALS
_PROXY = "http://proxy:3128"
_LIMIT_S = 900.0
_DOCTOR_MAY_FAIL = 1


def measure_first_update(settings: dict[str, Any], folder: Path) -> Result:
    """Return minutes from the first command to the hospital's first update in the model, and whom it talked to.

    The other hospitals and a run of theirs are up before. The hospital is a compose project of its own, on a network
    from which every packet that leaves for elsewhere is dropped, and seen.

    Args:
        settings: `root`, and `proxy`: whether the way out is an HTTP proxy.
        folder: not used.
    """
    del folder
    changes = {
        "run": {"name": "chest", "root": "/runs", "hospitals": 2, "central-evaluation": False, "evaluate-every": 50}
    }
    with playing(settings["root"], rounds=1000, hospitals=tuple(_OTHERS), changes=changes) as stage:
        start_run(stage)
        wait_until(lambda: sum(contributions(stage).values()) > 0, "a run that goes on", limit_s=_LIMIT_S)
        with _network(stage, proxy=settings["proxy"]) as network, _hand_over(stage, network, settings) as place:
            own = frozenset(_addresses(network))
            with Listener(network, besides=own) as listener:
                started = time.monotonic()
                said, failed = _type_all(place)
                wait_until(lambda: contributions(stage)[_NEW] > 0, "the first update", limit_s=_LIMIT_S)
                minutes = (time.monotonic() - started) / 60
            contacted = sorted(f"{host}:{port}" for host, port in listener.contacted)
    return {
        "minutes": minutes,
        "commands": len(COMMANDS),
        "contacted": contacted,
        "doctor": said,
        "doctor-failed": failed,
    }


@contextmanager
def _network(stage: Stage, *, proxy: bool) -> Iterator[str]:
    """Make the hospital's own network, with the edge or a proxy on it, from which nothing else is reached."""
    name = f"{stage.project}_site"
    docker("network", "create", name)
    bridge = f"br-{json.loads(docker('network', 'inspect', name))[0]['Id'][:12]}"
    rule = ["DOCKER-USER", "-i", bridge, "!", "-o", bridge, "-j", "DROP"]
    run(["iptables", "-I", *rule])
    proxy_name = f"{stage.project}-proxy"
    try:
        if proxy:
            program = ("python", "-m", "deploy.experiments.connect_proxy", "3128")
            usual = ("--user", str(OWNER), "--name", proxy_name, "--network", name, "--network-alias", "proxy")
            docker("run", "-d", "--rm", *usual, SERVER_IMAGE, *program)
            docker("network", "connect", stage.network(_NEW), proxy_name)
        else:
            docker("network", "connect", "--alias", "federation.example", name, stage.name("edge"))
        yield name
    finally:
        run(["iptables", "-D", *rule])
        if proxy:
            docker("rm", "-f", proxy_name)
        else:
            docker("network", "disconnect", "-f", name, stage.name("edge"))
        docker("network", "rm", name)


@contextmanager
def _hand_over(stage: Stage, network: str, settings: dict[str, Any]) -> Iterator[Path]:
    """Put kit and image into a folder, edited as the hospital would, and end what was started there."""
    place = stage.folder / "handed-over"
    place.mkdir()
    shutil.copytree(stage.kit(_NEW), place / "kit")
    docker("save", "-o", str(place / "aegis-hospital.tar"), HOSPITAL_IMAGE, limit_s=600)
    lines = {
        "AEGIS_HOSPITAL_IMAGE": HOSPITAL_IMAGE,
        "AEGIS_DATA": str(stage.folder / "data" / _NEW),
        "AEGIS_PAGE": "127.0.0.1:0",
    }
    lines |= {"COMPOSE_FILE": "compose.yaml:site.yaml", "COMPOSE_PROJECT_NAME": f"{stage.project}-site"}
    (place / "kit" / ".env").write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="utf-8")
    own = {"networks": {"default": {"external": True, "name": network}}}
    (place / "kit" / "site.yaml").write_text(json.dumps(own), encoding="utf-8")
    kit = place / "kit" / "kit.toml"
    if settings["proxy"]:
        kit.write_text(kit.read_text(encoding="utf-8").replace('proxy = ""', f'proxy = "{_PROXY}"'), encoding="utf-8")
    try:
        yield place
    finally:
        run(["docker", "compose", "--project-directory", str(place / "kit"), "down", "-v", "-t", "5"])


def _type_all(place: Path) -> tuple[str, list[str]]:
    """Type every command, and return what the doctor says and which of its checks failed.

    Where some did, the doctor is asked again at once for its results as JSON; the minutes that takes count.
    """
    said, failed = "", list[str]()
    for command in COMMANDS:
        done = _type(command, place)
        if command == _DOCTOR:
            said = done.stdout[-4000:]
            failed = failed_checks(_type(f"{command} --json", place).stdout) if done.returncode else []
    return said, failed


def failed_checks(text: str) -> list[str]:
    """Return the checks that failed in what the doctor says as JSON.

    Raises:
        RunFailedError: it says none, against its exit code.
    """
    failed = [item["id"] for item in json.loads(text)["results"] if item["status"] == "failed"]
    if not failed:
        raise RunFailedError("Expected the doctor to name the checks that failed, found none that did.")
    return failed


def _type(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run one of the commands as a person would; the doctor may find faults, everything else must succeed."""
    done = subprocess.run(
        ["bash", "-c", command],  # noqa: S607 - the commands of the page, as they stand there
        cwd=place,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    if done.returncode > (_DOCTOR_MAY_FAIL if "doctor" in command else 0):
        raise RunFailedError(f"`{command}` ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done


def _addresses(network: str) -> list[str]:
    """Return the addresses of who is on a network before the hospital is, and of its gateway."""
    found = json.loads(docker("network", "inspect", network))[0]
    there = [one["IPv4Address"].partition("/")[0] for one in found["Containers"].values()]
    return [*there, *(part["Gateway"] for part in found["IPAM"]["Config"])]
