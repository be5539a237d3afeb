"""One hospital's part of a data set: a simulated hospital's share, or a deployed hospital's own folder.

Simulated hospitals of one process share one loaded data set and one partition; every array returned is read-only, so
that none can disturb another's. What lies on disk is read once per process.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from federation.config.tables import DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet
from federation.datasets.loader import load_dataset, make_read_only
from federation.datasets.medmnist_catalogue import MEDMNIST_2D
from federation.datasets.root import absolute_root
from federation.datasets.wavelet_features import replace_by_features
from federation.errors import ConfigurationError, DataError, PartitionError
from federation.partitioning import SiteIndices, assign, check_split_sizes
from federation.randomness import numpy_stream

_LARGEST_GAIN_CHANGE = 0.5
_LARGEST_OFFSET = 64.0


def load_site(data: DataConfig, *, site: int, sites: int, seed: int) -> Dataset:
    """Return what the simulated hospital number `site` holds, its intensities shifted as by a scanner of its own.

    Args:
        data: which images, how they are divided, and the strength of the shift.
        site: the hospital's number, from 0.
        sites: the number of hospitals. Under `by-file` there may be fewer hospitals than files, never more.
        seed: the simulation's seed.

    Raises:
        PartitionError: there is no such hospital, or the data cannot be divided like that.
        DataError: the data are missing or damaged, or the hospitals' files disagree on classes or image shape.
        ConfigurationError: `data.name` or `data.root` does not serve.
    """
    _check_site(site, sites)
    if data.features == "wavelet":
        return _load_features(data.model_copy(update={"features": "none"}), site, sites, seed)
    if data.partition == "by-file":
        part = _load_entry(data, site, sites, seed)
    else:
        part = _take(_load(data, seed), data, site, sites, seed)
    return part.map_splits(lambda split: _shift_split(split, strength=data.site_shift, site=site, seed=seed))


def load_union_test(data: DataConfig, *, sites: int, seed: int) -> ImageSet:
    """Return the test splits of all simulated hospitals, shifted as theirs are, one after another in site order.

    Args:
        data: as for `load_site`.
        sites: the number of hospitals.
        seed: the simulation's seed.

    Raises:
        PartitionError: the data cannot be divided like that.
        DataError: the data are missing or damaged, or the hospitals' files disagree on classes or image shape.
        ConfigurationError: `data.name` or `data.root` does not serve.
    """
    _check_site(0, sites)
    tests = [load_site(data, site=site, sites=sites, seed=seed).test for site in range(sites)]
    return make_read_only(ImageSet.concatenate(tests))


def load_own_folder(data: DataConfig, *, seed: int) -> Dataset:
    """Return everything at `data.root`, which belongs to one deployed hospital: nothing is divided or shifted.

    Data that bring no split of their own are split by `seed`, equally at every start while the files are the same.

    Args:
        data: which kind of data lie at `root`; `partition` and `site_shift` are for simulations and ignored.
        seed: decides the split only.

    Raises:
        ConfigurationError: `data.root` is empty or relative, or `data.name` reads no files.
        DataError: the data are missing or damaged.
    """
    if data.name == "phantom":
        raise ConfigurationError(
            "Expected data.name to say what a deployed hospital's own files are, found 'phantom', which reads none: "
            "use 'folder', 'npz' or a MedMNIST name."
        )
    absolute_root(data)
    dataset = load_dataset(data, seed=seed)
    return replace_by_features(dataset) if data.features == "wavelet" else dataset


def site_shift(images: NDArray[np.uint8], *, strength: float, site: int, seed: int) -> NDArray[np.uint8]:
    """Return `images` under the fixed gain and offset of one hospital's scanner, clipped to [0, 255].

    The gain is drawn from 1 +- 0.5 * strength and the offset from +- 64 * strength grey levels.

    Args:
        images: uint8, any shape.
        strength: from 0, which returns `images` itself, to 1.
        site: the hospital's number.
        seed: the simulation's seed; with `site` it fixes gain and offset.
    """
    if strength == 0:
        return images
    gain, offset = numpy_stream(seed, "site-shift", site).uniform(-1, 1, size=2) * strength
    grey_levels = np.arange(256) * (1 + _LARGEST_GAIN_CHANGE * gain) + _LARGEST_OFFSET * offset
    curve = np.rint(np.clip(grey_levels, 0, 255)).astype(np.uint8)
    return np.asarray(curve[images])


def _shift_split(split: ImageSet, *, strength: float, site: int, seed: int) -> ImageSet:
    images = site_shift(split.images, strength=strength, site=site, seed=seed)
    return make_read_only(replace(split, images=images))


def _check_site(site: int, sites: int) -> None:
    if sites < 1:
        raise PartitionError(f"Expected sites={sites} >= 1: simulate at least one hospital.")
    if not 0 <= site < sites:
        raise PartitionError(f"Expected 0 <= site={site} < sites={sites}: hospitals are numbered from 0.")


@lru_cache(maxsize=2)
def _load(data: DataConfig, seed: int) -> Dataset:
    return load_dataset(data, seed=seed)


@lru_cache(maxsize=4)
def _assign(data: DataConfig, sites: int, seed: int) -> tuple[SiteIndices, ...]:
    return assign(_load(data, seed), data, sites=sites, seed=seed)


def _take(dataset: Dataset, data: DataConfig, site: int, sites: int, seed: int) -> Dataset:
    return _assign(data, sites, seed)[site].take(dataset)


@lru_cache(maxsize=128)
def _load_features(data: DataConfig, site: int, sites: int, seed: int) -> Dataset:
    if data.partition == "by-file" or data.site_shift > 0:  # Images that are this hospital's alone.
        featured = replace_by_features(load_site(data, site=site, sites=sites, seed=seed))
    else:
        featured = _take(_load_all_features(*_source(data, seed)), data, site, sites, seed)
    return featured.map_splits(make_read_only)


@lru_cache(maxsize=2)
def _load_all_features(data: DataConfig, seed: int) -> Dataset:
    """Return the whole data set with features: its images are the same at any division, so they are computed once."""
    return replace_by_features(load_dataset(data, seed=seed)).map_splits(make_read_only)


def _source(data: DataConfig, seed: int) -> tuple[DataConfig, int]:
    """Return what decides the undivided data set: nothing about its division, and no seed where it brings a split."""
    divided = ("partition", "seed", "dirichlet_alpha", "classes_per_hospital", "quantity_exponent", "min_examples")
    defaults = {name: DataConfig.model_fields[name].default for name in divided}
    return data.model_copy(update=defaults), 0 if data.name in MEDMNIST_2D else seed


@lru_cache(maxsize=128)
def _load_entry(data: DataConfig, site: int, sites: int, seed: int) -> Dataset:
    """Return the data set in the `site`-th entry of `data.root`, which must be described as the first one is."""
    entries = _entries(data)
    if sites > len(entries):
        raise PartitionError(
            f"Expected at most {len(entries)} hospitals, one per entry of data.root={data.root!r} under by-file, found "
            f"sites={sites}: simulate fewer or add entries."
        )
    dataset = load_dataset(data.model_copy(update={"root": str(entries[site])}), seed=seed)
    expected = dataset.info if site == 0 else _load_entry(data, 0, sites, seed).info
    if dataset.info != expected:
        raise DataError(
            f"Expected every hospital's data to match {_in_words(expected)} of {entries[0]}, found "
            f"{_in_words(dataset.info)} in {entries[site]}: give all the same classes (an NPZ file may list classes it "
            "has no image of in class_names) and image shape."
        )
    check_split_sizes(dataset, sites=1, minimum=data.min_examples)
    return dataset


def _entries(data: DataConfig) -> list[Path]:
    root = absolute_root(data)
    if data.name not in ("folder", "npz") or not root.is_dir():
        raise PartitionError(
            f"Expected data.name 'folder' or 'npz' and a folder as data.root under by-file, found {data.name!r} and "
            f"{data.root!r}: choose another data.partition."
        )
    if data.name == "npz":
        return sorted(root.glob("*.npz"))
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _in_words(info: DatasetInfo) -> str:
    shape = (info.channels, info.height, info.width)
    return f"{info.task.value} classes {list(info.class_names)} of (C, H, W) = {shape}"
