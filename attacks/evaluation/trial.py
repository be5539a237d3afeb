"""What is attacked: how hospitals train, how they are protected, and how often it is tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from attacks.victim import Protection
from federation.config import TrainingConfig
from federation.errors import DataError

Mode = Literal["gradient", "delta"]
Refresh = Literal["none", "subset", "augment"]


def usual_plan() -> TrainingConfig:
    """Return the local training of arXiv 2609.38339 but for its number of epochs: one batch of 64, Adam at 1e-3."""
    return TrainingConfig(optimizer="adam", learning_rate=1e-3, batch_size=64, local_epochs=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is attacked, and how often.

    Attributes:
        mode: "gradient" at the parameters that were sent, or the "delta" of the shipped client's training.
        plan: of local training; in gradient mode it counts for nothing but what a server knows of it.
        protection: of every hospital.
        synthetic: M.
        refresh: what becomes of synthetic images from one round to the next: the same, another half of twice as many,
            or each changed a little.
        batch: real images that a hospital has, all of them.
        batches: hospitals attacked per seed, one after the other; with `clients` above 1, sums of so many.
        seeds: of everything random.
        clients: hospitals in a sum.
        renewed: whether a hospital's real images are others in every round.
    """

    mode: Mode = "gradient"
    plan: TrainingConfig = field(default_factory=usual_plan)
    protection: Protection = field(default_factory=Protection)
    synthetic: int = 0
    refresh: Refresh = "none"
    batch: int = 64
    batches: int = 8
    seeds: tuple[int, ...] = (0, 1, 2)
    clients: int = 1
    renewed: bool = False

    def __post_init__(self) -> None:
        """Refuse what would be measured under a wrong name.

        Raises:
            DataError: masking without synthetic images or the other way round, a mechanism in gradient mode, where the
                client's own noise has no part, or a baseline in delta mode.
        """
        protection = self.protection
        if (protection.mode == "none") != (self.synthetic == 0):
            raise DataError(f"Expected synthetic={self.synthetic} to fit masking.mode={protection.mode!r}.")
        if self.mode == "gradient" and protection.privacy is not None and protection.privacy.mechanism != "none":
            raise DataError(f"Expected mode='delta' for {protection.privacy.mechanism}: noise is the client's own.")
        if self.mode == "delta" and protection.baselines:
            raise DataError("Expected mode='gradient' for defences of other papers: they act on one gradient.")
        if self.batches < 1 or not self.seeds or self.batch < 1 or self.clients < 1:
            raise DataError("Expected at least one seed, batch, image and hospital.")
