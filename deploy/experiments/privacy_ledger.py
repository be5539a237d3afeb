"""How the ledger stands kills, and how fast it reserves and decides."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from client_app.ledger import Ledger, ReleaseRequest
from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim
from deploy.experiments.ledger_victim import HOSPITAL, ask
from federation.accounting.events import Event, GaussianRelease, Relation, SampledGaussianRelease, Unit
from federation.accounting.mechanism import Mechanism

COMMAND = "aegis experiment privacy"
_KILLS = 250
_ACCOUNTS = ("linear", "rdp", "pld")
_ROW_BYTES = 600
_DP_SGD = Mechanism(name="dp-sgd", relation=Relation.ADD_REMOVE, unit=Unit.RECORD, clip_norm=1.0)


def ledger_cells() -> list[Cell]:
    """Return the cells: the crash matrix, and speeds on the volume that holds the work folder."""
    matrix = {"kills": _KILLS, "seed": 0}
    speed = {"rows": 10_000, "block": 500, "decisions": 200}
    return [
        Cell(name="ledger-crashes", compute=measure_crashes, settings=matrix, alone=True),
        Cell(name="ledger-speed", compute=measure_speed, settings=speed, alone=True),
    ]


def ledger_claims(results: dict[str, Result]) -> list[Claim]:
    """Return the ledger's claims; one whose cell is missing has no value."""
    return [*_crash_claims(results.get("ledger-crashes")), *_speed_claims(results.get("ledger-speed"))]


def _crash_claims(toll: Result | None) -> list[Claim]:
    note = ""
    if toll:
        note = (
            f"SIGKILL at {len(toll['points'])} named points, {toll['releases']} releases, {toll['rows']} rows; "
            f"reservations lost beyond one per kill: {toll['lost_beyond_one']}; faults: {len(toll['faults'])}; slowest "
            f"restart {toll['slowest_restart_s']:.2f} s"
        )
    targets = {"crash_kills": ("kills", ">= 200"), "unrecorded_releases": ("", "== 0"), "double_spends": ("", "== 0")}
    return [
        _claim(name, target, [float(toll[key or name])] if toll else [], note=note, cells=["ledger-crashes"])
        for name, (key, target) in targets.items()
    ]


def _speed_claims(speed: Result | None) -> list[Claim]:
    rate: list[float] = []
    decision: list[float] = []
    rate_note = decision_note = ""
    if speed:
        rate, decision = [statistics.median(speed["reserve_per_s"])], [max(speed["decision_ms"].values())]
        rate_note = (
            f"median of {len(speed['reserve_per_s'])} blocks of {speed['block']}; writing and forcing two files bare, "
            f"in turn with it: {statistics.median(speed['bare_per_s']):.0f} per s"
        )
        decision_note = (
            f"Gaussian releases, {speed['rows']} rows, the slowest account's median; with all noise multipliers "
            f"different {speed['different_ms']:.2f} ms; a new release of DP-SGD by PLD {speed['dp_sgd_ms']:.0f} ms; "
            f"restart {speed['restart_s']:.2f} s"
        )
    cells = ["ledger-speed"]
    return [
        _claim("reserve_per_s", ">= 1000", rate, unit="per s", note=rate_note, cells=cells),
        _claim("decision_ms", "<= 1", decision, unit="ms", note=decision_note, cells=cells),
    ]


def _claim(identity: str, target: str, values: list[float], *, unit: str = "", **rest: Any) -> Claim:
    return claim(identity, target, values, unit=unit, command=COMMAND, **rest)


def measure_crashes(settings: dict[str, Any], folder: Path) -> Result:
    """Return the toll of the crash matrix, run in a program of its own on the volume of `folder`."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="crashes-") as place:
        module = "deploy.experiments.ledger_crashes"
        command = [sys.executable, "-m", module, place, str(settings["kills"]), str(settings["seed"])]
        finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    toll: Result = json.loads(finished.stdout)
    return toll


def measure_speed(settings: dict[str, Any], folder: Path) -> Result:
    """Return reservations per second while a ledger grows, bare writes in turn with them, and times of decisions.

    Args:
        settings: `rows` to grow to by blocks of `block`, and `decisions` to time for each account.
        folder: on the volume to measure.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="speed-") as place:
        root = Path(place)
        with _open(root) as ledger:
            ledger.reserve(ask("first"))
            size = settings["block"]
            rates = [_grow(ledger, root, block, size) for block in range(settings["rows"] // size)]
        started = time.perf_counter()
        with _open(root) as ledger:
            restart_s = time.perf_counter() - started
            decisions = {name: _decide(ledger, name, settings["decisions"]) for name in _ACCOUNTS}
            different_ms = _decide_on_different_events(ledger, settings["decisions"])
            dp_sgd_ms = _time_ms(lambda: ledger.require_room(_dp_sgd_request()))
    return {
        "rows": settings["rows"],
        "block": settings["block"],
        "reserve_per_s": [reserve for reserve, _ in rates],
        "bare_per_s": [bare for _, bare in rates],
        "decision_ms": decisions,
        "different_ms": different_ms,
        "dp_sgd_ms": dp_sgd_ms,
        "restart_s": restart_s,
    }


def _open(root: Path) -> Ledger:
    return Ledger.open(root / "volume", hospital_id=HOSPITAL, key_folder=root / "keys")


def _grow(ledger: Ledger, root: Path, block: int, size: int) -> tuple[float, float]:
    """Return how many reservations, and how many bare pairs of writes, were made per second."""
    requests = [ask(f"{block}-{number}") for number in range(size)]
    started = time.perf_counter()
    for request in requests:
        ledger.reserve(request)
    reserve_s = time.perf_counter() - started
    return size / reserve_s, size / _write_bare(root, size)


def _write_bare(root: Path, times: int) -> float:
    """Return the seconds that appending to one file and overwriting in another take, each forced to the disk."""
    content = bytes(_ROW_BYTES)
    with (root / "appended").open("ab") as appended, (root / "overwritten").open("wb") as overwritten:
        overwritten.write(content)
        started = time.perf_counter()
        for _ in range(times):
            appended.write(content)
            appended.flush()
            os.fdatasync(appended.fileno())
            os.pwrite(overwritten.fileno(), content, 0)
            os.fdatasync(overwritten.fileno())
        return time.perf_counter() - started


def _decide(ledger: Ledger, account: str, decisions: int) -> float:
    """Return the median time of a decision by `account`, each after one more release, in milliseconds."""
    times = []
    for number in range(decisions):
        ledger.reserve(ask(f"{account}-{number}"))
        request = replace(ask("asked"), account=account)
        times.append(_time_ms(lambda request=request: ledger.require_room(request)))  # type: ignore[misc]
    return statistics.median(times)


def _decide_on_different_events(ledger: Ledger, releases: int) -> float:
    """Return the median time of a decision where every release of a data set has noise of its own."""
    times = []
    for number in range(releases):
        request = _other_request(f"different-{number}", GaussianRelease(noise_multiplier=200.0 + number))
        times.append(_time_ms(lambda request=request: ledger.require_room(request)))  # type: ignore[misc]
        ledger.reserve(request)
    return statistics.median(times)


def _dp_sgd_request() -> ReleaseRequest:
    event = SampledGaussianRelease(noise_multiplier=1.1, sampling_probability=0.05, steps=100)
    return replace(_other_request("dp-sgd", event), mechanism=_DP_SGD, account="pld", data_set="trained")


def _other_request(message: str, event: Event) -> ReleaseRequest:
    return replace(ask(message), event=event, data_set="different")


def _time_ms(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - started)
