"""All attacks by name, each with the settings under which tables and the command line run it."""

from __future__ import annotations

from pathlib import Path

from attacks.attack import Attack
from attacks.linear_leakage.analytic_inversion import AnalyticInversion
from attacks.linear_leakage.loki import Loki
from attacks.linear_leakage.one_shot import OneShot
from attacks.linear_leakage.robbing_the_fed import RobbingTheFed
from attacks.linear_leakage.scale_mia import ScaleMia
from attacks.linear_leakage.trap_weights import TrapWeights
from federation.errors import DataError

SINGLE_ROUND: tuple[RobbingTheFed, ...] = (
    RobbingTheFed(),
    RobbingTheFed(kind="sparse"),
    RobbingTheFed(carrier="mlp"),
    RobbingTheFed(carrier="mlp", direction="random"),
    RobbingTheFed(carrier="mlp", direction="dct"),
    RobbingTheFed(carrier="mlp", direction="learned"),
    RobbingTheFed(carrier="mlp", rule="kde"),
    RobbingTheFed(carrier="mlp", rule="empirical"),
)
"""With k=1024 and the gradient of one round: over all of them goes the worst case of a defence."""

MANY_BINS = tuple(RobbingTheFed(carrier="mlp", capacity=capacity) for capacity in (4096, 8192, 16384))
MANY_ROUNDS = tuple(RobbingTheFed(carrier="mlp", direction="random", rounds=rounds) for rounds in (10, 20))
DIFFERENCE = RobbingTheFed(carrier="mlp", rounds=2, together="difference")
BY_CLASS = {classes: RobbingTheFed(carrier="mlp", rounds=classes, together="classes") for classes in (2, 4, 5, 11)}
"""By number of classes that the server has images of, each of which has a round of its own."""

CALIBRATED = tuple(
    RobbingTheFed(carrier="mlp", ability="calibrated", movement=movement) for movement in (1e-8, 1e-7, 1e-6)
)
ADAM_INVERSE = tuple(
    RobbingTheFed(carrier="mlp", ability="adam-inverse", movement=movement) for movement in (1e-6, 1e-5)
)
ADAM_LINEAR = tuple(
    RobbingTheFed(carrier="mlp", ability="adam-linear", movement=movement) for movement in (1e-8, 1e-7, 1e-6)
)
EVASIVE = tuple(RobbingTheFed(carrier="mlp", direction="random", noise=noise) for noise in (1e-4, 1e-3, 1e-2, 0.1, 0.3))
CROWDED = tuple(RobbingTheFed(carrier="mlp", crowd=64 + size) for size in (2048, 3004, 9139))
"""For servers that know how many images there are in all, which they mostly set themselves."""

CLIPPED = (
    RobbingTheFed(ability="calibrated", movement=1e-5),
    *(RobbingTheFed(carrier="mlp", ability="calibrated", movement=movement) for movement in (1e-5, 1e-4, 1e-3)),
)
"""With gradients as large as the clip norm allows, so that noise weighs least against them."""

LOKI = {
    clients: Loki(clients=clients, capacity=capacity, name=f"loki-{clients}")
    for clients, capacity in {10: 1024, 100: 768}.items()
}
"""By number of hospitals; with 100 of them fewer bins each, for memory."""

SCALE_MIA = "scale-mia"
DEFAULT_FOLDER = Path("runs") / "attacks"


def list_attacks(folder: Path = DEFAULT_FOLDER) -> tuple[Attack, ...]:
    """Return every attack; what one of them trains is kept below `folder`, which must be of one data set."""
    return (
        *SINGLE_ROUND,
        *MANY_BINS,
        *MANY_ROUNDS,
        DIFFERENCE,
        *BY_CLASS.values(),
        *CALIBRATED,
        *ADAM_INVERSE,
        *ADAM_LINEAR,
        *EVASIVE,
        *CROWDED,
        *CLIPPED,
        *LOKI.values(),
        ScaleMia(folder=folder / "autoencoder", name=SCALE_MIA),
        TrapWeights(),
        OneShot(images=64),
        AnalyticInversion(),
    )


def find_attack(name: str, folder: Path = DEFAULT_FOLDER) -> Attack:
    """Return the attack called `name`; see `list_attacks`.

    Raises:
        DataError: there is none.
    """
    every = list_attacks(folder)
    for attack in every:
        if attack.name == name:
            return attack
    raise DataError(
        f"Expected the name of an attack, found {name!r}; known are {', '.join(attack.name for attack in every)}."
    )
