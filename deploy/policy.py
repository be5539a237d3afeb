"""`aegis policy check`: says what a site policy allows before anything relies on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from aegis_cache.store.cache import read_manifest
from client_app.policy import SitePolicy, read_policy
from federation.errors import CacheError, SiteError

policy = typer.Typer(no_args_is_help=True, help="Look at a hospital's site policy; nothing is changed.")


@policy.callback()
def _group() -> None:
    """Look at a hospital's site policy; nothing is changed."""


@policy.command("check")
def check_command(
    path: Annotated[Path, typer.Argument(help="The site.toml.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """Read a site policy and say what it allows and what to think about. Exit code 2: it cannot be used."""
    try:
        found = read_policy(path)
    except SiteError as error:
        if as_json:
            typer.echo(json.dumps({"usable": False, "reason": str(error)}))
        else:
            Console(stderr=True).print(str(error), style="red", markup=False)
        raise typer.Exit(2) from None
    allows, doubts = list(describe_policy(found)), list(find_doubts(found))
    if as_json:
        content = {"usable": True, "allows": allows, "doubts": doubts, "policy": found.model_dump(by_alias=True)}
        typer.echo(json.dumps(content, indent=1))
        return
    console = Console()
    for sentence in allows:
        console.print(f"- {sentence}", markup=False)
    for sentence in doubts:
        console.print(f"! {sentence}", style="yellow", markup=False)


def describe_policy(found: SitePolicy) -> Iterator[str]:
    """Yield what `found` allows, a sentence each."""
    privacy, evaluation = found.privacy, found.evaluation
    yield f"{found.hospital_id} reads {found.data.root} ({found.data.name}), known to the ledger as {found.data.id!r}."
    private = [name for name in privacy.mechanisms if name != "none"]
    if private:
        yield (
            f"Updates leave protected by {' or '.join(private)}, at most epsilon {privacy.max_epsilon:g} at delta "
            f"{privacy.max_delta:g} over everything ever released from {found.data.id!r}, counted by the "
            f"{'account of the mechanism' if privacy.account == 'default' else privacy.account + ' account'}."
        )
    if "none" in privacy.mechanisms:
        yield "Updates may leave without protection."
    if not privacy.mechanisms:
        yield "No update leaves: privacy.mechanisms names none."
    yield f"Models trained: {', '.join(found.models.allowed) or 'none'}."
    if found.guard.enabled:
        yield "A model that looks crafted to read images is refused before it is trained."
    if found.masking.required:
        yield (
            f"Every update is masked, {' or '.join(found.masking.modes)}, by at least {found.masking.least_size} "
            "synthetic images: an empirical defence, no differential privacy."
        )
    elif found.masking.cache:
        yield f"Updates are masked where a run asks for it, with the images in {found.masking.cache}."
    if found.masking.min_per_step:
        whose = "every" if found.masking.required else "every masked"
        yield f"At least {found.masking.min_per_step} synthetic images stand beside the real ones of {whose} step."
    if found.masking.vary and (found.masking.required or found.masking.cache):
        yield "Images of masked steps are changed a little each time, synthetic and real ones alike."
    if found.outbox.folder:
        yield (
            f"The newest {found.outbox.keep} updates that leave are copied to {found.outbox.folder}, exactly as sent, "
            "with the models they started from."
        )
    scores = {"off": "No score leaves.", "noised": "Accuracy leaves with noise, and is booked; AUROC does not leave."}
    yield scores.get(evaluation.metrics, "Accuracy and AUROC leave as they are in runs without a mechanism.")


def find_doubts(found: SitePolicy) -> Iterator[str]:
    """Yield what whoever signs `found` should think about, a sentence each."""
    privacy = found.privacy
    if "none" in privacy.mechanisms:
        yield "Whoever sees an unprotected update can try to reconstruct images; after one, no epsilon holds."
    if len([name for name in privacy.mechanisms if name != "none"]) > 1:
        yield "Two mechanisms protect different units; once both were used on the data, no epsilon holds for either."
    if found.evaluation.metrics == "exact":
        yield "Exact scores on few images reveal labels."
    if not found.models.allowed or not privacy.mechanisms:
        yield "This hospital will refuse every training task."
    if not found.guard.enabled:
        yield "guard.enabled is false: a model that was crafted to read images is trained like any other."
    yield from _find_doubts_about_masking(found)
    if not Path(found.data.root).exists():
        yield f"{found.data.root} does not exist on this machine."


def _find_doubts_about_masking(found: SitePolicy) -> Iterator[str]:
    masking = found.masking
    if "sequential" in masking.modes and masking.required:
        yield "masking.modes accepts sequential, which hides hardly anything: a synthetic image weighs far less there."
    if masking.required and "interleaved" in masking.modes and not masking.min_per_step:
        yield (
            "masking.min-per-step is 0: under interleaved a run with small mini-batches has few synthetic images in a "
            "step, down to one, and a server that is content with one step has only these against it."
        )
    if masking.min_per_step and not masking.required:
        yield "masking.min-per-step without masking.required: a run without masking passes."
    if masking.required and not masking.cache:
        yield "masking.required without masking.cache: this hospital will refuse every training task."
    if not masking.cache:
        return
    try:
        provenance = read_manifest(Path(masking.cache)).provenance
    except CacheError as error:
        yield f"masking.cache cannot be used: {error}"
        return
    if provenance.is_private and "dp-sgd" in found.privacy.mechanisms:
        yield (
            f"Private images had a part in masking.cache (provenance.source = {provenance.source.value!r}): masked "
            "runs under dp-sgd will be refused, because no epsilon could be claimed."
        )
