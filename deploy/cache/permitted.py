"""Which of a hospital's images building a cache may look at, and for what: the site policy decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from client_app.policy import SitePolicy, read_policy
from deploy.cache.request import simulated_id
from deploy.settings import load_configuration
from federation.config import DataConfig
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet, Task
from federation.datasets.sites import load_own_folder, load_site
from federation.errors import ConfigurationError, SiteError
from federation.randomness import numpy_stream


@dataclass(frozen=True, slots=True, kw_only=True)
class PermittedImages:
    """What a cache is built for, and the images that may be used.

    Attributes:
        hospital_id: whose cache it will be.
        data_set: the data set's name in the ledger.
        info: what the images and labels are.
        train: permitted training images; None where none may be used.
        held_out: validation images, for calibration and audit; None likewise.
        may_train: whether a generator may learn from `train`.
        simulated: which data a simulated hospital has a share of; None for a hospital with a site policy.
    """

    hospital_id: str
    data_set: str
    info: DatasetInfo
    train: ImageSet | None
    held_out: ImageSet | None
    may_train: bool
    simulated: DataConfig | None = None

    def require(self, purpose: str) -> tuple[ImageSet, ImageSet]:
        """Return training and held-out images.

        Raises:
            ConfigurationError: the policy does not let them be used; `purpose` says what they were wanted for.
        """
        if self.train is None or self.held_out is None:
            raise ConfigurationError(
                f"Expected masking.private-images = 'compare' or 'train' in the site policy {purpose}, found 'unused': "
                "ask whoever owns the policy, or build with --filter none --labels balanced --brightness as-generated."
            )
        return self.train, self.held_out

    def require_for_training(self) -> ImageSet:
        """Return the images that a generator may learn from.

        Raises:
            ConfigurationError: the policy does not allow it.
        """
        if self.train is None or not self.may_train:
            raise ConfigurationError(
                "Expected masking.private-images = 'train' in the site policy to let a generator learn from training "
                "images: ask whoever owns the policy, or pass --weights of a generator trained elsewhere."
            )
        return self.train

    def require_phantom(self) -> DataConfig:
        """Return the configuration of the data set `phantom`, to make images like its own.

        Raises:
            ConfigurationError: the hospital is not simulated, or has other images than that.
        """
        if self.simulated is None:
            raise ConfigurationError(
                "Expected a simulated hospital for --generator phantom, found "
                f"{self.hospital_id!r} with a site policy: made-up phantoms hide no patient's images; choose another "
                "--generator."
            )
        if self.simulated.name != "phantom" or self.simulated.features != "none":
            raise ConfigurationError(
                "Expected data.name='phantom' with data.features='none' for --generator phantom, found "
                f"data.name={self.simulated.name!r} with data.features={self.simulated.features!r}: choose another "
                "--generator, or these data."
            )
        return self.simulated


def permit_by_policy(path: Path) -> PermittedImages:
    """Return what the site policy at `path` lets a build use of the hospital's own data.

    Raises:
        ConfigurationError: the policy cannot be used, or the data have no single label per image.
        DataError: the data are missing or damaged.
    """
    try:
        policy = read_policy(path)
    except SiteError as error:
        raise ConfigurationError(str(error)) from None
    dataset = load_own_folder(_own_data(policy), seed=0)
    masking = policy.masking
    return _permit(
        dataset,
        hospital_id=policy.hospital_id,
        data_set=policy.data.id,
        use=masking.private_images,
        fraction=masking.permitted_fraction,
    )


def permit_simulated(assignments: list[str], app: Path, *, hospital: int, hospitals: int) -> PermittedImages:
    """Return what the simulated hospital number `hospital` holds: all of its images, for everything.

    Raises:
        ConfigurationError: a key or value is refused, or the data have no single label per image.
        PartitionError: there is no such hospital.
        DataError: the data are missing or damaged.
    """
    configuration = load_configuration(app, None, assignments)
    dataset = load_site(configuration.data, site=hospital, sites=hospitals, seed=configuration.data_seed)
    name = simulated_id(hospital)
    permitted = _permit(dataset, hospital_id=name, data_set=configuration.data.name, use="train", fraction=1.0)
    return replace(permitted, simulated=configuration.data)


def _own_data(policy: SitePolicy) -> DataConfig:
    own = policy.data
    return DataConfig(
        name=own.name,
        root=own.root,
        validation_fraction=own.validation_fraction,
        test_fraction=own.test_fraction,
    )


def _permit(dataset: Dataset, *, hospital_id: str, data_set: str, use: str, fraction: float) -> PermittedImages:
    if dataset.info.task is not Task.MULTICLASS:
        raise ConfigurationError(
            f"Expected one label per image to make images by class, found the task {dataset.info.task.value!r}."
        )
    train = _some(dataset.train, fraction)
    return PermittedImages(
        hospital_id=hospital_id,
        data_set=data_set,
        info=dataset.info,
        train=None if use == "unused" else train,
        held_out=None if use == "unused" else _some(dataset.validation, fraction),
        may_train=use == "train",
    )


def _some(images: ImageSet, fraction: float) -> ImageSet:
    """Return the same share of the images whenever they are the same."""
    if fraction == 1:
        return images
    order = numpy_stream(0, "cache", "permitted").permutation(len(images))
    return images.take(np.sort(order[: max(1, round(fraction * len(images)))]))
