"""`aegis cache build|verify|audit|show`: a hospital's synthetic images, made and checked on its own machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console

from aegis_cache.store.cache import Cache, open_cache
from deploy.cache import options
from deploy.cache.auditing import audit_cache, describe_audit
from deploy.cache.building import build_cache, describe_cache_build, warn_on
from deploy.cache.construction import made_for_these_images, open_own, warn_of_few_images
from deploy.cache.display import describe_cache, draw_sheet
from deploy.cache.every import build_every, describe_every, summarize
from deploy.cache.permitted import PermittedImages, permit_by_policy, permit_simulated
from deploy.cache.request import BuildRequest, Place
from deploy.exits import exit_codes
from federation.errors import CacheError, ConfigurationError

cache = typer.Typer(no_args_is_help=True, help="Synthetic images for masking: build, check and audit them.")


@cache.callback()
def _group() -> None:
    """Synthetic images for masking: build, check and audit them."""


@cache.command("build")
def build_command(
    folder: options.Folder,
    policy: options.Policy = None,
    assign: options.Assign = None,
    app: options.App = Path(),
    hospital: options.Hospital = 0,
    hospitals: options.Hospitals = 1,
    every: options.Every = False,
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
    match_moments: options.MatchMoments = False,
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
    """Build a cache from a generator and the images that the policy permits. Exit code 1: nothing was published.

    With --every, one for every simulated hospital; exit code 1: one of them has none.
    """
    _build(click.get_current_context().params)


@cache.command("verify")
def verify_command(folder: options.Folder, policy: options.Policy = None, as_json: options.AsJson = False) -> None:
    """Check every byte of a cache, and with --policy that it is this hospital's. Exit code 1: it is refused."""
    with exit_codes(as_json=as_json):
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
    with exit_codes(as_json=as_json):
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
    with exit_codes(as_json=as_json):
        permitted = _permitted(Place.of(context.params))
        found = audit_cache(open_own(folder, permitted), permitted, features, folder, limit=limit)
    typer.echo(json.dumps(found, indent=1) if as_json else "\n".join(describe_audit(found, folder)))
    raise typer.Exit(0 if found["verdict"] == "passed" else 1)


def _build(given: dict[str, Any]) -> None:
    console = Console(stderr=True, quiet=given["as_json"])
    with exit_codes(as_json=given["as_json"]):
        place = Place.of(given)
        request = BuildRequest.of(given)
        if place.every:
            _build_every(request, place, console)
            return
        permitted = _permitted(place)
        warn_of_few_images(request.images, warn_on(console))
        if place.dry_run:
            typer.echo(json.dumps(describe_cache_build(request, permitted, place, console), indent=1))
            return
        opened = build_cache(request, permitted, place, console)
    _print_cache(opened, as_json=place.as_json)


def _build_every(request: BuildRequest, place: Place, console: Console) -> None:
    warn_of_few_images(request.images, warn_on(console))
    if place.dry_run:
        typer.echo(json.dumps(describe_every(request, place, console), indent=1))
        return
    outcomes = build_every(request, place, console)
    sentence, code = summarize(outcomes)
    typer.echo(json.dumps([outcome.as_dict() for outcome in outcomes], indent=1) if place.as_json else sentence)
    raise typer.Exit(code)


def _permitted(place: Place) -> PermittedImages:
    assign = place.assign or []
    if place.policy is None:
        return permit_simulated(assign, place.app, hospital=place.hospital, hospitals=place.hospitals)
    if assign:
        raise ConfigurationError("Expected --policy or --set, found both: the policy alone says what a site holds.")
    return permit_by_policy(place.policy)


def _print_cache(opened: Cache, *, as_json: bool) -> None:
    if as_json:
        typer.echo(opened.manifest.model_dump_json(by_alias=True, indent=1))
    else:
        describe_cache(opened, Console())
