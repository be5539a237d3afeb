"""The hospital's images: there, readable, labelled, enough of them, and not to be changed from here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from client_app.policy import SitePolicy
from deploy.doctor.checks import Check, Finding, failed, ok, warning
from deploy.doctor.hospital import Hospital
from deploy.doctor.image_files import how_to_find, image_files, place
from federation.config import DataConfig
from federation.datasets.image_set import Dataset, Task
from federation.errors import AegisError

_LIMIT_S = 900.0
_PILLOW_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
_SUFFIXES = (".png", ".jpg", ".jpeg")


def _read(site: Hospital) -> Finding:
    root = Path(site.policy().data.root)
    if not root.exists():
        return failed(f"nothing at data.root = {root}")
    try:
        files = image_files(root)
    except OSError:
        return failed("a folder that this user may not list")
    if not files:
        return failed(f"no file below data.root = {root}")
    for number, path in enumerate(files, start=1):
        try:
            with path.open("rb") as file:
                file.read(1)
        except OSError:
            return failed(f"{place(number, len(files))} cannot be read", how_to_find(root, number))
    return ok(f"{len(files)} files can be read")


def _load(site: Hospital) -> Finding:
    """Load the images as a deployed hospital does; an error's text would name files, so it is not shown."""
    from federation.datasets.sites import load_own_folder  # Brings torch, which only this check needs.

    policy = site.policy()
    data = policy.data
    chosen = data.model_dump(include={"name", "root", "validation_fraction", "test_fraction"})
    try:
        dataset = load_own_folder(DataConfig().model_copy(update=chosen), seed=0)
    except (AegisError, OSError) as error:
        found = f"they cannot be loaded as {data.name!r} ({type(error).__name__})"
        return _explain_folder(Path(data.root), found) if data.name == "folder" else failed(found)
    return _judge(dataset, policy)


def _judge(dataset: Dataset, policy: SitePolicy) -> Finding:
    train, least = len(dataset.train), policy.training.min_examples
    found = (
        f"{train} training, {len(dataset.validation)} validation and {len(dataset.test)} test images; of the classes, "
        f"in the order of their names, {', '.join(map(str, _per_class(dataset)))} training images"
    )
    if train < least:
        return failed(
            f"{found}; the policy demands {least}", "Add images, or lower training.min-examples in site.toml."
        )
    if not all(_per_class(dataset)):
        return warning(f"{found}: a class has none", "Label more images; a class without images is not learnt here.")
    return ok(found)


def _per_class(dataset: Dataset) -> list[int]:
    labels = dataset.train.labels
    if dataset.info.task is Task.MULTILABEL:
        return [int(number) for number in labels.sum(axis=0)]
    return [int(number) for number in np.bincount(labels, minlength=dataset.info.classes)]


def _explain_folder(root: Path, found: str) -> Finding:
    """Return what is odd about a folder of images, in numbers."""
    classes = [path for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    if len(classes) < 2:
        return failed(f"{found}: {len(classes)} class folders, expected two at least")
    files, kinds = image_files(root), set()
    for number, path in enumerate(files, start=1):
        if path.suffix.lower() not in _SUFFIXES:
            continue
        try:
            with Image.open(path) as image:
                image.load()
                kinds.add((image.size, image.mode))
        except _PILLOW_ERRORS:
            return failed(f"{found}: {place(number, len(files))} is no readable image", how_to_find(root, number))
    if len(kinds) > 1:
        return failed(f"{found}: images of {len(kinds)} sizes or kinds, expected one")
    return failed(f"{found}: a class folder without images, an unknown layout, or a kind of image that is not read")


def _leave_alone(site: Hospital) -> Finding:
    root = Path(site.policy().data.root)
    folders = [root, *(path for path in sorted(root.iterdir()) if path.is_dir())] if root.is_dir() else [root]
    open_ones = sum(map(site.machine.may_write, folders))
    if open_ones:
        return warning(f"{open_ones} of {len(folders)} folders could be written to")
    return ok("nothing there can be written to")


CHECKS: tuple[Check[Hospital], ...] = (
    Check(
        id="data-readable",
        title="the images",
        expected="files below data.root, all readable by the node's user",
        mend="Mount the folder with the images at data.root, readable by user 10001.",
        look=_read,
        needs=("policy-syntax",),
        limit_s=_LIMIT_S,
    ),
    Check(
        id="data-labelled",
        title="classes and numbers of images",
        expected="a data set that loads as training loads it, with training.min-examples of the policy",
        mend="Arrange the images as docs/site-policy.md says for data.name.",
        look=_load,
        needs=("data-readable",),
        limit_s=_LIMIT_S,
    ),
    Check(
        id="data-read-only",
        title="whether the images can be changed from here",
        expected="they cannot",
        mend="Mount the images read-only (`:ro`).",
        look=_leave_alone,
        needs=("data-readable",),
    ),
)
