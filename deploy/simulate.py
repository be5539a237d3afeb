"""`aegis simulate`: one federation on this machine, on the virtual clock or through `flwr run`."""

from __future__ import annotations

import math
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from client_app.main import app as client_app
from deploy.exits import usage_errors
from deploy.flower_run import LocalFlower
from deploy.masking_plan import tell_plan
from deploy.outcome import finish, summary_stamp
from deploy.progress import RunProgress
from deploy.settings import load_configuration
from federation.config import Configuration, flatten
from federation.datasets.sites import load_site
from federation.errors import AegisError, ConfigurationError
from server_app.run_folder import RunFolder
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from server_app.summary import Summary


def simulate_command(  # noqa: PLR0913 - one parameter per option
    hospitals: Annotated[int, typer.Option(help="Number of simulated hospitals.", min=1)] = 6,
    engine: Annotated[
        str, typer.Option(help="virtual (one process, virtual clock) or flower (`flwr run`).")
    ] = "virtual",
    name: Annotated[str | None, typer.Option(help="Name of the run; the same as --set run.name=...")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="table.key=value, repeatable.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with configuration tables.")] = None,
    app: Annotated[Path, typer.Option(help="Folder of the Flower app.")] = Path(),
    train_seconds: Annotated[float, typer.Option(help="Virtual seconds of a training task.", min=0)] = 60.0,
    slow: Annotated[list[str] | None, typer.Option(help="INDEX=FACTOR: that hospital is so many times slower.")] = None,
    fidelity: Annotated[bool, typer.Option(help="Serialize every message as deployment does.")] = False,
    resume: Annotated[bool, typer.Option(help="Go on from the newest checkpoint.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, nothing else.")] = False,
) -> None:
    """Simulate a federation on this machine and write its run folder."""
    with usage_errors():
        overrides = {"run.name": name, "run.hospitals": hospitals, "run.resume": resume or None}
        configuration = load_configuration(app, config, assign or [], **overrides)
        timings = make_timings(hospitals, train_seconds, slow or [])
        if engine not in ("virtual", "flower"):
            raise ConfigurationError(f"Expected --engine virtual or flower, found {engine!r}.")
    folder, console = RunFolder.of(configuration.run), Console(stderr=True, quiet=as_json)
    before = summary_stamp(folder)
    try:
        load_site(configuration.data, site=0, sites=hospitals, seed=configuration.data_seed)
        tell_plan(configuration, hospitals, console)
        rounds = configuration.aggregation.rounds
        with RunProgress(folder.events, rounds, console, resume=configuration.run.resume):
            if engine == "virtual":
                simulate(configuration, client_app, timings, fidelity=fidelity)
            else:
                run_with_flower(app, configuration, hospitals, console)
    except AegisError as error:
        Console(stderr=True).print(str(error), style="red", markup=False)
        if isinstance(error, ConfigurationError):
            raise typer.Exit(2) from None
        finish(folder, as_json=as_json, failure=str(error), older=before)
    finish(folder, as_json=as_json)


def make_timings(hospitals: int, train_seconds: float, slow: Sequence[str]) -> list[SiteTiming]:
    """Return one timing per hospital.

    Args:
        hospitals: how many.
        train_seconds: virtual seconds of a training task at normal speed.
        slow: texts `INDEX=FACTOR`.

    Raises:
        ConfigurationError: a text is not of that form, or names no hospital; or a number is out of bounds.
    """
    if not 0 <= train_seconds < math.inf:
        raise ConfigurationError(f"Expected --train-seconds finite and >= 0, found {train_seconds:g}.")
    timings = [SiteTiming(train_s=train_seconds, evaluate_s=train_seconds / 12)] * hospitals
    for text in slow:
        index, _, factor = text.partition("=")
        try:
            number, times = int(index), float(factor)
        except ValueError:
            raise ConfigurationError(f"Expected --slow INDEX=FACTOR, found {text!r}.") from None
        if not 0 <= number < hospitals or not 0 < times < math.inf:
            raise ConfigurationError(
                f"Expected --slow with an index below {hospitals} and a finite factor > 0, found {text!r}."
            )
        timings[number] = timings[number].slower(times)
        if timings[number].train_s == math.inf:
            raise ConfigurationError(f"Expected --slow that leaves a finite time for training, found {text!r}.")
    return timings


def run_with_flower(app: Path, configuration: Configuration, hospitals: int, console: Console) -> Summary:
    """Run the app at `app` through `flwr run` with an own SuperLink and return its summary.

    Raises:
        RunFailedError: the run did not complete.
    """

    def show(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="aegis-flower-") as home, LocalFlower(Path(home)) as flower:
        actors = max(1, min(hospitals, os.cpu_count() or 1))
        flower.run(app, flatten(configuration), hospitals=hospitals, actors=actors, on_line=show)
    return Summary.model_validate_json(RunFolder.of(configuration.run).summary.read_text())
