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
from deploy.cache.auditing import audit_cache
from deploy.cache.construction import describe_build, make_builder, warn_of_few_images
from deploy.cache.display import describe_cache, draw_sheet, show_build, show_training
from deploy.cache.generators import make_generator
from deploy.cache.permitted import PermittedImages, permit_by_policy, permit_simulated
from deploy.cache.request import BuildRequest, Place
from federation.errors import AegisError, ConfigurationError

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
    train_minutes: options.TrainMinutes = 27.0,
    steps: options.Steps = 0,
    prompts: options.Prompts = "generic",
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
        opened = open_cache(folder)
        if policy is not None:
            permitted, purpose = permit_by_policy(policy), opened.manifest.purpose
            own = {
                "hospital_id": permitted.hospital_id,
                "data_set": permitted.data_set,
                "class_names": permitted.info.class_names,
            }
            opened = open_cache(folder, expected=purpose.model_copy(update=own))
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
        opened = open_cache(folder)
        if sheet is not None:
            draw_sheet(sheet, opened, _permitted(Place.of(context.params)))
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

    Exit code 1: copies were found, or more images near to training images than --limit allows.
    """
    with _exit_codes(as_json):
        found = audit_cache(open_cache(folder), _permitted(Place.of(context.params)), features, folder)
    overall = found["closeness"][0]
    share, copies = overall["closer"]["excess"], found["copies"]["any"]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        typer.echo(
            f"copies of training images: {copies}\nmemorized share: {share:.4f} more than among held-out images (limit "
            f"{limit:g})\nreport, only for eyes inside the hospital: {folder / 'audit.html'}"
        )
    raise typer.Exit(1 if copies or share > limit else 0)


def _build(given: dict[str, Any]) -> None:
    place = Place.of(given)
    console = Console(stderr=True, quiet=place.as_json)
    with _exit_codes(place.as_json):
        request = BuildRequest.of(given)
        permitted = _permitted(place)
        warn_of_few_images(request.images, _say(console))
        with show_training(console) as show:
            generator = make_generator(request, permitted, place.folder, say=_say(console), show=show)
        builder = make_builder(generator, permitted, request)
        if place.dry_run:
            typer.echo(json.dumps(describe_build(builder, request, permitted), indent=1))
            return
        if place.fresh:
            CacheBuild.discard(place.folder)
        with show_build(console, request.images) as show_batch:
            builder.run(place.folder, resume=place.resume, show=show_batch)
        opened = open_cache(place.folder)
        if place.sheet is not None:
            draw_sheet(place.sheet, opened, permitted)
    _print_cache(opened, as_json=place.as_json)


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
    except AegisError as error:
        usage = isinstance(error, ConfigurationError)
        if as_json:
            typer.echo(json.dumps({"status": "refused" if usage else "failed", "reason": str(error)}))
        else:
            Console(stderr=True).print(str(error), style="red", markup=False)
        raise typer.Exit(2 if usage else 1) from None
