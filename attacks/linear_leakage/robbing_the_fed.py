"""Robbing the Fed: bins of a measurement planted by the server, read from one gradient or from a whole local training.

Fowl et al., arXiv 2110.13057, cumulative and sparse; with what an adaptive server adds to it: a layer scaled so that
local training hardly moves the bins, the inversion of Adam, several rounds, the difference of two rounds, and one class
a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attacks.attack import Plant
from attacks.linear_leakage.bins import Bins, DirectionName, ThresholdRule, make_bins
from attacks.linear_leakage.class_fishing import hear_one_class, narrow_to_class
from attacks.linear_leakage.planted_network import (
    CarrierName,
    Kind,
    linear_layer,
    place_images,
    plant_in_front,
    plant_in_mlp,
)
from attacks.linear_leakage.read_out import Moved, read_bins
from attacks.threat_model import Knowledge, Needs, ServerView
from federation.errors import DataError
from federation.metrics import losses_of, targets
from federation.parameters import Parameters

Ability = Literal["plain", "calibrated", "adam-inverse", "adam-linear"]
Rounds = Literal["fresh", "difference", "classes"]
ADAM_EPSILON = 1e-8
"""What torch's Adam adds to the root of the second moment unless it is told otherwise."""

_CALIBRATIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RobbingTheFed:
    """Bins in front of the agreed network or, with the right to change parameters only, in the network "mlp".

    Attributes:
        capacity: k, bins.
        kind: "cumulative" or "sparse"; sparse bins stand in front only.
        carrier: where bins are planted.
        direction: what is measured.
        rule: how thresholds are chosen.
        ability: "plain" reads a multiple of one gradient. "calibrated": the planted layer is scaled so that one image
            moves its bin by about `movement` a step, far less than a bin is wide: what several steps of SGD leave is
            then nearly a gradient at the parameters that were sent. "adam-inverse": one step of Adam from zero moments
            is lr g / (|g| + eps), which is solved for g. "adam-linear": with |g| far below eps, Adam's steps are
            linear in g, lr / eps times running means; that lasts for one epoch, since Adam moves the layers behind the
            bins by as much whatever their gradients are.
        movement: see there, in units of the measurement.
        noise: length of a random vector that is added to each row, over the row's own, to evade a look at the rows.
        crowd: images that the server expects in all, for bins that give most of them up; see `bins.make_bins`.
        rounds: in which the same hospital answers.
        together: what several rounds are for: "fresh" bins in each, the "difference" of two with the same bins, in
            which whatever takes part in both cancels, or "classes": each round hears the images of one class alone
            (`class_fishing`), in bins made for that class; the class that the server has the fewest images of first.
    """

    capacity: int = 1024
    kind: Kind = "cumulative"
    carrier: CarrierName = "front"
    direction: DirectionName = "mean"
    rule: ThresholdRule = "gaussian"
    ability: Ability = "plain"
    movement: float = 1e-7
    noise: float = 0.0
    crowd: int = 0
    rounds: int = 1
    together: Rounds = "fresh"

    def __post_init__(self) -> None:
        """Refuse what does not go together.

        Raises:
            DataError: it does not.
        """
        if self.kind == "sparse" and (self.carrier == "mlp" or self.ability != "plain"):
            raise DataError("Expected sparse bins in front of a network and read plainly; the agreed network has none.")
        if self.together == "difference" and self.rounds != 2:
            raise DataError(f"Expected rounds=2 for a difference, found {self.rounds}.")
        if self.together == "classes" and (self.carrier != "mlp" or self.rounds < 2):
            raise DataError(f"Expected carrier='mlp' and rounds={self.rounds} >= 2 for one class a round.")

    @property
    def name(self) -> str:
        """Unique name."""
        marks = [f"rtf-{self.kind}", self.carrier, f"k{self.capacity}"]
        marks += [self.direction] if self.direction != "mean" else []
        marks += [self.rule] if self.rule != "gaussian" else []
        marks += [f"{self.ability}-{self.movement:g}"] if self.ability != "plain" else []
        marks += [f"noise-{self.noise:g}"] if self.noise else []
        marks += [f"crowd-{self.crowd}"] if self.crowd else []
        marks += [f"{self.together}-{self.rounds}"] if self.rounds > 1 else []
        return "-".join(marks)

    @property
    def source(self) -> str:
        """Where it is from."""
        if self.together == "classes":
            return "ours, on 2110.13057 and 2202.00580"
        return "arXiv 2110.13057, section 4" if self.ability == "plain" and self.rounds == 1 else "ours, on 2110.13057"

    @property
    def needs(self) -> Needs:
        """What it cannot do without."""
        knows: set[Knowledge] = {"auxiliary"}
        knows |= {"hyperparameters"} if self.ability != "plain" else set()
        knows |= {"generator"} if self.direction == "learned" else set()
        return Needs(
            controls=frozenset({"parameters", "architecture"} if self.carrier == "front" else {"parameters"}),
            knows=frozenset(knows),
            rounds=self.rounds,
            sees="update",
        )

    def begin(self, view: ServerView) -> BinCampaign:
        """Return a campaign.

        Raises:
            DataError: something that is needed is not there.
        """
        return BinCampaign(self, view)


