"""Twelve faults of a hospital's or the coordinator's everyday life, each done to containers in the middle of a run.

Every function does its fault, waits until the federation has come back from it, and returns what was seen, in words.
It raises `RunFailedError` where the federation does not come back.
"""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

from deploy.experiments.deployment_data import site_policy
from deploy.experiments.deployment_images import HOSPITAL_IMAGE
from deploy.experiments.deployment_marks import site_errors
from deploy.experiments.deployment_stage import HOSPITALS, HOST, Stage, docker, run, wait_until
from deploy.experiments.deployment_watch import (
    await_contribution,
    await_phase,
    await_version,
    contributions,
    events,
    refusals,
    version,
)
from federation.errors import RunFailedError

_A, _B, _C = HOSPITALS
_TASK = "aegis-clientapp"
_SHORT_CUT_S, _LONG_CUT_S = 30.0, 300.0
_SKEW = "-10m"
_FULL = {"site-error:ledger-unavailable", "site-error:internal"}
UPGRADED = "aegis-hospital:0.1.1"
SKEWED = "aegis-hospital:skewed"


def kill_hospital(stage: Stage) -> str:
    """SIGKILL the first process of a hospital's container while it trains; the engine starts the container again."""
    _await_task(stage, _A)
    before = int(stage.inspect(_A)["RestartCount"])
    os.kill(int(stage.inspect(_A)["State"]["Pid"]), signal.SIGKILL)
    wait_until(lambda: int(stage.inspect(_A)["RestartCount"]) > before, "the engine to start the container again")
    return f"contributes again after {await_contribution(stage, _A):.0f} s"


def wedge_supernode(stage: Stage) -> str:
    """Stop a SuperNode's process without ending it: its container stays up, and only the server misses it."""
    for pid in stage.processes(_B, "deploy.node.supernode"):
        os.kill(pid, signal.SIGSTOP)
    known = len(stage.node_state(_B)["restarts"])
    waited = wait_until(
        lambda: len(stage.node_state(_B).get("restarts", [])) > known,
        "the watchdog to notice",
        watch=[lambda: str(stage.node_state(_B))],
    )
    reason = stage.node_state(_B)["restarts"][-1]["reason"]
    back = await_contribution(stage, _B)
    return f'noticed after {waited:.0f} s ("{reason}"), contributes again {back:.0f} s later'


def cut_network(stage: Stage) -> str:
    """Take a hospital's network away for 30 s, then for 5 minutes; the others go on meanwhile."""
    told = []
    for seconds in (_SHORT_CUT_S, _LONG_CUT_S):
        edge, network = stage.name("edge"), stage.network(_C)
        docker("network", "disconnect", network, edge)
        before, others = version(stage), contributions(stage)
        threading.Event().wait(seconds)
        docker("network", "connect", "--alias", HOST, network, edge)
        versions = version(stage) - before
        came = sum((contributions(stage) - others)[name] for name in (_A, _B))
        back = await_contribution(stage, _C)
        if seconds == _LONG_CUT_S and not came:
            raise RunFailedError(f"Expected updates of {_A} and {_B} while {_C} was cut off, found none.")
        told.append(
            f"{seconds:.0f} s: {versions} versions and {came} updates of the others meanwhile, back in {back:.0f} s"
        )
    return "; ".join(told)


def kill_superlink(stage: Stage) -> str:
    """SIGKILL the SuperLink; its run fails, and the keeper goes on from the newest version in a new one."""
    before, life = version(stage), _life(stage, "superlink")
    os.kill(int(stage.inspect("superlink")["State"]["Pid"]), signal.SIGKILL)
    waited = await_version(stage, more=2)
    _require_another_life(stage, "superlink", life)
    return f"version {before} when it was killed, two more versions after {waited:.0f} s"


def kill_serverapp(stage: Stage) -> str:
    """SIGKILL the server app's process; the keeper resumes the run."""
    before, resumed = version(stage), _resumptions(stage)
    pids = stage.processes("serverapp", "flwr-serverapp")
    if not pids:
        raise RunFailedError("Expected a process of the server app, found none to kill.")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    waited = await_version(stage, more=2)
    if _resumptions(stage) <= resumed:
        raise RunFailedError("Expected the run to be resumed, found that it went on as if nobody had been killed.")
    return f"version {before} when it was killed, resumed, two more versions after {waited:.0f} s"


