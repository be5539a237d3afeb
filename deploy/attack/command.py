"""`aegis attack list|run|record|table`: the malicious server, played against recorded updates or in simulation."""

# Options reach the work through typer's context, all at once.
# ruff: noqa: ARG001, PLR0913

from __future__ import annotations

from pathlib import Path

import click
import typer
from click.core import ParameterSource

from deploy.attack import options
from deploy.attack.choices import as_path
from deploy.exits import exit_codes
from deploy.extras import require_extras
from federation.errors import ConfigurationError

attack = typer.Typer(no_args_is_help=True, help="Play the malicious server: what can be read out of updates.")

_ALWAYS = frozenset({"records", "data", "data_root", "as_json"})
_WITH_RECORDS = frozenset({"images_from", "pictures"})


@attack.callback()
def _group() -> None:
    """Play the malicious server: what can be read out of updates."""


@attack.command("list")
def list_command(as_json: options.AsJson = False) -> None:
    """Show all attacks, what each needs of the server, and the baseline defences."""
    with exit_codes(as_json=as_json):
        require_extras("scipy", "skimage")
        from deploy.attack.listing import show_list

        show_list(as_json=as_json)


@attack.command("run")
def run_command(
    context: typer.Context,
    records: options.Records = None,
    images_from: options.ImagesFrom = None,
    pictures: options.Pictures = None,
    data: options.Data = None,
    data_root: options.DataRoot = None,
    attack: options.Attack = None,
    masking: options.Masking = None,
    size: options.Size = None,
    capacity: options.Capacity = None,
    mechanism: options.Mechanism = "none",
    epsilon: options.Epsilon = None,
    baseline: options.Baseline = None,
    mode: options.Mode = "gradient",
    optimizer: options.Optimizer = "adam",
    epochs: options.Epochs = 1,
    batches: options.Batches = 8,
    seeds: options.Seeds = 3,
    synthetic: options.Synthetic = None,
    name: options.Name = "simulated",
    fresh: options.Fresh = False,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Attack recorded updates, or simulated hospitals.

    With --records: what the server that sent these models could have read out of these updates. Exit code 1: a model
    looks crafted, or more images were read than a guess reaches. Without it: attacks on a simulation, of which finished
    ones are not run again.
    """
    with exit_codes(as_json=as_json):
        require_extras("scipy", "skimage")
        _separate(context, with_records=records is not None)
        if records is not None:
            _inspect(context)
        else:
            _simulate(context)


@attack.command("record")
def record_command(
    context: typer.Context,
    crafted: options.Crafted,
    out: options.RecordOut,
    data: options.RecordedData = "phantom",
    data_root: options.DataRoot = None,
    images: options.Images = 64,
    batch_size: options.BatchSize = 64,
    optimizer: options.Optimizer = "sgd",
    learning_rate: options.LearningRate = 1e-3,
    epochs: options.Epochs = 1,
    seed: options.Seed = 0,
    keep_images: options.KeepImages = None,
    as_json: options.AsJson = False,
) -> None:
    """Plant an attack's network, let the shipped client train it, and record the exchange for `run --records`."""
    with exit_codes(as_json=as_json):
        require_extras("scipy", "skimage")
        from deploy.attack.recording import RecordRequest, record_exchange

        record_exchange(RecordRequest.of(dict(context.params)), as_json=as_json)


@attack.command("table")
def table_command(folders: options.Folders, out: options.Out = None, as_json: options.AsJson = False) -> None:
    """Merge finished results into one table: per defence the worst case over attacks, with its interval and null."""
    with exit_codes(as_json=as_json):
        from deploy.attack.merging import merge

        merge(folders, out, as_json=as_json)


def _inspect(context: typer.Context) -> None:
    from deploy.attack.inspection import Whose, inspect_records

    given = dict(context.params)
    paths = {name: as_path(given[name]) for name in ("images_from", "data_root", "pictures")}
    whose = Whose(policy=paths["images_from"], data=given["data"], data_root=paths["data_root"])
    inspect_records(Path(given["records"]), whose, paths["pictures"], as_json=given["as_json"])


def _simulate(context: typer.Context) -> None:
    given = dict(context.params)
    out = as_path(given["out"])
    if out is not None:
        require_extras("matplotlib")
    from deploy.attack.request import SimulationRequest
    from deploy.attack.simulation import simulate_attacks

    simulate_attacks(SimulationRequest.of(given), fresh=given["fresh"], out=out, as_json=given["as_json"])


def _separate(context: click.Context, *, with_records: bool) -> None:
    """Check that no option was given that belongs to the other way of running.

    Raises:
        ConfigurationError: one was.
    """
    typed = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    for name in typed:
        option = f"--{name.replace('_', '-')}"
        if with_records and name not in _ALWAYS | _WITH_RECORDS:
            raise ConfigurationError(f"Expected --records without {option}, which belongs to a simulation.")
        if not with_records and name in _WITH_RECORDS:
            raise ConfigurationError(f"Expected --records with {option}: name the folder of recorded updates.")
