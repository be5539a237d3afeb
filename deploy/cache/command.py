"""`aegis cache build|verify|audit|show`: a hospital's synthetic images, made and checked on its own machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from aegis_cache.store.build import CacheBuild
from aegis_cache.store.cache import Cache, open_cache
from deploy.cache import options
from deploy.cache.auditing import audit_cache, describe_audit, remove_reports
from deploy.cache.construction import (
    describe_build,
    made_for_these_images,
    make_builder,
    open_own,
    warn_of_few_images,
)
from deploy.cache.display import describe_cache, draw_sheet, show_build, show_training
from deploy.cache.generators import make_generator
from deploy.cache.permitted import PermittedImages, permit_by_policy, permit_simulated
from deploy.cache.request import BuildRequest, Place
from federation.errors import AegisError, CacheError, ConfigurationError, GenerationError

cache = typer.Typer(no_args_is_help=True, help="Synthetic images for masking: build, check and audit them.")


@cache.callback()
def _group() -> None:
    """Synthetic images for masking: build, check and audit them."""


@cache.command("build")
def build_command(
    context: typer.Context,
    folder: options.Folder,
    policy: options.Policy = None,
    assign: options.Assign = None,
    app: options.App = Path(),
    hospital: options.Hospital = 0,
    hospitals: options.Hospitals = 1,
    generator: options.Kind = "diffusion",
    weights: options.Weights = None,
    weights_are_public: options.ArePublic = False,
    adapt: options.Adapt = False,
    dp_epsilon: options.DpEpsilon = 0.0,
    dp: options.Dp = None,
    train_minutes: options.TrainMinutes = 27.0,
    steps: options.Steps = 0,
    unchecked: options.Unchecked = False,
    prompts: options.Prompts = "",
    scheduler: options.Scheduler = "",
    draw_at_once: options.DrawAtOnce = 0,
    modality: options.Modality = "generic",
    images: options.Images = 2048,
    labels: options.Labels = "as-train",
    brightness: options.Brightness = "as-generated",
    pairing: options.Pairing = "nearest",
    features: options.Features = "task",
    pass_rate: options.PassRate = 0.95,
    attempts: options.Attempts = 4.0,
    largest_ks: options.LargestKs = 0.08,
    least_overlap: options.LeastOverlap = 0.85,
    batch_size: options.BatchSize = 256,
    seed: options.Seed = 0,
    resume: options.Resume = False,
    fresh: options.Fresh = False,
    dry_run: options.DryRun = False,
    sheet: options.Sheet = None,
    as_json: options.AsJson = False,
) -> None:
    """Build a cache from a generator and the images that the policy permits. Exit code 1: nothing was published."""
    _build(context.params)


@cache.command("verify")
def verify_command(folder: options.Folder, policy: options.Policy = None, as_json: options.AsJson = False) -> None:
    """Check every byte of a cache, and with --policy that it is this hospital's. Exit code 1: it is refused."""
    with _exit_codes(as_json):
        opened, changed = open_cache(folder), False
        if policy is not None:
            permitted = permit_by_policy(policy)
            opened = open_own(folder, permitted)
            changed = not made_for_these_images(opened, permitted)
        if changed:
            raise CacheError(
                f"{folder}: expected the training images and labels that the cache was made with, found that they have "
                "changed since: build it again."
            )
    if as_json:
        typer.echo(json.dumps({"sound": True, "images": len(opened)}))
    else:
        typer.echo(f"{folder}: sound, {len(opened)} images in {len(opened.manifest.shards)} shards")


