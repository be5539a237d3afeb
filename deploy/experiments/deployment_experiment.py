"""`aegis experiment deployment`: containers, trust, faults and attacks on the door, measured on real ones."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim, claims_as_json, claims_as_table
from deploy.experiments.deployment_faults import FAULTS
from deploy.experiments.deployment_first_update import measure_first_update
from deploy.experiments.deployment_images import EDGE_IMAGE, HOSPITAL_IMAGE, SERVER_IMAGE
from deploy.experiments.deployment_matrix import measure_faults, measure_footprint
from deploy.experiments.deployment_page import deployment_sections
from deploy.experiments.deployment_security import find_faults, measure_security
from deploy.experiments.deployment_stage import run
from federation.durable import write_durably
from federation.errors import RunFailedError

COMMAND = "aegis experiment deployment"
_REQUESTS = 12_000
_ROUNDS = 8
_FEWEST_FAULTS, _FEWEST_REFUSALS = 25, 1000
_FIRST = ("first-update", "first-update-proxy")

Results = dict[str, Result]


def deployment_cells(parts: Sequence[str], *, data_root: str) -> list[Cell]:
    """Return the cells of the named `parts`.

    Args:
        parts: of `DEPLOYMENT_PARTS`.
        data_root: folder with the MedMNIST files.
    """
    root = {"root": data_root}
    cells = {
        "doctor": [Cell(name="doctor", compute=count_doctor, settings={}, alone=True)],
        "first-update": [
            Cell(name=name, compute=measure_first_update, settings={**root, "proxy": proxy}, alone=True)
            for name, proxy in zip(_FIRST, (False, True), strict=True)
        ],
        "footprint": [
            Cell(name="footprint", compute=measure_footprint, settings={**root, "rounds": _ROUNDS}, alone=True)
        ],
        "security": [
            Cell(name="security", compute=measure_security, settings={**root, "requests": _REQUESTS}, alone=True)
        ],
        "faults": [Cell(name="faults", compute=measure_faults, settings={**root, "faults": list(FAULTS)}, alone=True)],
    }
    return [cell for part in cells if part in parts for cell in cells[part]]


def count_doctor(settings: dict[str, Any], folder: Path) -> Result:
    """Return how many seeded faults the doctor finds, and what it says of a healthy site; the tests' own sites.

    Args:
        settings: not used.
        folder: not used.

    Raises:
        RunFailedError: it missed a fault.
    """
    del settings, folder
    found: Result = json.loads(run([sys.executable, "-m", "tests.deploy.doctor.count_faults"]))
    if found["missed"] or found["found"] != found["seeded"]:
        raise RunFailedError(f"Expected every seeded fault to be found, found {found['missed']} missed.")
    return found


def deployment_claims(results: Results) -> list[Claim]:
    """Return every claim of the experiment; one whose cells are missing has no value."""
    return [*_first_claims(results), *_doctor_claims(results), *_survival_claims(results), *_cost_claims(results)]


def write_deployment_results(results: Results, made: dict[str, dict[str, str]], folder: Path) -> None:
    """Write `07-deployment.json` and `.md` into `folder`.

    Args:
        results: finished cells by name.
        made: when, where and by which code each was made.
        folder: of the results pages.
    """
    claims = deployment_claims(results)
    cells = {name: {"made": made[name], **result} for name, result in results.items()}
    content = {"command": COMMAND, "claims": claims_as_json(claims, made), "cells": cells}
    write_durably(folder / "07-deployment.json", (json.dumps(content, indent=1) + "\n").encode())
    machines = "; ".join(sorted({item["machine"] for item in made.values()}))
    sections = [
        "# 07 Deployment",
        f"Written by `{COMMAND}`; do not edit. Machine: {machines}.",
        claims_as_table(claims),
        *deployment_sections(results),
    ]
    write_durably(folder / "07-deployment.md", ("\n\n".join(part for part in sections if part) + "\n").encode())


def _claim(identity: str, target: str, values: Sequence[float], unit: str, part: str, **rest: Any) -> Claim:
    return claim(identity, target, values, unit=unit, command=f"{COMMAND} --part {part}", **rest)


def _first_claims(results: Results) -> list[Claim]:
    done = [results[name] for name in _FIRST] if all(name in results for name in _FIRST) else []
    rest: dict[str, Any] = {"part": "first-update", "cells": list(_FIRST)}
    minutes = [max(item["minutes"] for item in done)] if done else []
    each = ", ".join(f"{item['minutes']:.2f}" for item in done)
    failed = sorted({check for item in done for check in item["doctor-failed"]})
    contacted = "; ".join(", ".join(item["contacted"]) for item in done)
    return [
        _claim(
            "first_update_min",
            "<= 5",
            minutes,
            "min",
            note=f"from the first command to the first update in the model: {each} (straight, through an HTTP CONNECT "
            "proxy); under the consortium's private authority, the layers of the image in the engine already; "
            f"checks of the doctor that failed: {', '.join(failed) or 'none'}",
            **rest,
        ),
        _claim(
            "commands",
            "<= 6",
            [max(item["commands"] for item in done)] if done else [],
            "",
            note="typed by the hospital's administrator, the doctor and the making of synthetic images among them",
            **rest,
        ),
        _claim(
            "hosts_contacted",
            "== 1",
            [max(len(item["contacted"]) for item in done)] if done else [],
            "host:port",
            note=f"by packets on the bridge of the hospital's network: {contacted}",
            **rest,
        ),
    ]


def _doctor_claims(results: Results) -> list[Claim]:
    found = results.get("doctor")
    rest: dict[str, Any] = {"part": "doctor", "cells": ["doctor"]}
    note = (
        f"all of {found['seeded']} seeded faults are asked for; {found['checks']} checks of a hospital" if found else ""
    )
    target = f">= {max(_FEWEST_FAULTS, found['seeded'] if found else 0)}"
    values = [found["found"] - len(found["missed"])] if found else []
    return [
        _claim("doctor_found", target, values, "faults", note=note, **rest),
        _claim(
            "doctor_false_alarms", "== 0", [found["false-alarms"]] if found else [], "", note="a healthy site", **rest
        ),
    ]


def _survival_claims(results: Results) -> list[Claim]:
    faults = results.get("faults")
    survived = [sum(item["survived"] for item in faults["faults"])] if faults else []
    if faults and (faults["status"] != "completed" or faults["contradictions"]):
        survived = [0]
    return [
        _claim(
            "faults_survived",
            "== 12",
            survived,
            "of 12",
            "faults",
            note="in one run of three hospitals; after each, versions without gaps, no update twice, ledgers sound",
            cells=["faults"],
        ),
        *_security_claims(results.get("security")),
    ]


def _security_claims(found: Result | None) -> list[Claim]:
    fuzzed: dict[str, Any] = found["fuzzed"] if found else {}
    sound = found is not None and not find_faults(found)
    quiet = found is not None and sound and not (fuzzed["let_in"] or found["changed"])
    counts = quiet and fuzzed["refused_by_superlink"] > _FEWEST_REFUSALS
    return [
        _claim(
            "fuzzed_requests",
            ">= 10000",
            [fuzzed["answered"] if counts else 0] if found else [],
            "requests",
            "security",
            note="answered through the edge; counted only if no stranger was let in, no table of the SuperLink "
            "changed, every door was closed, and the SuperLink itself refused more than "
            f"{_FEWEST_REFUSALS}, of which there were {fuzzed.get('refused_by_superlink', 0)}; answers: "
            f"{_count_words(fuzzed.get('statuses', {}))}; to malformed requests of a registered key: "
            f"{_count_words(fuzzed.get('registered', {}))}",
            cells=["security"],
        ),
        _claim(
            "phi_markers_leaked",
            "== 0",
            [len(found["marks"])] if found and sound else [],
            "places",
            "security",
            note="a mark in every file name and PNG text chunk of three hospitals, looked for in "
            f"{found['bytes-searched'] / 1e6:.0f} MB of database, run folder, logs and pages of the server, after a "
            f"run with {found['updates']} updates and a failure whose text has the mark; the same search finds it in "
            f"{found['control']}"
            if found
            else "",
            cells=["security"],
        ),
    ]


def _count_words(statuses: dict[str, int]) -> str:
    return ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items())) or "none"


def _cost_claims(results: Results) -> list[Claim]:
    found = results.get("footprint")
    sizes = found["images-mb"] if found else {}
    rest: dict[str, Any] = {"part": "footprint", "cells": ["footprint"]}
    edge = f"; the edge {sizes[EDGE_IMAGE]:.0f} MB" if found else ""
    base = "unpacked, of which 165 MB are the base image of this machine and most of the rest is torch"
    costs = [statistics.median(found["overhead-s"])] if found and found["overhead-s"] else []
    return [
        _claim("server_image_mb", "stated", [sizes[SERVER_IMAGE]] if found else [], "MB", note=base + edge, **rest),
        _claim("hospital_image_mb", "stated", [sizes[HOSPITAL_IMAGE]] if found else [], "MB", note=base, **rest),
        _claim(
            "seconds_per_update_overhead",
            "stated",
            costs,
            "s",
            note="median from one training task to the next of a hospital, less its training: a process per task, "
            "imports, ledger, transfer; three hospitals and the server on two cores",
            **rest,
        ),
    ]