def fill_disk(stage: Stage) -> str:
    """Fill a hospital's state volume: nothing may leave that cannot be booked, and nothing be damaged."""
    before = len(events(stage))
    fill = "dd if=/dev/zero of=/var/lib/aegis/filler bs=64k; dd if=/dev/zero of=/var/lib/aegis/filler2 bs=1; true"
    try:
        docker("exec", stage.name(_A), "sh", "-c", fill)
        wait_until(
            lambda: bool(_FULL & set(site_errors(events(stage)[before:], _A))),
            f"{_A} to refuse for one of {sorted(_FULL)}",
            watch=[lambda: str(events(stage)[before:][-10:])],
            limit_s=600,
        )
        seen = ", ".join(sorted(set(site_errors(events(stage)[before:], _A))))
    finally:
        docker("exec", stage.name(_A), "sh", "-c", "rm -f /var/lib/aegis/filler /var/lib/aegis/filler2")
    return f"refused while full ({seen}); contributes again after {await_contribution(stage, _A):.0f} s"


def skew_clock(stage: Stage) -> str:
    """Set a hospital's clock back by ten minutes: it must say so and not try again and again."""
    preload = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
    faked = {"LD_PRELOAD": preload, "FAKETIME": _SKEW, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    plain = list(stage.extra)
    stage.override("skewed", {_B: {"image": SKEWED, "environment": faked}})
    try:
        stage.compose("up", "-d", "--no-deps", _B)
        await_phase(stage, _B, "clock-skewed")
        said = stage.node_state(_B)["detail"]
    finally:
        stage.extra[:] = plain
    stage.compose("up", "-d", "--no-deps", _B)
    return f'says "{said}"; contributes again {await_contribution(stage, _B):.0f} s after the clock is right'


def renew_certificate(stage: Stage) -> str:
    """Renew the server's certificate in the middle of the run: no node may be restarted, no update lost."""
    old, restarts = _served_certificate(stage), [len(stage.node_state(name)["restarts"]) for name in HOSPITALS]
    stage.aegis("enrol", "renew", "--folder", str(stage.consortium))
    stage.hand_over()
    waited = wait_until(lambda: _served_certificate(stage) != old, "the edge to serve the new certificate")
    for hospital in HOSPITALS:
        await_contribution(stage, hospital)
    if [len(stage.node_state(name)["restarts"]) for name in HOSPITALS] != restarts:
        raise RunFailedError("Expected no node to be restarted by a renewed certificate.")
    return f"served after {waited:.0f} s; every hospital contributes, none was restarted"


def restart_proxy(stage: Stage) -> str:
    """Restart the proxy in front of the server."""
    life = _life(stage, "edge")
    stage.compose("restart", "edge")
    _require_another_life(stage, "edge", life)
    for hospital in HOSPITALS:
        await_contribution(stage, hospital)
    return "every hospital contributes again"


def forge_hospital(stage: Stage) -> str:
    """Let a fourth hospital, properly enrolled, call itself by the third one's name."""
    where = ("--folder", str(stage.consortium))
    stage.aegis("enrol", "hospital", "hospital-d", *where)
    shutil.copytree(stage.kit(_C) / "public", stage.kit("hospital-d") / "public")
    kit = stage.kit("hospital-d") / "kit.toml"
    kit.write_text(kit.read_text(encoding="utf-8").replace('"hospital-d"', f'"{_C}"'), encoding="utf-8")
    stage.write_policy("hospital-d", site_policy(_C))
    stage.hand_over()
    stage.compose("--profile", "enrol", "run", "--rm", "-T", "enrol")
    before = refusals(stage)["wrong-key"]
    stage.override("forger", {"forger": _second_hospital(stage)})
    try:
        stage.compose("up", "-d", "--no-deps", "forger")
        wait_until(lambda: refusals(stage)["wrong-key"] > before, "the server to refuse the forger")
        back = await_contribution(stage, _C)
    finally:
        stage.compose("rm", "-sf", "forger")
        stage.extra.pop()
    return f"refused as wrong-key; the real {_C} contributes after {back:.0f} s"


def upgrade_hospital(stage: Stage) -> str:
    """Replace a hospital's image in the middle of the run, by one that differs in its name and environment alone."""
    stage.override("upgraded", {_A: {"image": UPGRADED}})
    stage.compose("up", "-d", "--no-deps", _A)
    back = await_contribution(stage, _A)
    if stage.inspect(_A)["Config"]["Image"] != UPGRADED:
        raise RunFailedError(f"Expected {_A} to run {UPGRADED}.")
    return (
        "contributes with the new image, which differs from the old one in its name and environment, after "
        f"{back:.0f} s, with the ledger it had"
    )


def reboot_host(stage: Stage) -> str:
    """Kill every container at once, then start them as after a reboot."""
    before = version(stage)
    docker("kill", *docker("ps", "-q", "--filter", f"label=com.docker.compose.project={stage.project}").split())
    stage.compose("--profile", "run", "up", "-d")
    waited = wait_until(lambda: version(stage) >= before + 2, "two more versions", limit_s=900)
    return f"version {before} when everything was killed, two more versions after {waited:.0f} s"


FAULTS: dict[str, Callable[[Stage], str]] = {
    "hospital killed in training": kill_hospital,
    "SuperNode wedged": wedge_supernode,
    "network cut": cut_network,
    "SuperLink killed": kill_superlink,
    "server app killed": kill_serverapp,
    "disk full at the hospital": fill_disk,
    "clock ten minutes off": skew_clock,
    "certificate renewed": renew_certificate,
    "proxy restarted": restart_proxy,
    "hospital id used twice": forge_hospital,
    "hospital image upgraded": upgrade_hospital,
    "host rebooted": reboot_host,
}


def make_fault_images() -> None:
    """Build the image that the upgrade takes, and one whose clock can be set apart from this machine's."""
    builds = {
        UPGRADED: f"FROM {HOSPITAL_IMAGE}\nENV AEGIS_IMAGE={UPGRADED}\n",
        SKEWED: (
            f"FROM {HOSPITAL_IMAGE}\nUSER root\nRUN apt-get update -qq && apt-get install -y -qq libfaketime\n"
            "USER 10001:10001\n"
        ),
    }
    for image, text in builds.items():
        run(["docker", "build", "-q", "-t", image, "-"], given=text)


def make_small_volume(folder: Path, *, megabytes: int) -> Path:
    """Return a folder that holds so much and no more: a file system of its own in one file; root's business."""
    image, mount = folder / "small.img", folder / "small"
    mount.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(megabytes * 2**20)
    run(["mkfs.ext4", "-q", str(image)])
    run(["mount", "-o", "loop", str(image), str(mount)])
    shutil.rmtree(mount / "lost+found")
    os.chown(mount, 10001, 10001)
    mount.chmod(0o700)
    return mount


def _second_hospital(stage: Stage) -> dict[str, object]:
    return {
        "image": HOSPITAL_IMAGE,
        "user": "10001:10001",
        "read_only": True,
        "init": True,
        "tmpfs": ["/tmp:mode=1777,size=1g"],  # noqa: S108 - within the container
        "volumes": [f"{stage.kit('hospital-d')}:/etc/aegis:ro", f"{stage.folder / 'data' / _C}:/data:ro"],
        "networks": [_C],
    }


def _life(stage: Stage, service: str) -> tuple[int, str]:
    found = stage.inspect(service)
    return int(found["RestartCount"]), str(found["State"]["StartedAt"])


def _require_another_life(stage: Stage, service: str, before: tuple[int, str]) -> None:
    if _life(stage, service)[1] == before[1]:
        raise RunFailedError(f"Expected the container of {service} to have been started again since {before[1]}.")


def _resumptions(stage: Stage) -> int:
    return sum(event["event"] == "resume" for event in events(stage))


def _await_task(stage: Stage, hospital: str) -> None:
    wait_until(lambda: bool(stage.processes(hospital, _TASK)), f"a task at {hospital}", limit_s=300)


def _served_certificate(stage: Stage) -> str:
    return ssl.get_server_certificate(("127.0.0.1", stage.ports["edge"]))
