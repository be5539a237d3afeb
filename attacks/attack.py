"""What every attack is: a description of what it needs, and a campaign that crafts models and reads what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from attacks.threat_model import Needs, ServerView
from federation.parameters import Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A network that one hospital is sent in one round.

    Attributes:
        network: takes float32 images in [0, 1], shape (B, C, H, W), and gives logits. A hospital trains a copy.
        place: from such images to the place, from 0 to K - 1, of the candidate in which each must show up; -1 for none.
            The harness pairs by it and counts who shares a place; `read` does not need it.
    """

    network: nn.Module
    place: Callable[[Tensor], NDArray[np.int64]]


class Campaign(Protocol):
    """One attack in progress: it keeps what it planted, and reads the answers."""

    def craft(self, client: int, round_number: int) -> Plant:
        """Return what the hospital number `client` is sent in `round_number`, both counted from 0."""

    def read(self, sent: Sequence[Parameters]) -> NDArray[np.float64]:
        """Return the K candidates: float64, shape (K, C, H, W), unclamped, NaN where nothing was found.

        Args:
            sent: per round, parameters received by hospitals minus those after training (a multiple of a gradient or a
                sum of several), or their sum over hospitals where the server sees aggregates.
        """


class Attack(Protocol):
    """A way to read images out of updates.

    Attributes:
        name: unique, as the field names it.
        needs: what it cannot do without; nothing else is handed to it.
        source: the paper, as arXiv id with section, or "ours".
    """

    @property
    def name(self) -> str:
        """Unique name."""

    @property
    def needs(self) -> Needs:
        """What it cannot do without."""

    @property
    def source(self) -> str:
        """Where it is from."""

    def begin(self, view: ServerView) -> Campaign:
        """Return a campaign with what `view` holds.

        Raises:
            DataError: something that is needed is not there.
        """
