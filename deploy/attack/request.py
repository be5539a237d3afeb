"""What a person asks `aegis attack run` to simulate, checked as a whole before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, get_args

from attacks.defences.registry import BASELINES
from attacks.registry import ADAM_INVERSE, ADAM_LINEAR, CALIBRATED, SINGLE_ROUND, find_attack, list_attacks
from deploy.attack.choices import as_path, require_known
from federation.config.masking_table import AUTO, MaskingMode
from federation.config.privacy_table import MechanismName
from federation.datasets.loader import dataset_names
from federation.errors import ConfigurationError
from federation.identifiers import IDENTIFIER_RULE, is_identifier
from federation.occupancy import smallest_size

EVERY = "all-single-round"
BATCH = 64
CAPACITY = 1024
TARGET = 0.05
_PLAIN_SIZE = "2048"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """One setting, and the attacks on it.

    Attributes:
        name: of the folder of finished cells.
        attacks: names, each once.
        data: name of the data set.
        data_root: of its files; None where it needs none.
        masking: mode; "none" for none.
        size: M; 0 without masking.
        mechanism: "none", or what protects the update.
        epsilon: of one release; 0 without a mechanism.
        baselines: names of defences of other papers.
        mode: "gradient" or "delta".
        optimizer: of local training.
        epochs: of local training.
        batches: hospitals attacked per seed.
        seeds: how many.
        synthetic: folder of a cache; None: held-out real images.
    """

    name: str
    attacks: tuple[str, ...]
    data: str
    data_root: Path | None
    masking: str
    size: int
    mechanism: str
    epsilon: float
    baselines: tuple[str, ...]
    mode: str
    optimizer: str
    epochs: int
    batches: int
    seeds: int
    synthetic: Path | None

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Return the request that the command line's options make.

        Raises:
            ConfigurationError: an option is wrong, or does not go with another.
        """
        data, masking = given["data"] or "phantom", given["masking"] or "none"
        mode, mechanism = given["mode"], given["mechanism"]
        if not is_identifier(given["name"]):
            raise ConfigurationError(f"Expected --name as {IDENTIFIER_RULE}, found {given['name']!r}.")
        require_known("--mode", mode, ("gradient", "delta"))
        require_known("--optimizer", given["optimizer"], ("sgd", "adam", "adamw"))
        require_known("--masking", masking, get_args(MaskingMode))
        require_known("--mechanism", mechanism, get_args(MechanismName))
        return cls(
            name=given["name"],
            attacks=_choose_attacks(given["attack"] or _default_attacks(mode, given["optimizer"], given["epochs"])),
            data=require_known("--data", data, dataset_names()),
            data_root=as_path(given["data_root"]),
            masking=masking,
            size=_choose_size(masking, given["size"], given["capacity"]),
            mechanism=mechanism,
            epsilon=_check_epsilon(mechanism, given["epsilon"], mode, given["epochs"]),
            baselines=_check_baselines(given["baseline"] or [], mode),
            mode=mode,
            optimizer=given["optimizer"],
            epochs=given["epochs"],
            batches=given["batches"],
            seeds=given["seeds"],
            synthetic=_check_synthetic(as_path(given["synthetic"]), masking),
        )

    @property
    def doubt(self) -> str | None:
        """What a low rate here would not mean, for a person; None without a doubt."""
        if self.mode != "delta" or any(_survives_training(name) for name in self.attacks):
            return None
        return (
            "Plain attacks read a step's gradient and little or nothing of what training leaves, with or without a "
            "defence: a low rate says nothing about the defence. Leave --attack out, or name calibrated or adam ones."
        )


def _survives_training(name: str) -> bool:
    return getattr(find_attack(name), "ability", "plain") != "plain"


def _default_attacks(mode: str, optimizer: str, epochs: int) -> list[str]:
    """Return the attacks that were made for what leaves."""
    if mode != "delta":
        return [EVERY]
    adam = (*ADAM_LINEAR, *ADAM_INVERSE) if epochs == 1 else ADAM_LINEAR
    return [attack.name for attack in (CALIBRATED if optimizer == "sgd" else adam)]


def _choose_attacks(names: Sequence[str]) -> tuple[str, ...]:
    known = [EVERY, *(attack.name for attack in list_attacks())]
    chosen: list[str] = []
    for name in names:
        require_known("--attack", name, known)
        chosen += [attack.name for attack in SINGLE_ROUND] if name == EVERY else [name]
    return tuple(dict.fromkeys(chosen))


def _choose_size(masking: str, size: str | None, capacity: int | None) -> int:
    """Return M; with "auto" the least with which 5 % are expected to leave verbatim."""
    if masking == "none":
        if size is not None or capacity is not None:
            raise ConfigurationError("Expected --masking with --size or --capacity, found none: name a mode.")
        return 0
    wanted = size or _PLAIN_SIZE
    if wanted == AUTO:
        return smallest_size(BATCH, capacity or CAPACITY, TARGET)
    if capacity is not None:
        raise ConfigurationError("Expected --capacity with --size auto only, which it decides.")
    if not wanted.isdecimal() or int(wanted) < 1:
        raise ConfigurationError(f"Expected --size auto or a number >= 1, found {wanted!r}.")
    return int(wanted)


def _check_epsilon(mechanism: str, epsilon: float | None, mode: str, epochs: int) -> float:
    if mechanism == "none":
        if epsilon is not None:
            raise ConfigurationError("Expected --mechanism with --epsilon, found none: name dp-sgd or update-gaussian.")
        return 0.0
    if mode != "delta":
        raise ConfigurationError(f"Expected --mode delta with --mechanism {mechanism}: it protects what training left.")
    if epsilon is None or not 0 < epsilon < float("inf"):
        raise ConfigurationError(f"Expected --epsilon > 0 with --mechanism {mechanism}, found {epsilon}.")
    if mechanism == "dp-sgd" and epochs > 1:
        raise ConfigurationError(
            f"Expected --epochs 1 with --mechanism dp-sgd, found {epochs}: every epoch is a noised step of its own, "
            "and the noise is reckoned for one. Take --epochs 1, or --mechanism update-gaussian, which noises once."
        )
    return epsilon


def _check_baselines(names: Sequence[str], mode: str) -> tuple[str, ...]:
    for name in names:
        require_known("--baseline", name, BASELINES)
    if names and mode != "gradient":
        raise ConfigurationError("Expected --mode gradient with --baseline: these defences change a step's gradient.")
    return tuple(names)


def _check_synthetic(folder: Path | None, masking: str) -> Path | None:
    if folder is not None and masking == "none":
        raise ConfigurationError("Expected --masking with --synthetic, found none: name a mode.")
    return folder
