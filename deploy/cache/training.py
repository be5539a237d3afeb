"""A diffusion model for a cache: loaded, trained on the permitted images, or trained further on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aegis_cache.generation.diffusion.generator import (
    STEPS,
    DiffusionGenerator,
    load_generator,
    load_network,
    read_card,
    save_generator,
)
from aegis_cache.generation.diffusion.training import DiffusionTraining, TrainingPlan, identify_training
from aegis_cache.store.build_folder import make_private_folder
from aegis_cache.store.provenance import Provenance, Source, combine
from deploy.cache.permitted import PermittedImages
from deploy.cache.request import BuildRequest
from federation.errors import ConfigurationError, GenerationError

_FEW_IMAGES = 1500
TRAINED, CHECKPOINT = "generator", "training.pt"


def load_or_train(
    request: BuildRequest,
    permitted: PermittedImages,
    folder: Path,
    provenance: Provenance,
    *,
    fresh: bool,
    show: Callable[[float, str], None],
) -> DiffusionGenerator:
    """Return the generator in `request.weights`, or one that is trained on the permitted images.

    A trained one is kept in `generator/` below the cache and taken from there the next time, if the same would come of
    training it again; a training that was broken off goes on where it was saved. Where differential privacy is asked
    for, it is not trained here but, before this, by `deploy.cache.private_training`.

    Args:
        request: weights, adaptation, minutes and steps.
        permitted: what may be learned from.
        folder: of the cache.
        provenance: of weights that do not say theirs.
        fresh: whether a generator, or the state of a training, of other images or settings is replaced.
        show: told the share that is done and the state in words.

    Raises:
        ConfigurationError: training is not allowed, or lacks a class that is wanted, another generator is kept there,
            or one that is differentially private was asked for and is not there.
        GenerationError: weights are missing or damaged.
    """
    if request.weights is not None and not request.adapt:
        _require_classes(request.weights, permitted)
        return load_generator(request.weights, steps=request.steps or STEPS, provenance=provenance)
    permitted.require_for_training()
    kept = folder / TRAINED
    if request.dp_epsilon and not has_generator(kept):
        raise ConfigurationError(f"Expected a generator trained with dp-epsilon={request.dp_epsilon:g} in {kept}.")
    if not request.dp_epsilon:
        _require_examples(request, permitted)
        _train_unless_kept(request, permitted, kept, fresh=fresh, show=show)
    _require_classes(kept, permitted)
    return load_generator(kept, steps=request.steps or STEPS)


def has_generator(kept: Path) -> bool:
    """Return whether a training left its generator in the folder `kept`."""
    return (kept / "generator.json").is_file()


def training_plan(request: BuildRequest, images: int) -> TrainingPlan:
    """Return how to train on so many images: few ones are moved about."""
    return TrainingPlan(minutes=request.train_minutes, shift=images < _FEW_IMAGES, seed=request.seed)


def _train_unless_kept(
    request: BuildRequest,
    permitted: PermittedImages,
    kept: Path,
    *,
    fresh: bool,
    show: Callable[[float, str], None],
) -> None:
    images = permitted.require_for_training()
    initial, origin = (None, Provenance.public()) if request.weights is None else load_network(request.weights)
    plan = training_plan(request, len(images))
    identity = identify_training(images, permitted.info.classes, plan, initial)
    if has_generator(kept) and read_card(kept).get("identity") == identity:
        return
    if has_generator(kept) and not fresh:
        raise ConfigurationError(
            f"Expected the generator in {kept} to be of the images, settings and weights that are asked for and "
            f"permitted now, found another: pass --fresh to train anew, or --weights {kept} to use it as it is."
        )
    make_private_folder(kept.parent)
    make_private_folder(kept)
    if fresh:
        (kept / CHECKPOINT).unlink(missing_ok=True)
    training = DiffusionTraining(images, permitted.info.classes, plan, checkpoint=kept / CHECKPOINT, initial=initial)
    training.run(lambda at: show(at.done, f"training: step {at.step}, loss {at.loss:.4f}"))
    save_generator(
        training.average,
        kept,
        name=_name(request, permitted),
        provenance=_add_training(origin, permitted),
        identity=identity,
        class_names=permitted.info.class_names,
    )
    (kept / CHECKPOINT).unlink(missing_ok=True)


def _require_examples(request: BuildRequest, permitted: PermittedImages) -> None:
    """Check that a generator that begins from nothing has images of every class that the cache is to hold."""
    if request.weights is not None or request.labels == "as-train":
        return
    held = set(permitted.require_for_training().labels.tolist())
    missing = [name for label, name in enumerate(permitted.info.class_names) if label not in held]
    if missing:
        raise ConfigurationError(
            f"Expected training images of every class for --labels {request.labels}, found none of {missing}: use "
            "--labels as-train, or --weights of a generator that knows these classes."
        )


def _require_classes(folder: Path, permitted: PermittedImages) -> None:
    """Check that a generator of ours, which names its classes, was made for these."""
    if not has_generator(folder):
        return
    found = tuple(read_card(folder).get("class-names", ()))
    if found and found != permitted.info.class_names:
        raise GenerationError(
            f"Expected a generator of the classes {list(permitted.info.class_names)} in {folder}, found one of "
            f"{list(found)}."
        )


def _name(request: BuildRequest, permitted: PermittedImages) -> str:
    adapted = f", adapted from {request.weights.name}" if request.weights is not None else ""
    return f"diffusion model of {permitted.data_set}{adapted}"


def _add_training(origin: Provenance, permitted: PermittedImages) -> Provenance:
    count = 0 if permitted.train is None else len(permitted.train)
    learned = f"a diffusion model learned from {count} permitted training images, without differential privacy"
    return combine([origin, Provenance(source=Source.PRIVATE_ADAPTED, uses=(learned,))])
