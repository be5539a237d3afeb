"""An attack that knows the answer, so that every number of a table can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attacks.attack import Plant
from attacks.threat_model import Needs, ServerView
from attacks.world import World, as_floats
from federation.config import ModelConfig
from federation.models import build_model
from federation.parameters import Parameters
from tests.attacks.made_up_worlds import Shape, make_world

Show = Callable[[NDArray[np.float64], int], NDArray[np.float64]]
Place = Callable[[NDArray[np.int64], int], NDArray[np.int64]]
SHAPE: Shape = (1, 12, 11)
"""As small as SSIM allows."""


def make_square_world(*, train: int = 80, generated: int = 0, seed: int = 0) -> World:
    """Return a world of images that are large enough to be judged."""
    return make_world(train=train, shape=SHAPE, generated=generated, seed=seed)


def exactly(images: NDArray[np.float64], _round_number: int) -> NDArray[np.float64]:
    """Return `images` as they are."""
    return images


def by_index(places: NDArray[np.int64], _round_number: int) -> NDArray[np.int64]:
    """Return `places` as they are: every image has a candidate of its own."""
    return places


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Shows the training split of `world` whatever is sent, changed by `show`.

    Attributes:
        world: whose training split is known by heart.
        show: from its images and the number of a round to the candidates of that round.
        place: from places in the training split and the number of a round to candidates.
        needs: as of any attack.
        heard: what `read` was given, exchange by exchange.
        networks: sent, by hospital and round.
    """

    world: World
    show: Show = exactly
    place: Place = by_index
    needs: Needs = field(default_factory=Needs)
    heard: list[Sequence[Parameters]] = field(default_factory=list)
    networks: dict[tuple[int, int], nn.Module] = field(default_factory=dict)
    name: str = "recall"
    source: str = "ours"

    def begin(self, view: ServerView) -> Recollection:
        """Return a campaign."""
        return Recollection(self)


class Recollection:
    """The campaign of `Recall`."""

    def __init__(self, attack: Recall) -> None:
        """Learn the training split by heart."""
        self._attack = attack
        self._images = as_floats(attack.world.real)
        self._index = {image.tobytes(): place for place, image in enumerate(self._images)}

    def craft(self, client: int, round_number: int) -> Plant:
        """Return a network that differs from hospital to hospital and from round to round."""
        config = ModelConfig(name="mlp", hidden_units=3)
        network = build_model(config, self._attack.world.info, seed=10 * client + round_number)
        self._attack.networks[client, round_number] = network

        def place(images: Tensor) -> NDArray[np.int64]:
            known = [self._index.get(image.tobytes(), -1) for image in images.numpy()]
            found = np.array(known, dtype=np.int64)
            return np.where(found < 0, -1, self._attack.place(found, round_number))

        return Plant(network=network, place=place)

    def read(self, sent: Sequence[Parameters]) -> NDArray[np.float64]:
        """Return the candidates of all rounds."""
        self._attack.heard.append(sent)
        rounds = range(self._attack.needs.rounds)
        return np.concatenate([self._attack.show(self._images.astype(np.float64), number) for number in rounds])


def equal(left: Parameters, right: Parameters) -> bool:
    """Return whether both hold the same values, but for rounding."""
    return list(left) == list(right) and all(
        torch.allclose(left[name], right[name], rtol=1e-5, atol=1e-8) for name in left
    )
