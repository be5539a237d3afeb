"""Who this hospital is and where its data and state lie, from the node configuration that the hospital itself wrote.

Two kinds never mix: a simulated site is a share of one data set and draws from the run's seed; a deployed hospital
owns its folder and draws from the operating system, whatever seed a server sends.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context, Message

from client_app.noise.cryptographic import CryptographicNoise
from client_app.noise.simulated import SimulatedNoise
from client_app.noise.source import NoiseSource
from client_app.policy import SitePolicy, read_policy
from federation.config import Configuration, DataConfig
from federation.datasets.image_set import Dataset
from federation.datasets.sites import load_own_folder, load_site
from federation.errors import SiteError, SiteErrorCode
from federation.identifiers import IDENTIFIER_RULE, is_identifier
from federation.randomness import derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseKey:
    """What identifies one answer in the ledger: asked again under the same key, it is the same release.

    Attributes:
        run: the run: its name at a simulated site, else Flower's id, which a resumed run has anew.
        message: the task.
    """

    run: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSite:
    """A share of a data set that plays a hospital.

    Attributes:
        hospital_id: its name.
        data: which data set.
        partition: its share, counted from 0.
        partitions: number of shares.
        seed: decides which images this share holds.
        run: name of the run.
        run_seed: the run's seed.
        seeded_noise: whether its noise is drawn from that seed, or by the operating system.
        state_dir: where its log and ledger lie.
        policy: its site policy; None grants what is asked.
        cache_dir: folder of its cache of synthetic images; None for none.
    """

    hospital_id: str
    data: DataConfig
    partition: int
    partitions: int
    seed: int
    run: str
    run_seed: int
    seeded_noise: bool
    state_dir: Path
    policy: SitePolicy | None = None
    cache_dir: Path | None = None

    @property
    def keys_dir(self) -> Path:
        """Where the ledger's key and anchor lie."""
        return self.state_dir / "keys"

    @property
    def data_set(self) -> str:
        """The data set's name in the ledger."""
        return self.data.name

    @property
    def answers_twice(self) -> bool:
        """Whether a task asked again is answered again: with seeded noise, since every bit is the same."""
        return self.seeded_noise

    def load(self) -> Dataset:
        """Return this site's share; loaded once per process."""
        return load_site(self.data, site=self.partition, sites=self.partitions, seed=self.seed)

    def training_seed(self, requested: int) -> int:
        """Return the seed for shuffling and augmentation: the one the server asks for."""
        return requested

    def noise(self, *path: str | int) -> NoiseSource:
        """Return seeded noise for the draw named by `path`, or the operating system's where the run asks for it."""
        if not self.seeded_noise:
            return CryptographicNoise()
        return SimulatedNoise(derive_seed(self.run_seed, "noise", self.hospital_id, *path))

    def release_key(self, context: Context, message: Message, task: str) -> ReleaseKey:
        """Return the key of `task`, the same whenever a killed run repeats it."""
        del context, message
        return ReleaseKey(run=self.run, message=task)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedHospital:
    """A hospital that reads its own folder under its own policy.

    Attributes:
        hospital_id: the name under which the coordinator knows it.
        data: its data set; what is read and how it is split is its own, only `features` is the server's.
        policy: what it allows.
    """

    hospital_id: str
    data: DataConfig
    policy: SitePolicy

    @property
    def state_dir(self) -> Path:
        """The volume that holds its log and ledger."""
        return Path(self.policy.state_dir)

    @property
    def keys_dir(self) -> Path:
        """Where the ledger's key and anchor lie: another volume."""
        return Path(self.policy.keys_dir)

    @property
    def cache_dir(self) -> Path | None:
        """Folder of its cache of synthetic images, which no request can change; None for none."""
        folder = self.policy.masking.cache
        return Path(folder) if folder else None

    @property
    def data_set(self) -> str:
        """The data set's name in the ledger, which no request can change."""
        return self.policy.data.id

    @property
    def answers_twice(self) -> bool:
        """Whether a task asked again is answered again: never, fresh noise would be a second release."""
        return False

    def load(self) -> Dataset:
        """Return the whole folder, split once and for all; loaded once per process."""
        return load_own_folder(self.data, seed=0)

    def training_seed(self, requested: int) -> int:
        """Return a seed from the operating system: a server that knew the order of images could learn from it."""
        del requested
        return secrets.randbits(63)

    def noise(self, *path: str | int) -> NoiseSource:
        """Return the operating system's noise, whatever it is drawn for."""
        del path
        return CryptographicNoise()

    def release_key(self, context: Context, message: Message, task: str) -> ReleaseKey:
        """Return the key of `message`, which Flower makes unique."""
        del task
        return ReleaseKey(run=str(context.run_id), message=str(message.metadata.message_id))


