"""The defences and settings that attacks are compared on, by the name that tables show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from attacks.defences.defence import Defence
from attacks.defences.eloul import Eloul
from attacks.defences.grad_defense import GradDefense
from attacks.defences.outpost import Outpost
from attacks.defences.precode import Precode
from attacks.defences.pruning import Pruning
from attacks.defences.soteria import Soteria

BASELINES: Mapping[str, Callable[[], Defence]] = {
    "none": Defence,
    "gc-80": partial(Pruning, share=0.8),
    "gc-90": partial(Pruning, share=0.9),
    "soteria-50": partial(Soteria, share=0.5),
    "grad-defense": GradDefense,
    "grad-defense-clipped": partial(GradDefense, clipping=True),
    "outpost": Outpost,
    "eloul": Eloul,
    "precode": Precode,
}