class BinCampaign:
    """Bins that were planted, round by round."""

    def __init__(self, attack: RobbingTheFed, view: ServerView) -> None:
        """Begin `attack` with what `view` holds."""
        self._attack, self._view = attack, view
        self._planted: list[tuple[Bins, nn.Module]] = []

    def craft(self, client: int, round_number: int) -> Plant:
        """Return what every hospital is sent in `round_number`; `client` makes no difference."""
        del client
        while len(self._planted) <= round_number:
            again = self._attack.together == "difference" and self._planted
            self._planted.append(self._planted[0] if again else self._plant(len(self._planted)))
        offset = 0 if self._attack.together == "difference" else round_number * self._attack.capacity
        layer = self._layer(self._planted[round_number][1])

        def place(images: torch.Tensor) -> NDArray[np.int64]:
            homes = place_images(layer, images)
            return np.where(homes < 0, -1, homes + offset)

        return Plant(network=self._planted[round_number][1], place=place)

    def read(self, sent: Sequence[Parameters]) -> NDArray[np.float64]:
        """Return a candidate for every bin of every round, or of the difference of two rounds."""
        attack, info = self._attack, self._view.info
        moved = [self._undo(parameters) for parameters in sent]
        if attack.together == "difference" and len(moved) > 1:
            moved = [Moved(weight=moved[0].weight - moved[1].weight, bias=moved[0].bias - moved[1].bias)]
        by: Literal["bias", "direction"] = "bias" if attack.ability == "plain" else "direction"
        found = [
            read_bins(change, bins, attack.kind, by=by)
            for change, (bins, _) in zip(moved, self._planted[: len(moved)], strict=True)
        ]
        return np.concatenate(found).reshape(-1, info.channels, info.height, info.width)

    def _layer(self, network: nn.Module) -> nn.Linear:
        return linear_layer(network, self._layer_name)

    @property
    def _layer_name(self) -> str:
        return "bins" if self._attack.carrier == "front" else "hidden"

    def _plant(self, round_number: int) -> tuple[Bins, nn.Module]:
        attack, view, heard = self._attack, self._view, None
        if attack.together == "classes":
            heard, view = narrow_to_class(view, round_number)
        bins = make_bins(view, attack.capacity, direction=attack.direction, rule=attack.rule, crowd=attack.crowd)
        if attack.carrier == "mlp":
            network = plant_in_mlp(bins, view.info)
        else:
            seed = int(view.stream.integers(2**31))
            network = plant_in_front(bins, attack.kind, view.info, model="cnn", seed=seed)
        if heard is not None:
            hear_one_class(linear_layer(network, "output"), heard)
        if attack.noise:
            _blur(self._layer(network), attack.noise, view.stream)
        if attack.ability != "plain":
            self._calibrate(network, view)
        return bins, network

    def _calibrate(self, network: nn.Module, view: ServerView) -> None:
        """Scale the layer behind the bins until one image of `view` moves its bin by the wanted distance a step."""
        plan = view.require_hyperparameters()
        adam = self._attack.ability.startswith("adam")
        wanted = self._attack.movement / plan.learning_rate * (ADAM_EPSILON if adam else 1.0)
        behind = linear_layer(network, "spread" if self._attack.carrier == "front" else "output")
        for _ in range(_CALIBRATIONS):
            slope = self._typical_slope(network, view, plan.batch_size)
            if slope > 0:
                with torch.no_grad():
                    behind.weight.mul_(wanted / slope)

    def _typical_slope(self, network: nn.Module, view: ServerView, batch_size: int) -> float:
        """Return the median size of what an image of the server's own adds to its bin's bias gradient in a batch."""
        layer = self._layer(network)
        auxiliary, labels = view.require_auxiliary()[:batch_size], view.auxiliary_labels
        images = torch.from_numpy(auxiliary)
        known = np.zeros(len(images), dtype=np.int64) if labels is None else labels[:batch_size]
        losses = losses_of(network(images), targets(torch.from_numpy(known), view.info.task), view.info.task)
        weight, bias = torch.autograd.grad(losses.mean(), [layer.weight, layer.bias])
        change = Moved.of(weight, bias).bias
        slopes = np.abs(np.diff(change, append=0.0) if self._attack.kind == "cumulative" else change)
        heard = slopes[slopes > slopes.max(initial=0.0) * 1e-3]
        return float(np.median(heard)) if len(heard) else 0.0

    def _undo(self, sent: Parameters) -> Moved:
        """Return what the optimizer made of the gradient, undone where that is possible."""
        name = self._layer_name
        moved = Moved.of(sent[f"{name}.weight"], sent[f"{name}.bias"])
        if self._attack.ability != "adam-inverse":
            return moved
        rate = self._view.require_hyperparameters().learning_rate
        return Moved(weight=_undo_adam(moved.weight, rate), bias=_undo_adam(moved.bias, rate))


def _blur(layer: nn.Linear, noise: float, stream: np.random.Generator) -> None:
    """Add to each row a random vector of about `noise` times its length."""
    with torch.no_grad():
        lengths = layer.weight.norm(dim=1, keepdim=True) / layer.weight.shape[1] ** 0.5
        drawn = torch.from_numpy(stream.standard_normal(tuple(layer.weight.shape))).float()
        layer.weight.add_(noise * lengths * drawn)


def _undo_adam(moved: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Return g from one step lr g / (|g| + eps) of Adam (Kingma and Ba, arXiv 1412.6980, algorithm 1 at t = 1)."""
    share = np.clip(moved / rate, -1 + 1e-9, 1 - 1e-9)
    gradient: NDArray[np.float64] = ADAM_EPSILON * share / (1 - np.abs(share))
    return gradient