Site = SimulatedSite | DeployedHospital


def identify_site(context: Context, configuration: Configuration) -> Site:
    """Return the site that `context.node_config` describes.

    Keys: `partition-id` and `num-partitions` make a simulated site (a simulation sets them); `site-policy`, the
    absolute path of a `site.toml`, a deployed hospital, which is what its policy says and nothing else: the folder,
    the kind of data and the shares held out that a server names in the run configuration count in simulations.
    `data-root` and `state-dir` are absolute paths for simulated sites.

    Raises:
        SiteError: neither is given, a value has the wrong type, a path is relative, or the policy cannot be used.
    """
    node = context.node_config
    path = _folder(node, "site-policy")
    policy = read_policy(Path(path)) if path else None
    if "partition-id" not in node:
        return _deployed(node, policy, configuration)
    own_root, state_dir = _folder(node, "data-root"), _folder(node, "state-dir")
    partition, partitions = node["partition-id"], node.get("num-partitions")
    if type(partition) is not int or type(partitions) is not int:
        raise SiteError(
            SiteErrorCode.CONFIGURATION, f"Expected integers partition-id={partition!r}, num-partitions={partitions!r}."
        )
    run = configuration.run
    hospital_id = _require_id(node.get("hospital-id", f"hospital-{partition:03d}"))
    return SimulatedSite(
        hospital_id=hospital_id,
        data=configuration.data.model_copy(update={"root": own_root or configuration.data.root}),
        partition=partition,
        partitions=partitions,
        seed=configuration.data_seed,
        run=run.name,
        run_seed=run.seed,
        seeded_noise=configuration.privacy.noise_source != "cryptographic",
        state_dir=Path(state_dir) if state_dir else Path(run.root) / run.name / "sites",
        policy=policy,
        cache_dir=_simulated_cache(configuration.masking.cache, hospital_id),
    )


def _simulated_cache(root: str, hospital_id: str) -> Path | None:
    if root and not Path(root).is_absolute():
        raise SiteError(SiteErrorCode.CONFIGURATION, f"Expected masking.cache={root!r} as an absolute path.")
    return Path(root) / hospital_id if root else None


def _deployed(node: Mapping[str, object], policy: SitePolicy | None, configuration: Configuration) -> DeployedHospital:
    if policy is None:
        raise SiteError(
            SiteErrorCode.POLICY_MISSING,
            "Expected site-policy in the node configuration, found none; without a policy nothing is answered.",
        )
    own = {"hospital-id": policy.hospital_id, "data-root": policy.data.root, "state-dir": policy.state_dir}
    if other := {key: node[key] for key, value in own.items() if node.get(key, value) != value}:
        raise SiteError(
            SiteErrorCode.CONFIGURATION, f"Expected the node configuration to agree with the policy, found {other}."
        )
    if configuration.privacy.noise_source == "simulated":
        raise SiteError(SiteErrorCode.POLICY_NOISE, "Expected cryptographic noise, found privacy.noise-source.")
    chosen = policy.data.model_dump(include={"name", "root", "validation_fraction", "test_fraction"})
    return DeployedHospital(
        hospital_id=policy.hospital_id,
        data=configuration.data.model_copy(update=chosen),
        policy=policy,
    )


def default_state_dir() -> Path:
    """Return where the log lies of a hospital whose node configuration or policy cannot be used."""
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
