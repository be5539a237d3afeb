"""From a name to a data set."""

from __future__ import annotations

import numpy as np
import pytest

from federation.config import DataConfig
from federation.datasets import dataset_names, load_dataset
from federation.errors import ConfigurationError


def test_every_kind_of_data_has_a_name():
    assert {"phantom", "folder", "npz", "adult", "pneumoniamnist", "organsmnist"} <= set(dataset_names())
    assert len(dataset_names()) == 16


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("pneumonia", "pneumoniamnist"), ("phantoms", "phantom"), ("organmnist", "organ.mnist")]
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(wrong, nearest):
    with pytest.raises(ConfigurationError, match=f"{wrong}': the nearest known name is '{nearest}'"):
        load_dataset(DataConfig(name=wrong), seed=0)


def test_loaded_arrays_cannot_be_written_to():
    dataset = load_dataset(DataConfig(phantom_examples=60), seed=0)

    for split in (dataset.train, dataset.validation, dataset.test):
        with pytest.raises(ValueError, match="read-only"):
            split.images[0] = 0
        with pytest.raises(ValueError, match="read-only"):
            split.labels[0] = 0


def test_the_default_configuration_loads_a_data_set():
    dataset = load_dataset(DataConfig(), seed=0)

    assert len(dataset.train) + len(dataset.validation) + len(dataset.test) == DataConfig().phantom_examples
    assert np.unique(dataset.train.labels).size == dataset.info.classes
