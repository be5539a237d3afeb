"""Counts what the doctor finds of the seeded faults: `python -m tests.deploy.doctor.count_faults` prints JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from deploy.doctor.catalogue import HOSPITAL_CHECKS, SERVER_CHECKS
from deploy.doctor.checks import Result, Status
from tests.deploy.doctor.seeded_faults import FAULTS
from tests.deploy.doctor.seeded_server_faults import SERVER_FAULTS
from tests.deploy.doctor.server_site import healthy_server
from tests.deploy.doctor.site import failures, healthy_site


def count() -> dict[str, Any]:
    """Return how many faults were seeded into hospitals and servers, one at a time, and how many were found.

    A fault counts as found where exactly the checks fail that it belongs to; a false alarm is a failure or a warning
    on a site in perfect health.
    """
    hospital = {name: examine_hospital(name) == set(fault.expected) for name, fault in FAULTS.items()}
    server = {name: examine_server(name) == set(fault.expected) for name, fault in SERVER_FAULTS.items()}
    missed = [name for found in (hospital, server) for name, right in found.items() if not right]
    return {
        "found": sum(hospital.values()),
        "seeded": len(hospital),
        "checks": len(HOSPITAL_CHECKS),
        "server-found": sum(server.values()),
        "server-seeded": len(server),
        "server-checks": len(SERVER_CHECKS),
        "missed": missed,
        "false-alarms": count_false_alarms(),
    }


def examine_hospital(fault: str) -> set[str]:
    """Return the checks that fail at a hospital with this fault alone."""
    with tempfile.TemporaryDirectory() as folder, healthy_site(Path(folder)) as site:
        FAULTS[fault].seed(site)
        return failures(site.examine())


def examine_server(fault: str) -> set[str]:
    """Return the checks that fail at a server with this fault alone."""
    with tempfile.TemporaryDirectory() as folder, healthy_server(Path(folder)) as site:
        SERVER_FAULTS[fault].seed(site)
        return failures(site.examine())


def count_false_alarms() -> int:
    """Return how many checks fail or warn at a hospital and a server in perfect health."""
    found: list[Result] = []
    with tempfile.TemporaryDirectory() as folder, healthy_site(Path(folder)) as site:
        found += site.examine().values()
    with tempfile.TemporaryDirectory() as folder, healthy_server(Path(folder)) as server:
        found += server.examine().values()
    return sum(result.status in (Status.FAILED, Status.WARNING) for result in found)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(count(), indent=1) + "\n")
