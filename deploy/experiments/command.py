"""`aegis experiment`: runs an experiment's cells, or reads the finished ones, and writes its results page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from deploy.experiments.experiment import Experiment, data_folder, run_experiment
from deploy.experiments.parts import (
    CACHE_PARTS,
    DEPLOYMENT_PARTS,
    FEDAVG_PARTS,
    LADDER_PARTS,
    LEAKAGE_PARTS,
    MASKING_PARTS,
    PRIVACY_PARTS,
    SERVER_PARTS,
    STRAGGLER_PARTS,
    SWEEP_PARTS,
)

experiment = typer.Typer(no_args_is_help=True, help="Measure what docs/results claims.")

_CORES = os.cpu_count() or 1
Jobs = Annotated[int, typer.Option(help="Processes side by side, one thread each.", min=1)]
Fresh = Annotated[bool, typer.Option(help="Forget finished cells, those on the results page among them.")]
MedMnist = Annotated[Path | None, typer.Option(help="Folder with a subfolder medmnist; else AEGIS_TEST_DATA.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the claims as JSON, nothing else.")]


@experiment.callback()
def _group() -> None:
    """Measure what docs/results claims."""


@experiment.command("fedavg")
def fedavg_command(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(FEDAVG_PARTS)}.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the MedMNIST files; else they are downloaded.")] = None,
    jobs: Jobs = _CORES,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Measure FedAvg: quality, speed and equality of both engines. Run it in the source tree; it resumes."""
    from deploy.experiments.fedavg import fedavg_cells, fedavg_claims, write_fedavg_results

    experiment = Experiment(
        slug="01-fedavg",
        parts=FEDAVG_PARTS,
        cells=lambda parts, data_root, source: fedavg_cells(parts, data_root=data_root, source=source),
        claims=fedavg_claims,
        write=write_fedavg_results,
    )
    root = data_folder(data, "medmnist")
    run_experiment(experiment, part=part, data_root=root, jobs=jobs, fresh=fresh, as_json=as_json)


@experiment.command("privacy")
def privacy_command(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(PRIVACY_PARTS)}.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with subfolders medmnist and adult; else AEGIS_TEST_DATA.")
    ] = None,
    jobs: Jobs = _CORES,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Measure privacy: accounts, noise, ledger, DP-SGD, and what it costs. Run it in the source tree; it resumes."""
    from deploy.experiments.privacy import privacy_cells, privacy_claims, write_privacy_results

    experiment = Experiment(
        slug="02-privacy",
        parts=PRIVACY_PARTS,
        cells=lambda parts, data_root, _: privacy_cells(parts, data_root=data_root),
        claims=privacy_claims,
        write=write_privacy_results,
    )
    root = data_folder(data, "")
    run_experiment(experiment, part=part, data_root=root, jobs=jobs, fresh=fresh, as_json=as_json)


@experiment.command("straggler")
def straggler_command(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(STRAGGLER_PARTS)}.")
    ] = None,
    data: MedMnist = None,
    jobs: Jobs = _CORES,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Measure asynchrony against one slow hospital, and the field case. Run it in the source tree; it resumes."""
    _run_chapter("straggler", part, data, jobs=jobs, fresh=fresh, as_json=as_json)


@experiment.command("ladder")
def ladder_command(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(LADDER_PARTS)}.")
    ] = None,
    data: MedMnist = None,
    jobs: Jobs = _CORES,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Measure what noise and asynchrony cost, one at a time. Run it in the source tree; it resumes."""
    _run_chapter("ladder", part, data, jobs=jobs, fresh=fresh, as_json=as_json)


@experiment.command("sweep")
def sweep_command(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(SWEEP_PARTS)}.")
    ] = None,
    data: MedMnist = None,
    jobs: Jobs = _CORES,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Measure noise levels against decays of staleness. Run it in the source tree; it resumes."""
    _run_chapter("sweep", part, data, jobs=jobs, fresh=fresh, as_json=as_json)


