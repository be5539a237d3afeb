"""Threat models as data: what a malicious server controls, knows and sees, and what an attack needs of it.

The harness hands an attack a `ServerView` that holds what the attack declared and nothing else, and refuses to run it
where the threat model does not grant that. What an attack sees of a hospital is what left the hospital: never a
gradient before noise, never a label. Read next: `attacks.attack`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from federation.config import TrainingConfig
from federation.datasets.image_set import DatasetInfo
from federation.errors import DataError

Control = Literal["parameters", "architecture", "model-per-client"]
Knowledge = Literal["auxiliary", "hyperparameters", "generator"]
Sight = Literal["update", "aggregate"]

CONTROLS: Mapping[Control, str] = {
    "parameters": "sends parameters of its own making in the agreed architecture",
    "architecture": "sends a network of its own making; the shipped client pins the architecture and refuses it",
    "model-per-client": "sends different parameters to different hospitals of one round",
}
KNOWLEDGE: Mapping[Knowledge, str] = {
    "auxiliary": "has images of the same kind, of other people",
    "hyperparameters": "knows optimizer, learning rate, epochs and batch size, which it usually sets itself",
    "generator": "has images of the hospital's generator, though not the cache",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What an attack cannot do without.

    Attributes:
        controls: of the model that is sent.
        knows: beside the architecture, the classes and the shape of the images, which any server knows.
        rounds: in which the same hospital answers.
        sees: "aggregate" where the sum of all hospitals' updates is enough, else "update".
    """

    controls: frozenset[Control] = frozenset()
    knows: frozenset[Knowledge] = frozenset()
    rounds: int = 1
    sees: Sight = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreatModel:
    """What one malicious server can do.

    Attributes:
        controls: of the model that is sent.
        knows: see `KNOWLEDGE`.
        rounds: in which the same hospital answers.
        sees: "aggregate" under secure aggregation.
    """

    controls: frozenset[Control] = frozenset(CONTROLS)
    knows: frozenset[Knowledge] = frozenset(KNOWLEDGE)
    rounds: int = 1
    sees: Sight = "update"

    def missing(self, needs: Needs) -> tuple[str, ...]:
        """Return in words what an attack with `needs` lacks here; empty where it can run."""
        lacks = [f"control of {what}" for what in sorted(needs.controls - self.controls)]
        lacks += [f"knowledge of {what}" for what in sorted(needs.knows - self.knows)]
        if needs.rounds > self.rounds:
            lacks.append(f"{needs.rounds} rounds instead of {self.rounds}")
        if needs.sees == "update" and self.sees == "aggregate":
            lacks.append("sight of a single update")
        return tuple(lacks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """What a server has at hand when it crafts and reads.

    Attributes:
        info: classes and shape of the images.
        auxiliary: float32 in [0, 1], shape (A, C, H, W), images of other people; None: not granted.
        auxiliary_labels: int64, shape (A,); None: not granted.
        hyperparameters: of local training; None: not granted.
        generated: float32 in [0, 1], shape (G, C, H, W), of the hospital's generator; None: not granted.
        stream: for whatever an attack draws.
    """

    info: DatasetInfo
    stream: np.random.Generator
    auxiliary: NDArray[np.float32] | None = field(default=None, repr=False)
    auxiliary_labels: NDArray[np.int64] | None = field(default=None, repr=False)
    hyperparameters: TrainingConfig | None = None
    generated: NDArray[np.float32] | None = field(default=None, repr=False)

    def require_auxiliary(self) -> NDArray[np.float32]:
        """Return the auxiliary images.

        Raises:
            DataError: there are none.
        """
        if self.auxiliary is None or not len(self.auxiliary):
            raise DataError("Expected auxiliary images of the same kind, found none: name a data set for the server.")
        return self.auxiliary

    def require_hyperparameters(self) -> TrainingConfig:
        """Return how hospitals train.

        Raises:
            DataError: it is not known.
        """
        if self.hyperparameters is None:
            raise DataError("Expected the hyperparameters of local training, found none.")
        return self.hyperparameters

    def require_generated(self) -> NDArray[np.float32]:
        """Return images of the hospital's generator.

        Raises:
            DataError: there are none.
        """
        if self.generated is None or not len(self.generated):
            raise DataError("Expected images of the hospital's generator, found none.")
        return self.generated


def grant(everything: ServerView, needs: Needs, model: ThreatModel) -> ServerView:
    """Return of `everything` what an attack with `needs` asked for.

    Raises:
        DataError: `model` does not grant what the attack cannot do without.
    """
    if lacks := model.missing(needs):
        raise DataError(f"Expected a server with {', '.join(lacks)}: the threat model does not grant that.")
    aided = "auxiliary" in needs.knows
    return ServerView(
        info=everything.info,
        stream=everything.stream,
        auxiliary=everything.auxiliary if aided else None,
        auxiliary_labels=everything.auxiliary_labels if aided else None,
        hyperparameters=everything.hyperparameters if "hyperparameters" in needs.knows else None,
        generated=everything.generated if "generator" in needs.knows else None,
    )
