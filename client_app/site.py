"""Who this hospital is and where its data and state lie, from the node configuration that the hospital itself wrote.

Two kinds never mix: a simulated site is a share of one data set and draws from the run's seed; a deployed hospital
owns its folder and draws from the operating system, whatever seed a server sends.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context

from federation.config import Configuration, DataConfig
from federation.datasets.image_set import Dataset
from federation.datasets.sites import load_own_folder, load_site
from federation.errors import SiteError, SiteErrorCode
from federation.identifiers import IDENTIFIER_RULE, is_identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSite:
    """A share of a data set that plays a hospital.

    Attributes:
        hospital_id: its name.
        data: which data set.
        partition: its share, counted from 0.
        partitions: number of shares.
        seed: decides which images this share holds.
        state_dir: where its log lies.
    """

    hospital_id: str
    data: DataConfig
    partition: int
    partitions: int
    seed: int
    state_dir: Path

    def load(self) -> Dataset:
        """Return this site's share; loaded once per process."""
        return load_site(self.data, site=self.partition, sites=self.partitions, seed=self.seed)

    def training_seed(self, requested: int) -> int:
        """Return the seed for shuffling and augmentation: the one the server asks for."""
        return requested


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedHospital:
    """A hospital that reads its own folder.

    Attributes:
        hospital_id: the name under which the coordinator knows it.
        data: its data set, `root` being its own folder.
        state_dir: the volume that holds its log.
    """

    hospital_id: str
    data: DataConfig
    state_dir: Path

    def load(self) -> Dataset:
        """Return the whole folder, split once and for all; loaded once per process."""
        return load_own_folder(self.data, seed=0)

    def training_seed(self, requested: int) -> int:
        """Return a seed from the operating system: a server that knew the order of images could learn from it."""
        del requested
        return secrets.randbits(63)


Site = SimulatedSite | DeployedHospital


def identify_site(context: Context, configuration: Configuration) -> Site:
    """Return the site that `context.node_config` describes.

    Keys: `partition-id` and `num-partitions` make a simulated site (a simulation sets them), `hospital-id` a deployed
    hospital; `data-root` and `state-dir` are absolute paths. A deployed hospital reads its own `data-root` only: the
    folder that a server names in the run configuration counts in simulations.

    Raises:
        SiteError: neither is given, a value has the wrong type, or a path is relative.
    """
    node = context.node_config
    own_root, state_dir = _folder(node, "data-root"), _folder(node, "state-dir")
    if "partition-id" not in node:
        return DeployedHospital(
            hospital_id=_require_id(node.get("hospital-id")),
            data=configuration.data.model_copy(update={"root": own_root or ""}),
            state_dir=Path(state_dir) if state_dir else default_state_dir(),
        )
    partition, partitions = node["partition-id"], node.get("num-partitions")
    if type(partition) is not int or type(partitions) is not int:
        raise SiteError(
            SiteErrorCode.CONFIGURATION, f"Expected integers partition-id={partition!r}, num-partitions={partitions!r}."
        )
    run = configuration.run
    return SimulatedSite(
        hospital_id=_require_id(node.get("hospital-id", f"hospital-{partition:03d}")),
        data=configuration.data.model_copy(update={"root": own_root or configuration.data.root}),
        partition=partition,
        partitions=partitions,
        seed=configuration.data_seed,
        state_dir=Path(state_dir) if state_dir else Path(run.root) / run.name / "sites",
    )


def default_state_dir() -> Path:
    """Return where a deployed hospital's log lies when its node configuration does not say."""
    return Path.home() / ".aegis"


def _folder(node: Mapping[str, object], key: str) -> str | None:
    value = node.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not Path(value).is_absolute():
        raise SiteError(SiteErrorCode.CONFIGURATION, f"Expected {key} as an absolute path, found {value!r}.")
    return value


def _require_id(name: object) -> str:
    if not isinstance(name, str) or not is_identifier(name):
        raise SiteError(
            SiteErrorCode.CONFIGURATION,
            f"Expected hospital-id={name!r} in the node configuration to be {IDENTIFIER_RULE}.",
        )
    return name
