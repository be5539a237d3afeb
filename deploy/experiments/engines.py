"""Engines against each other: rounds per second of `flwr run` and the virtual grid, and equality of their results."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import safetensors.torch
import tomli_w

from client_app.main import app as client_app
from deploy.experiments.cells import Cell, Result
from deploy.experiments.noop_app import app as noop_app
from deploy.experiments.stock_app import TIMES_FILE
from deploy.flower_run import LocalFlower
from federation.config import Configuration, flatten, parse_configuration
from federation.parameters import digest
from server_app.run_folder import RunFolder
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming

_HOSPITALS, _SAMPLED = 100, 10
_NOOP = {
    "aggregation.sample-count": _SAMPLED,
    "run.central-evaluation": False,
    "run.hospital-evaluation": False,
    "run.allow-silent-hospitals": True,
    "run.keep-checkpoints": 1,
    "run.hospitals": _HOSPITALS,
}
_SMALL = {
    "data.name": "phantom",
    "data.site-shift": 0.15,
    "data.phantom-examples": 600,
    "aggregation.rounds": 3,
    "aggregation.sample-count": 2,
    "run.hospitals": 3,
    "run.allow-silent-hospitals": True,
}
_SHIPPED = ("federation", "aegis_cache", "client_app", "server_app")


def engine_cells(source: Path) -> list[Cell]:
    """Return the cells that compare engines, for the source tree at `source`."""
    rates = {"source": str(source), "flower_rounds": 8, "virtual_rounds": 100, "configuration": _NOOP}
    return [
        Cell(name="engine-rates", compute=measure_rates, settings=rates, alone=True),
        Cell(name="engines-equal", compute=compare_results, settings={"source": str(source), **_SMALL}, alone=True),
    ]


def measure_rates(settings: dict[str, Any], folder: Path) -> Result:
    """Return rounds per second of no-op rounds (10 of 100 hospitals, 1.67 million parameters).

    "virtual" and "flower" run our server, on the virtual grid and by `flwr run`, with the defaults, so with a
    checkpoint of every version; "virtual_rare_checkpoints" writes every tenth; "stock" is `flwr run` with Flower's
    own FedAvg strategy, which writes none. Rates count from the end of the first round: start-up
    and enrolment do not count.
    """
    rates = {}
    rounds = settings["virtual_rounds"]
    virtual = _configure(folder, {**_NOOP, "run.name": "noop-virtual", "aggregation.rounds": rounds})
    simulate(virtual, noop_app, [SiteTiming()] * _HOSPITALS)
    rates["virtual"] = _rate(virtual)
    sweep = _configure(
        folder, {**_NOOP, "run.name": "noop-sweep", "aggregation.rounds": rounds, "run.checkpoint-every": 10}
    )
    simulate(sweep, noop_app, [SiteTiming()] * _HOSPITALS)
    rates["virtual_rare_checkpoints"] = _rate(sweep)
    flower = _configure(folder, {**_NOOP, "run.name": "noop-flower", "aggregation.rounds": settings["flower_rounds"]})
    with tempfile.TemporaryDirectory(prefix="aegis-noop-") as place:
        source, app, home = Path(settings["source"]), Path(place) / "app", Path(place) / "home"
        copy_app(source, app / "ours", {"clientapp": "deploy.experiments.noop_app:app"})
        stock = {"clientapp": "deploy.experiments.stock_app:client", "serverapp": "deploy.experiments.stock_app:server"}
        copy_app(source, app / "stock", stock)
        with LocalFlower(home) as superlink:
            for name in ("ours", "stock"):
                superlink.run(
                    app / name, flatten(flower), hospitals=_HOSPITALS, actors=os.cpu_count() or 1, on_line=_ignore
                )
    rates["flower"] = _rate(flower)
    times = json.loads((Path(flower.run.root) / TIMES_FILE).read_text(encoding="utf-8"))
    rates["stock"] = (len(times) - 1) / (times[-1] - times[0])
    return {
        "rounds_per_s": rates,
        "speedup": rates["virtual"] / rates["flower"],
        "speedup_over_stock": rates["virtual"] / rates["stock"],
        "speedup_over_stock_rare_checkpoints": rates["virtual_rare_checkpoints"] / rates["stock"],
    }


def compare_results(settings: dict[str, Any], folder: Path) -> Result:
    """Return the digests of the final parameters of the same federation in `flwr run` and on the virtual grid."""
    flat = {key: value for key, value in settings.items() if key != "source"}
    virtual = _configure(folder, {**flat, "run.name": "equal-virtual"})
    fidelity = _configure(folder, {**flat, "run.name": "equal-fidelity"})
    flower = _configure(folder, {**flat, "run.name": "equal-flower"})
    sites = [SiteTiming()] * settings["run.hospitals"]
    simulate(virtual, client_app, sites)
    simulate(fidelity, client_app, sites, fidelity=True)
    with tempfile.TemporaryDirectory(prefix="aegis-equal-") as home, LocalFlower(Path(home)) as superlink:
        superlink.run(
            Path(settings["source"]), flatten(flower), hospitals=len(sites), actors=os.cpu_count() or 1, on_line=_ignore
        )
    digests = {item.run.name: _digest(item) for item in (virtual, fidelity, flower)}
    return {"digests": digests, "equal": len(set(digests.values())) == 1}


def _configure(folder: Path, settings: dict[str, Any]) -> Configuration:
    return parse_configuration({**flatten(Configuration()), **settings, "run.root": str((folder / "runs").absolute())})


def _rate(configuration: Configuration) -> float:
    lines = RunFolder.of(configuration.run).events.read_text(encoding="utf-8").splitlines()
    applied = [event["wall_s"] for event in map(json.loads, lines) if event["event"] == "apply"]
    return float((len(applied) - 1) / (applied[-1] - applied[0]))


def _digest(configuration: Configuration) -> str:
    return digest(safetensors.torch.load_file(RunFolder.of(configuration.run).model))


def copy_app(source: Path, target: Path, components: dict[str, str]) -> None:
    """Copy the app at `source` with other components, whose modules Flower finds in the installation."""
    target.mkdir(parents=True)
    for package in _SHIPPED:
        shutil.copytree(source / package, target / package)
    for name in ("README.md", "LICENSE"):
        shutil.copy(source / name, target)
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    project["tool"]["flwr"]["app"]["components"].update(components)
    (target / "pyproject.toml").write_text(tomli_w.dumps(project), encoding="utf-8")


def _ignore(line: str) -> None:
    """Drop a line of output."""
