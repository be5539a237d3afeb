"""Whose images: a hospital's own by its site policy, or those of a data set by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from aegis_cache.store.cache import open_cache
from attacks.world import World
from client_app.policy import read_policy
from federation.config import DataConfig
from federation.datasets.image_set import Dataset, ImageSet
from federation.datasets.loader import load_dataset
from federation.datasets.sites import load_own_folder
from federation.errors import CacheError, ConfigurationError, SiteError


def load_by_policy(path: Path) -> Dataset:
    """Return the images of the hospital whose site policy lies at `path`, split as its client splits them.

    Raises:
        ConfigurationError: the policy cannot be used.
        DataError: the images are missing or damaged.
    """
    try:
        own = read_policy(path).data
    except SiteError as error:
        raise ConfigurationError(str(error)) from None
    chosen = own.model_dump(include={"name", "root", "validation_fraction", "test_fraction"})
    return load_own_folder(DataConfig(**chosen), seed=0)


def load_by_name(name: str, root: Path | None) -> Dataset:
    """Return the data set called `name`, from `root` where it is read from files.

    Raises:
        ConfigurationError: there is no such data set, or it needs another root.
        DataError: the images are missing or damaged.
    """
    return load_dataset(DataConfig(name=name, root="" if root is None else str(root.absolute())), seed=0)


def load_world(name: str, root: Path | None, synthetic: Path | None) -> World:
    """Return who has which images in a simulated attack.

    Args:
        name: of the data set.
        root: of its files.
        synthetic: folder of a cache to draw synthetic images from; None: held-out real images stand in for them.

    Raises:
        ConfigurationError: there is no such data set.
        CacheError: the cache is damaged, or its images have another shape or other classes.
        DataError: images are missing or damaged, or none are left for the server.
    """
    dataset = load_by_name(name, root)
    return World.of(dataset, generated=None if synthetic is None else _draw_from(synthetic, dataset))


def _draw_from(folder: Path, dataset: Dataset) -> ImageSet:
    cache = open_cache(folder)
    purpose, info = cache.manifest.purpose, dataset.info
    wanted = (info.channels, info.height, info.width)
    if purpose.shape != wanted or purpose.class_names != info.class_names:
        raise CacheError(
            f"{folder}: expected images of shape {wanted} and classes {info.class_names}, found {purpose.shape} and "
            f"{purpose.class_names}: name a cache that was built for these data."
        )
    return ImageSet(images=cache.take(np.arange(len(cache))), labels=np.array(cache.labels))
