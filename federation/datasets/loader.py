"""From a configured name to a data set in memory. Read next: the module of the kind of data at hand."""

from __future__ import annotations

import difflib

from federation.config.tables import DataConfig
from federation.datasets.adult import ADULT, load_adult
from federation.datasets.image_folder import load_image_folder
from federation.datasets.image_set import Dataset, ImageSet
from federation.datasets.medmnist import load_medmnist
from federation.datasets.medmnist_catalogue import MEDMNIST_2D
from federation.datasets.npz_file import load_npz_file
from federation.datasets.phantom import load_phantom
from federation.errors import ConfigurationError


def dataset_names() -> tuple[str, ...]:
    """Return every value that `data.name` may take."""
    return ("phantom", "folder", "npz", ADULT, *MEDMNIST_2D)


def load_dataset(data: DataConfig, *, seed: int) -> Dataset:
    """Return the whole data set named by `data`, in read-only arrays.

    Args:
        data: what to load and from where.
        seed: decides the phantom images, and the split of data that brings none of its own.

    Raises:
        ConfigurationError: `data.name` is unknown (the nearest known one is named), or `data.root` does not serve.
        DataError: the data are missing, damaged or of the wrong kind.
    """
    if data.name == "phantom":
        dataset = load_phantom(data, seed=seed)
    elif data.name == "folder":
        dataset = load_image_folder(data, seed=seed)
    elif data.name == "npz":
        dataset = load_npz_file(data, seed=seed)
    elif data.name == ADULT:
        dataset = load_adult(data, seed=seed)
    elif data.name in MEDMNIST_2D:
        dataset = load_medmnist(data)
    else:
        nearest = difflib.get_close_matches(data.name, dataset_names(), n=1, cutoff=0.0)
        raise ConfigurationError(f"Unknown data.name={data.name!r}: the nearest known name is {nearest[0]!r}.")
    return dataset.map_splits(make_read_only)


def make_read_only(split: ImageSet) -> ImageSet:
    """Return `split` itself after forbidding writes to its arrays, so that a cached copy can be shared safely."""
    split.images.flags.writeable = False
    split.labels.flags.writeable = False
    if split.patients is not None:
        split.patients.flags.writeable = False
    return split
