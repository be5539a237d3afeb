"""A run needs no network: it ends well in a network namespace that holds nothing but loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ISOLATE = ["unshare", "--user", "--map-root-user", "--net"]

pytestmark = pytest.mark.e2e


def can_isolate() -> bool:
    try:
        probe = subprocess.run([*ISOLATE, "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return probe.returncode == 0


@pytest.mark.skipif(not can_isolate(), reason="this machine lets nobody make a network namespace with unshare and ip")
def test_flwr_run_completes_without_any_network(tmp_path: Path) -> None:
    aegis = Path(sys.executable).with_name("aegis")
    settings = [f"run.root={tmp_path}", "data.phantom-examples=90", "data.phantom-classes=2", "aggregation.rounds=1"]
    assigned = " ".join(f"--set {text}" for text in settings)
    command = f"{aegis} simulate --engine flower --hospitals 2 --app {ROOT} --json {assigned}"

    finished = subprocess.run(
        [*ISOLATE, "sh", "-c", f"ip link set lo up && exec {command}"], capture_output=True, text=True, check=False
    )

    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["updates_applied"] == 2
