"""Part of the privacy experiment: what the three accounts say, beside dp-accounting called on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim
from federation.accounting.accounts import ACCOUNTS, account_of
from federation.accounting.events import Event, GaussianRelease, History, SampledGaussianRelease
from federation.accounting.inversion import largest_count
from federation.accounting.reference import reference_epsilon
from federation.randomness import numpy_stream

COMMAND = "aegis experiment privacy"
_HISTORIES = {"seed": 0, "histories": 250, "largest_epsilon": 10.0}
_CELLS = 4
_STOP = {"noise_multiplier": 24.22, "epsilon": 8.0, "delta": 1e-5}

# By how much PLD may exceed RDP: the grid of 1e-4 is coarse beside the privacy loss of a step that costs nothing.
RELATIVE_TOLERANCE = 0.01
ABSOLUTE_TOLERANCE = 0.02


def accounting_cells() -> list[Cell]:
    """Return the cells: where each account stops, and four times 250 random histories."""
    cells = [Cell(name="accounting-stop", compute=count_releases, settings=_STOP)]
    for index in range(_CELLS):
        settings = {**_HISTORIES, "seed": index}
        cells.append(Cell(name=f"accounting-histories-{index}", compute=compare_accounts, settings=settings))
    return cells


def accounting_claims(results: dict[str, Result]) -> list[Claim]:
    """Return the claims; one whose cells are missing has no value."""
    stop = results.get("accounting-stop")
    names = [f"accounting-histories-{index}" for index in range(_CELLS)]
    parts = [results[name] for name in names if name in results]
    others = f"RDP {stop['rdp']}, PLD {stop['pld']}" if stop else "RDP and PLD"
    return [
        claim(
            "linear_stop_releases", "== 40", [stop["linear"]] if stop else [], unit="releases", command=COMMAND,
            note=f"epsilon 8, delta 1e-5, noise multiplier 24.22; {others} releases", cells=["accounting-stop"],
        ),
        claim(
            "rdp_stop_releases", ">= 1400", [stop["rdp"]] if stop else [], unit="releases", command=COMMAND,
            note=f"as above; PLD {stop['pld'] if stop else 'too'}", cells=["accounting-stop"],
        ),
        claim(
            "accountant_histories", ">= 1000", [sum(part["held"] for part in parts)] if parts else [],
            unit="histories", command=COMMAND, note=_describe(parts), cells=[n for n in names if n in results],
        ),
    ]  # fmt: skip


def _describe(parts: list[Result]) -> str:
    drawn, violations = sum(part["histories"] for part in parts), sum(len(part["violations"]) for part in parts)
    above = max((part["largest_pld_over_rdp"] for part in parts), default=0.0)
    return (
        f"of {drawn} random ones: RDP and PLD at least what dp-accounting says, linear >= RDP, RDP >= PLD within "
        f"{RELATIVE_TOLERANCE:.0%} and {ABSOLUTE_TOLERANCE:g} (largest excess {above:.2g}); {violations} violations"
    )


def count_releases(settings: dict[str, Any], _folder: Path) -> Result:
    """Return after how many releases each account stops.

    Args:
        settings: `noise_multiplier`, `epsilon` and `delta`.
    """
    release = GaussianRelease(noise_multiplier=settings["noise_multiplier"])
    asked = {"epsilon": settings["epsilon"], "delta": settings["delta"]}
    return {name: largest_count(release, account=account, **asked) for name, account in ACCOUNTS.items()}


def compare_accounts(settings: dict[str, Any], _folder: Path) -> Result:
    """Return for how many random histories the accounts keep their order and never say less than dp-accounting.

    Args:
        settings: `seed`, number of `histories`, and `largest_epsilon` by RDP above which a history is drawn again:
            there dp-accounting's distributions would fill the memory.
    """
    source = numpy_stream(settings["seed"], "privacy-histories")
    violations, excesses, redrawn = [], [0.0], 0
    for _ in range(settings["histories"]):
        history, delta = draw_history(source)
        while account_of("rdp").epsilon(history, delta) > settings["largest_epsilon"]:
            history, delta = draw_history(source)
            redrawn += 1
        found = compare_history(history, delta)
        excesses.append(found["pld"] - found["rdp"])
        violations += [found] if found["broken"] else []
    return {
        "histories": settings["histories"],
        "held": settings["histories"] - len(violations),
        "redrawn": redrawn,
        "largest_pld_over_rdp": max(excesses),
        "violations": violations,
    }


def draw_history(source: np.random.Generator) -> tuple[History, float]:
    """Return a random history and delta: one to three kinds of releases, each up to 50 times.

    Noise multipliers lie between 0.5 and 50, sampling probabilities between 1e-4 and 1, steps between 1 and 5,000 and
    delta between 1e-9 and 1e-3, all even on a logarithmic scale.
    """
    history = History()
    for _ in range(source.integers(1, 3, endpoint=True)):
        history = history.plus(_draw_event(source), int(source.integers(1, 50, endpoint=True)))
    return history, _even(source, 1e-9, 1e-3)


def _draw_event(source: np.random.Generator) -> Event:
    noise_multiplier = _even(source, 0.5, 50)
    if source.random() < 0.5:
        return GaussianRelease(noise_multiplier=noise_multiplier)
    probability, steps = _even(source, 1e-4, 1), round(_even(source, 1, 5000))
    return SampledGaussianRelease(noise_multiplier=noise_multiplier, sampling_probability=probability, steps=steps)


def _even(source: np.random.Generator, low: float, high: float) -> float:
    return float(low * (high / low) ** source.random())


def compare_history(history: History, delta: float) -> dict[str, Any]:
    """Return what every account says, and which of the relations between them are broken."""
    said = {name: account.epsilon(history, delta) for name, account in ACCOUNTS.items()}
    reference = {f"reference_{name}": reference_epsilon(history, delta, name) for name in ("rdp", "pld")}
    broken = [name for name in ("rdp", "pld") if said[name] < reference[f"reference_{name}"]]
    if said["linear"] < said["rdp"]:
        broken.append("linear >= rdp")
    if said["pld"] > said["rdp"] * (1 + RELATIVE_TOLERANCE) + ABSOLUTE_TOLERANCE:
        broken.append("rdp >= pld")
    return {**said, **reference, "delta": delta, "broken": broken, "history": repr(dict(history.counts))}
