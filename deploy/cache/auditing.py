"""The memorization audit of a published cache against the images that its hospital permits."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from aegis_cache.audit.membership import LossOf, audit_membership
from aegis_cache.audit.memorization import audit_memorization
from aegis_cache.audit.report import NUMBERS, PAGE, as_dict, write_report
from aegis_cache.store.cache import Cache
from deploy.cache.construction import make_extractor
from deploy.cache.permitted import PermittedImages
from federation.datasets.image_set import ImageSet


def audit_cache(
    opened: Cache, permitted: PermittedImages, features: str, folder: Path, *, limit: float
) -> dict[str, Any]:
    """Return what the audit found, without any image, and write `audit.html`, which shows some, and `audit.json`.

    The verdict is "failed" where copies were found, or more images lie near to training images than `limit` allows with
    95 % confidence; "passed" where fewer do, likewise; and "undecided" where there are too few held-out images to say,
    or a class has too few to be tested.

    Args:
        opened: the cache.
        permitted: training images that it may have seen, and held-out ones that it has not.
        features: as for `make_extractor`.
        folder: where they go.
        limit: largest share of images nearer to training images than held-out ones are, beyond what these show.

    Raises:
        ConfigurationError: the policy lets no image be used.
        DataError: there are too few images, or they are of another shape.
        GenerationError: the features cannot be loaded.
    """
    train, held_out = permitted.require("to look for copies of training images")
    synthetic = ImageSet(images=opened.take(np.arange(len(opened))), labels=np.array(opened.labels))
    extractors = [] if features == "pixels" else [make_extractor(features, permitted)]
    memorization = audit_memorization(
        synthetic, train, held_out, extractors, class_names=permitted.info.class_names, seed=0
    )
    loss_of = _load_loss(folder)
    membership = audit_membership(synthetic, train, held_out, extractors, seed=0, loss_of=loss_of)
    write_report(
        folder,
        title=f"Memorization audit: {permitted.hospital_id}, {permitted.data_set}, cache of {opened.manifest.created}",
        memorization=memorization,
        membership=membership,
        synthetic=synthetic,
        train=train,
    )
    found = as_dict(memorization, membership)
    return {"created": opened.manifest.created, "verdict": _judge(found, limit), "limit": limit, **found}


def describe_audit(found: dict[str, Any], folder: Path) -> list[str]:
    """Return what a person should read of an audit, line by line."""
    overall = found["closeness"][0]["closer"]
    lines = [
        f"{found['verdict']}: copies of training images: {found['copies']['any']}; memorized: {overall['excess']:+.4f} "
        f"of the images more than among held-out ones (95 % between {overall['low']:+.4f} and {overall['high']:+.4f}, "
        f"limit {found['limit']:g})"
    ]
    if found["untested_classes"]:
        lines.append(f"not tested, for want of held-out images: {', '.join(found['untested_classes'])}")
    if found["verdict"] == "undecided":
        lines.append("undecided: there are too few held-out images; more of them, or a larger --limit, would decide it")
    lines.append(f"report, only for eyes inside the hospital: {folder / PAGE}")
    return lines


def remove_reports(folder: Path) -> None:
    """Remove the report of an older cache in `folder`."""
    for name in (PAGE, NUMBERS):
        (folder / name).unlink(missing_ok=True)


def _judge(found: dict[str, Any], limit: float) -> str:
    overall = found["closeness"][0]["closer"]
    if found["copies"]["any"] or overall["low"] > limit:
        return "failed"
    return "passed" if overall["high"] <= limit and not found["untested_classes"] else "undecided"


def _load_loss(folder: Path) -> LossOf | None:
    """Return the loss of the generator that was trained for the cache; None where there is none, or no diffusers."""
    if importlib.util.find_spec("diffusers") is None:
        return None
    from aegis_cache.generation.diffusion.generator import load_network
    from aegis_cache.generation.diffusion.losses import denoising_losses
    from deploy.cache.training import TRAINED

    if not (folder / TRAINED).is_dir():
        return None
    network, _ = load_network(folder / TRAINED)
    return lambda images, labels: denoising_losses(network, images, labels)