@experiment.command("server")
def server_command(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(SERVER_PARTS)}.")
    ] = None,
    jobs: Jobs = _CORES,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Measure the server itself: speed, memory, and how it stands kills. Run it in the source tree; it resumes."""
    _run_chapter("server", part, None, jobs=jobs, fresh=fresh, as_json=as_json)


@experiment.command("cache")
def cache_command(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(CACHE_PARTS)}.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the MedMNIST files; else they are downloaded.")] = None,
    jobs: Jobs = _CORES,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Measure synthetic images: their worth, what gives them away, how a build stands kills. It resumes."""
    from deploy.experiments.cache_experiment import cache_cells, cache_claims, write_cache_results

    experiment = Experiment(
        slug="04-cache",
        parts=CACHE_PARTS,
        cells=lambda parts, data_root, _: cache_cells(parts, data_root=data_root),
        claims=cache_claims,
        write=write_cache_results,
    )
    root = data_folder(data, "medmnist")
    run_experiment(experiment, part=part, data_root=root, jobs=jobs, fresh=fresh, as_json=as_json)


@experiment.command("masking")
def masking_command(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(MASKING_PARTS)}.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with subfolders medmnist, mnist and cifar10; else AEGIS_TEST_DATA.")
    ] = None,
    jobs: Jobs = _CORES,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Measure masking: accuracy, time, memory, bytes, rounding. Run it in the source tree; it resumes."""
    from deploy.experiments.masking_experiment import masking_cells, masking_claims, write_masking_results

    experiment = Experiment(
        slug="05-masking",
        parts=MASKING_PARTS,
        cells=lambda parts, data_root, _: masking_cells(parts, data_root=data_root),
        claims=masking_claims,
        write=write_masking_results,
    )
    root = data_folder(data, "")
    run_experiment(experiment, part=part, data_root=root, jobs=jobs, fresh=fresh, as_json=as_json)


@experiment.command("leakage")
def leakage_command(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(LEAKAGE_PARTS)}.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the MedMNIST files; else they are downloaded.")] = None,
    jobs: Jobs = _CORES,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Measure what a malicious server reads, under every defence. Run it in the source tree; it resumes."""
    from deploy.experiments.leakage_csv import lengthen
    from deploy.experiments.leakage_experiment import leakage_cells, leakage_claims, write_leakage_results

    experiment = Experiment(
        slug="06-leakage",
        parts=LEAKAGE_PARTS,
        cells=lambda parts, data_root, _: leakage_cells(parts, data_root=data_root),
        claims=leakage_claims,
        write=write_leakage_results,
        restore=lengthen,
    )
    root = data_folder(data, "medmnist")
    run_experiment(experiment, part=part, data_root=root, jobs=jobs, fresh=fresh, as_json=as_json)


@experiment.command("deployment")
def deployment_command(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only these parts, repeatable: {', '.join(DEPLOYMENT_PARTS)}.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the MedMNIST files; else they are downloaded.")] = None,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Measure deployment on real containers, as root beside a container engine. Run it in the source tree."""
    from deploy.experiments.deployment_experiment import (
        deployment_cells,
        deployment_claims,
        write_deployment_results,
    )

    experiment = Experiment(
        slug="07-deployment",
        parts=DEPLOYMENT_PARTS,
        cells=lambda parts, data_root, _: deployment_cells(parts, data_root=data_root),
        claims=deployment_claims,
        write=write_deployment_results,
    )
    root = data_folder(data, "medmnist")
    run_experiment(experiment, part=part, data_root=root, jobs=1, fresh=fresh, as_json=as_json)


def _run_chapter(
    command: str, part: list[str] | None, data: Path | None, *, jobs: int, fresh: bool, as_json: bool
) -> None:
    from deploy.experiments.async_experiment import run_chapter

    root = data_folder(data, "")
    run_chapter(command, part=part, data_root=root, jobs=jobs, fresh=fresh, as_json=as_json)
