"""What the machine gives: memory, processors, a graphics card, random numbers, a set clock."""

from __future__ import annotations

import time
import zoneinfo
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from deploy.doctor.checks import Check, Finding, failed, ok, skipped, warning
from deploy.doctor.machine import Machine
from deploy.doctor.volumes import GIB

_LEAST_MEMORY = 2 * GIB
_FEW_PROCESSORS = 2
_FIRST_YEAR = 2026
_LARGEST_OFFSET_H = 14
_SHOW_GPU = (
    "Start with compose.gpu.yaml as well (COMPOSE_FILE=compose.yaml:compose.gpu.yaml in .env), on a host with NVIDIA's "
    "driver and container toolkit; without a card, use the CPU image. Until then training runs on processors."
)


class OnMachine(Protocol):
    """A site of either kind."""

    @property
    def machine(self) -> Machine:
        """The machine it runs on."""


def _measure_memory(site: OnMachine) -> Finding:
    free = site.machine.memory_bytes()
    told = f"{free / GIB:.1f} GiB available"
    return failed(told) if free < _LEAST_MEMORY else ok(told)


def _count_processors(site: OnMachine) -> Finding:
    found = site.machine.processors()
    return warning(f"{found:g}") if found < _FEW_PROCESSORS else ok(f"{found:g}")


def _try_gpu(site: OnMachine) -> Finding:
    usable = site.machine.graphics_card()
    if usable is None:
        return ok("not used: this build of torch computes on processors only")
    if usable:
        return ok(usable)
    if any(site.machine.devices.glob("nvidia[0-9]*")):
        return failed("there is one, but torch cannot use it")
    return warning("none to be seen here, and torch was built for one", _SHOW_GPU)


def _ask_clock(site: OnMachine) -> Finding:
    told = site.machine.synchronised()
    if told is None:
        return skipped("this machine does not say, as containers do not; the check `clock` compares clocks")
    return ok("by NTP") if told else warning("by nobody")


def _read_time_zone(site: OnMachine) -> Finding:
    name = site.machine.environment.get("TZ", "").removeprefix(":")
    try:
        zone = zoneinfo.ZoneInfo(name) if name and not Path(name).is_absolute() else None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return warning(f"TZ={name}, which this machine does not know and takes for UTC")
    here = datetime.fromtimestamp(site.machine.now(), UTC).astimezone(zone)
    if here.year < _FIRST_YEAR:
        return warning(f"the year {here.year}")
    offset_h = (here.utcoffset() or here - here).total_seconds() / 3600
    if abs(offset_h) > _LARGEST_OFFSET_H:
        return warning(f"{offset_h:+g} h from UTC")
    return ok(f"{name or time.tzname[0]}, {offset_h:+g} h from UTC")


def _draw_random(site: OnMachine) -> Finding:
    if not site.machine.random_is_ready():
        return failed("the operating system has none to give yet")
    return ok("to be had at once")


RESOURCES: tuple[Check[OnMachine], ...] = (
    Check(
        id="memory",
        title="memory",
        expected="2 GiB available",
        mend="Give the machine or container more memory, or end what else uses it.",
        look=_measure_memory,
    ),
    Check(
        id="cpu",
        title="processors",
        expected="2",
        mend="Give the machine or container a second processor; with one, everything takes longer.",
        look=_count_processors,
    ),
    Check(
        id="entropy",
        title="random numbers of the operating system",
        expected="to be had at once",
        mend="Wait until the machine has started up; a virtual machine may need a virtio-rng device.",
        look=_draw_random,
    ),
    Check(
        id="time-synchronised",
        title="who sets this machine's clock",
        expected="NTP",
        mend="Switch on chrony, ntpd or systemd-timesyncd on the host.",
        look=_ask_clock,
    ),
    Check(
        id="time-zone",
        title="this machine's time zone",
        expected="one that this machine knows",
        mend="Set TZ to a name such as Europe/Berlin; it only changes how times are shown.",
        look=_read_time_zone,
    ),
)

GRAPHICS: tuple[Check[OnMachine], ...] = (
    Check(
        id="gpu",
        title="graphics card",
        expected="one that torch can use, where torch was built for CUDA",
        mend="Install the NVIDIA container toolkit and a driver that fits torch's CUDA version, or use the CPU image.",
        look=_try_gpu,
        limit_s=60.0,
    ),
)