@cache.command("show")
def show_command(
    context: typer.Context,
    folder: options.Folder,
    policy: options.Policy = None,
    assign: options.Assign = None,
    app: options.App = Path(),
    hospital: options.Hospital = 0,
    hospitals: options.Hospitals = 1,
    sheet: options.Sheet = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what a cache is: images per class, generator, provenance, acceptance; with --sheet also a picture."""
    with _exit_codes(as_json):
        place = Place.of(context.params)
        opened = open_cache(folder)
        if place.sheet is not None:
            permitted = _permitted(place)
            draw_sheet(place.sheet, open_own(folder, permitted), permitted)
    _print_cache(opened, as_json=as_json)


@cache.command("audit")
def audit_command(
    context: typer.Context,
    folder: options.Folder,
    policy: options.Policy = None,
    assign: options.Assign = None,
    app: options.App = Path(),
    hospital: options.Hospital = 0,
    hospitals: options.Hospitals = 1,
    features: options.Features = "task",
    limit: Annotated[float, typer.Option(help="Largest excess share of memorized images, in pixels.")] = 0.01,
    as_json: options.AsJson = False,
) -> None:
    """Look for copies of training images, and write a report into the cache's folder; it shows patients' images.

    Exit code 0: none was found, and fewer images lie near to training images than --limit allows, with 95 % confidence.
    """
    with _exit_codes(as_json):
        permitted = _permitted(Place.of(context.params))
        found = audit_cache(open_own(folder, permitted), permitted, features, folder, limit=limit)
    typer.echo(json.dumps(found, indent=1) if as_json else "\n".join(describe_audit(found, folder)))
    raise typer.Exit(0 if found["verdict"] == "passed" else 1)


def _build(given: dict[str, Any]) -> None:
    console = Console(stderr=True, quiet=given["as_json"])
    with _exit_codes(given["as_json"]):
        place = Place.of(given)
        request = BuildRequest.of(given)
        permitted = _permitted(place)
        warn_of_few_images(request.images, _say(console))
        if request.dp_epsilon and not _train_privately(request, permitted, place, console):
            return
        if place.dry_run:
            typer.echo(json.dumps(describe_build(request, permitted), indent=1))
            return
        with show_training(console) as show:
            generator = make_generator(
                request, permitted, place.folder, fresh=place.fresh, say=_say(console), show=show
            )
        builder = make_builder(generator, permitted, request)
        if place.fresh:
            CacheBuild.discard(place.folder)
        with show_build(console, request.images) as show_batch:
            builder.run(place.folder, resume=place.resume, show=show_batch)
        remove_reports(place.folder)
        opened = open_cache(place.folder)
        if place.sheet is not None:
            draw_sheet(place.sheet, opened, permitted)
    _print_cache(opened, as_json=place.as_json)


def _train_privately(request: BuildRequest, permitted: PermittedImages, place: Place, console: Console) -> bool:
    """Return whether the build goes on; a dry run of a training that is still to come only says what it would cost."""
    try:
        from deploy.cache.private_training import PrivateTraining, find_private_generator
    except ImportError as error:
        raise GenerationError(
            f"Expected diffusers to train a generator, found {error}: pip install 'aegis-fl[generate]'."
        ) from None
    if find_private_generator(request, place.folder, place.policy, _say(console)):
        return True
    training = PrivateTraining(request, permitted, place.policy)
    if place.dry_run:
        typer.echo(json.dumps({"private-training": training.describe()}, indent=1))
        return False
    with show_training(console) as show:
        training.run(place.folder, say=_say(console), show=show)
    return True


def _permitted(place: Place) -> PermittedImages:
    assign = place.assign or []
    if place.policy is None:
        return permit_simulated(assign, place.app, hospital=place.hospital, hospitals=place.hospitals)
    if assign:
        raise ConfigurationError("Expected --policy or --set, found both: the policy alone says what a site holds.")
    return permit_by_policy(place.policy)


def _say(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(f"! {text}", style="yellow", markup=False)


def _print_cache(opened: Cache, *, as_json: bool) -> None:
    if as_json:
        typer.echo(opened.manifest.model_dump_json(by_alias=True, indent=1))
    else:
        describe_cache(opened, Console())


@contextmanager
def _exit_codes(as_json: bool) -> Iterator[None]:
    """Turn an error of the block into its text and exit code 2 for wrong usage, 1 for everything else."""
    try:
        yield
    except (AegisError, OSError) as error:
        usage = isinstance(error, ConfigurationError)
        if as_json:
            typer.echo(json.dumps({"status": "refused" if usage else "failed", "reason": str(error)}))
        else:
            Console(stderr=True).print(str(error), style="red", markup=False)
        raise typer.Exit(2 if usage else 1) from None
