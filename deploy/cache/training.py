"""A diffusion model for a cache: loaded, trained on the permitted images, or trained further on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aegis_cache.generation.diffusion.generator import (
    STEPS,
    DiffusionGenerator,
    load_generator,
    load_network,
    save_generator,
)
from aegis_cache.generation.diffusion.network import DenoisingNetwork
from aegis_cache.generation.diffusion.training import DiffusionTraining, TrainingPlan
from aegis_cache.store.build_folder import make_private_folder
from aegis_cache.store.provenance import Provenance, Source, combine
from deploy.cache.permitted import PermittedImages
from deploy.cache.request import BuildRequest

_FEW_IMAGES = 1500
TRAINED, CHECKPOINT = "generator", "training.pt"


def load_or_train(
    request: BuildRequest,
    permitted: PermittedImages,
    folder: Path,
    provenance: Provenance,
    *,
    show: Callable[[float, str], None],
) -> DiffusionGenerator:
    """Return the generator in `request.weights`, or one that is trained on the permitted images.

    A trained one is kept in `generator/` below the cache and taken from there the next time; a training that was broken
    off goes on where it was saved.

    Args:
        request: weights, adaptation, minutes and steps.
        permitted: what may be learned from.
        folder: of the cache.
        provenance: of weights that do not say theirs.
        show: told the share that is done and the state in words.

    Raises:
        ConfigurationError: training is not allowed.
        GenerationError: weights are missing or damaged.
    """
    if request.weights is not None and not request.adapt:
        return load_generator(request.weights, steps=request.steps or STEPS, provenance=provenance)
    permitted.require_for_training()
    kept = folder / TRAINED
    if not (kept / "generator.json").is_file():
        initial, origin = None, Provenance.public()
        if request.weights is not None:
            initial, origin = load_network(request.weights)
        network = _train(request, permitted, kept, initial, show)
        save_generator(network, kept, name=_name(request, permitted), provenance=_add_training(origin, permitted))
        (kept / CHECKPOINT).unlink(missing_ok=True)
    return load_generator(kept, steps=request.steps or STEPS)


def training_plan(request: BuildRequest, images: int) -> TrainingPlan:
    """Return how to train on so many images: few ones are moved about."""
    return TrainingPlan(minutes=request.train_minutes, shift=images < _FEW_IMAGES, seed=request.seed)


def _train(
    request: BuildRequest,
    permitted: PermittedImages,
    kept: Path,
    initial: DenoisingNetwork | None,
    show: Callable[[float, str], None],
) -> DenoisingNetwork:
    images = permitted.require_for_training()
    make_private_folder(kept.parent)
    make_private_folder(kept)
    training = DiffusionTraining(
        images,
        permitted.info.classes,
        training_plan(request, len(images)),
        checkpoint=kept / CHECKPOINT,
        initial=initial,
    )
    training.run(lambda at: show(at.done, f"training: step {at.step}, loss {at.loss:.4f}"))
    return training.average


def _name(request: BuildRequest, permitted: PermittedImages) -> str:
    adapted = f", adapted from {request.weights.name}" if request.weights is not None else ""
    return f"diffusion model of {permitted.data_set}{adapted}"


def _add_training(origin: Provenance, permitted: PermittedImages) -> Provenance:
    count = 0 if permitted.train is None else len(permitted.train)
    learned = f"a diffusion model learned from {count} permitted training images, without differential privacy"
    return combine([origin, Provenance(source=Source.PRIVATE_ADAPTED, uses=(learned,))])
