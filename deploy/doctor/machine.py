"""What a machine says of itself, as values and functions that a test can replace."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_COMMAND_LIMIT_S = 5.0
_ENTROPY_BYTES = 32


def own_file_system(path: Path) -> str:
    """Return the type of the file system that `path` lies on, such as `ext4`; empty where nobody knows."""
    real = Path(os.path.realpath(path))
    mounts = [part for part in psutil.disk_partitions(all=True) if real.is_relative_to(part.mountpoint)]
    longest = max((len(part.mountpoint) for part in mounts), default=0)
    # Of several on one another the last is the one that shows.
    return next((part.fstype for part in reversed(mounts) if len(part.mountpoint) == longest), "")


def available_memory_bytes() -> int:
    """Return the memory that is free, or that this container may still take, whichever is less."""
    free = int(psutil.virtual_memory().available)
    limit, used = _read_number(_CGROUP / "memory.max"), _read_number(_CGROUP / "memory.current")
    if limit is None or used is None:
        return free
    return min(free, max(0, limit - used + _read_inactive()))


def processors() -> float:
    """Return the processors that this process may use; a container's quota may be a fraction."""
    allowed = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = (_CGROUP / "cpu.max").read_text(encoding="ascii").split()
        return allowed if quota == "max" else min(allowed, int(quota) / int(period))
    except (OSError, ValueError):
        return allowed


def clock_is_synchronised() -> bool | None:
    """Return whether this machine sets its clock by others; None where it does not say, as in a container."""
    asked = {
        ("timedatectl", "show", "--property=NTPSynchronized", "--value"): {"yes": True, "no": False},
        ("chronyc", "-n", "tracking"): {},
    }
    for command, answers in asked.items():
        text = _run(command)
        if text in answers:
            return answers[text]
        if "Leap status" in text:
            return "Not synchronised" not in text
    return None


def port_is_free(port: int) -> bool:
    """Return whether nobody listens on `port` of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def installed_version(name: str) -> str | None:
    """Return the installed version of the distribution `name`; None where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements() -> tuple[str, ...]:
    """Return what the installed `aegis-fl` asks for, as its metadata has it."""
    try:
        return tuple(importlib.metadata.requires("aegis-fl") or ())
    except importlib.metadata.PackageNotFoundError:
        return ()


def random_is_ready() -> bool:
    """Return whether the operating system's random numbers are to be had at once."""
    try:
        return len(os.getrandom(_ENTROPY_BYTES, os.GRND_NONBLOCK)) == _ENTROPY_BYTES
    except BlockingIOError:
        return False


def graphics_card() -> str | None:
    """Return the card that torch computes on; empty where it cannot use it, None where it was built without."""
    import torch

    if torch.version.cuda is None:
        return None
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the checks ask a machine.

    Attributes:
        environment: its variables.
        user_id: who we are.
        now: the time, in seconds since 1970.
        pause: waits for some seconds.
        owner: user id of whom a file belongs to.
        device: number of the file system that a path lies on.
        file_system: its type.
        free_bytes: what is free on it for us.
        may_write: whether we may write there.
        memory_bytes: what is free of the memory.
        processors: how many we may use.
        synchronised: whether its clock is set by others; None where it does not say.
        port_is_free: whether nobody listens on a port.
        version: of an installed distribution; None where there is none.
        requirements: what `aegis-fl` asks for.
        random_is_ready: whether random numbers are to be had at once.
        graphics_card: that torch computes on; empty where it cannot use it, None where it was built without.
        devices: folder of the devices.
        image_identity: file in which an image may say its digest.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    user_id: int = field(default_factory=os.getuid)
    now: Callable[[], float] = time.time
    pause: Callable[[float], None] = time.sleep
    owner: Callable[[Path], int] = lambda path: path.stat().st_uid
    device: Callable[[Path], int] = lambda path: path.stat().st_dev
    file_system: Callable[[Path], str] = own_file_system
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    may_write: Callable[[Path], bool] = lambda path: os.access(path, os.W_OK)
    memory_bytes: Callable[[], int] = available_memory_bytes
    processors: Callable[[], float] = processors
    synchronised: Callable[[], bool | None] = clock_is_synchronised
    port_is_free: Callable[[int], bool] = port_is_free
    version: Callable[[str], str | None] = installed_version
    requirements: Callable[[], tuple[str, ...]] = requirements
    random_is_ready: Callable[[], bool] = random_is_ready
    graphics_card: Callable[[], str | None] = graphics_card
    devices: Path = Path("/dev")
    image_identity: Path = Path("/etc/aegis-image.json")


def _run(command: tuple[str, ...]) -> str:
    """Return what `command` prints; empty where there is no such command, or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _read_number(path: Path) -> int | None:
    """Return the number in `path`; None where there is none, or no limit."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _read_inactive() -> int:
    """Return how much of the container's memory only keeps files at hand and is given back on demand."""
    try:
        lines = (_CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
