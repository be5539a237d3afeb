"""From what a person asks for to a build: purpose, filter, settings, and what to say before it begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from aegis_cache.acceptance.budget import Budget
from aegis_cache.acceptance.coverage import BINS, expected_protection
from aegis_cache.build import Builder
from aegis_cache.features.efficientnet_lite0 import EfficientNetLite0Features
from aegis_cache.features.extractor import FeatureExtractor
from aegis_cache.features.pixels import PixelFeatures
from aegis_cache.features.task_model import load_task_features, train_task_features
from aegis_cache.generation.generator import Generator
from aegis_cache.proportions import class_proportions
from aegis_cache.quotas import share_out
from aegis_cache.store.cache import Cache, open_cache, read_manifest
from aegis_cache.store.manifest import Purpose
from deploy.cache.permitted import PermittedImages
from deploy.cache.request import BuildRequest
from federation.config import ModelConfig

_ENOUGH_PROTECTION = 0.8
_FEATURE_EPOCHS = 3


def describe_purpose(permitted: PermittedImages, modality: str) -> Purpose:
    """Return what a cache for the permitted images is for."""
    return Purpose.of(permitted.info, hospital_id=permitted.hospital_id, data_set=permitted.data_set, modality=modality)


def open_own(folder: Path, permitted: PermittedImages) -> Cache:
    """Return the cache in `folder`, which must be this hospital's and for this data set.

    Raises:
        CacheError: it is damaged, or for anything else.
    """
    modality = read_manifest(folder).purpose.modality
    return open_cache(folder, expected=describe_purpose(permitted, modality))


def made_for_these_images(opened: Cache, permitted: PermittedImages) -> bool:
    """Return whether the permitted training images and labels are still those that the cache was made with."""
    found = opened.manifest.settings.get("private-images")
    return found is None or permitted.train is None or found == permitted.train.digest


def make_builder(generator: Generator, permitted: PermittedImages, request: BuildRequest) -> Builder:
    """Return the build of images of `generator`.

    Training images that may be used are always compared with, so that no copy enters, unless the request says not to.

    Raises:
        ConfigurationError: the policy does not allow what the request needs.
        GenerationError: a class has too few images to calibrate the filter on, or features cannot be loaded.
    """
    if request.uses_images:
        permitted.require("for a filter, labels other than 'balanced', or aimed brightness")
    return Builder(
        generator,
        describe_purpose(permitted, request.modality),
        request.settings,
        private=permitted.train if request.looks_at_images else None,
        budget=make_budget(permitted, request),
        uses=_uses_of_filter(permitted, request),
    )


def make_extractor(features: str, permitted: PermittedImages) -> FeatureExtractor:
    """Return the frozen extractor that `features` names, as in `BuildRequest`.

    Raises:
        ConfigurationError: images may not be used to train one.
        GenerationError: a file is missing or holds something else.
    """
    if features == "pixels":
        return PixelFeatures()
    if features == "task":
        train, _ = permitted.require("to train the features of a filter")
        return train_task_features(train, permitted.info, epochs=_FEATURE_EPOCHS, seed=0)
    path = Path(features)
    if path.suffix == ".safetensors":
        return load_task_features(path, ModelConfig(), permitted.info)
    return EfficientNetLite0Features(path)


def warn_of_few_images(images: int, say: Callable[[str], None]) -> None:
    """Say what so many images can protect at most, if that is little."""
    share = expected_protection(images)
    if share < _ENOUGH_PROTECTION:
        say(
            f"{images} synthetic images, even perfect ones, would share a bin with {share:.0%} of the real images at a "
            f"server that plants a layer of {BINS} bins; 2048 would with {expected_protection(2048):.0%}."
        )


def describe_build(request: BuildRequest, permitted: PermittedImages) -> dict[str, Any]:
    """Return what a build would do, without training, loading or writing anything.

    Raises:
        ConfigurationError: the policy does not allow what the request needs, or there are no phantoms to imitate.
    """
    info = permitted.info
    if request.generator == "phantom":
        permitted.require_phantom()
    own = None
    if request.labels != "balanced":
        train, _ = permitted.require(f"for labels {request.labels!r}")
        own = np.bincount(train.labels, minlength=info.classes)
    proportions = class_proportions(request.labels, own, info.classes)
    made = str(request.weights) if request.weights else "trained, fitted or looked up here"
    return {
        "purpose": describe_purpose(permitted, request.modality).model_dump(mode="json", by_alias=True),
        "request": request.model_dump(mode="json"),
        "generator": f"{request.generator}, {made}",
        "images": request.images,
        "bytes": request.images * (info.channels * info.height * info.width + 8),
        "per-class": dict(zip(info.class_names, share_out(request.images, proportions).tolist(), strict=True)),
        "largest-number-of-candidates": int(request.attempts * request.images),
        "expected-protection": expected_protection(request.images),
        "permitted-training-images": 0 if permitted.train is None else len(permitted.train),
        "may-train": permitted.may_train,
        "looks-at-private-images": permitted.train is not None and request.looks_at_images,
    }


def _uses_of_filter(permitted: PermittedImages, request: BuildRequest) -> list[str]:
    """Return how private images have a part in the filter itself, beside being compared with."""
    if request.pairing == "none" or permitted.train is None or permitted.held_out is None:
        return []
    uses = [f"the budget was calibrated on {len(permitted.held_out)} permitted validation images"]
    if request.features == "task":
        uses.append(f"a network trained on {len(permitted.train)} permitted training images gave the features")
    elif request.features.endswith(".safetensors"):
        uses.append("a model whose training images are not known here gave the features")
    return uses


def make_budget(permitted: PermittedImages, request: BuildRequest) -> Budget | None:
    """Return the budget by which `request` wants images accepted; None for no filter.

    Raises:
        ConfigurationError: the policy does not let images be compared.
        GenerationError: a class has too few images to calibrate on, or features cannot be loaded.
    """
    if request.pairing == "none":
        return None
    train, held_out = permitted.require("to compare candidates with")
    return Budget(
        train,
        held_out,
        permitted.info.class_names,
        make_extractor(request.features, permitted),
        pairing=request.pairing,
        pass_rate=request.pass_rate,
    )
