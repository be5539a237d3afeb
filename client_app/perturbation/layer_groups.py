"""Which layers share a part of the budget: every parameter of an update in exactly one group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from federation.config.layer_shares import LayerShare
from federation.errors import ConfigurationError

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Parameters that are clipped and noised together.

    Attributes:
        names: of the parameters, at least one.
        share: of the budget, in (0, 1].
    """

    names: tuple[str, ...]
    share: float


def divide_layers(names: Iterable[str], shares: Sequence[LayerShare]) -> tuple[LayerGroup, ...]:
    """Return the parameters called `names` in their groups, in the order of `shares`; the first match decides.

    Raises:
        ConfigurationError: a parameter fits no group, or a group is left without a parameter.
    """
    members: list[list[str]] = [[] for _ in shares]
    homeless: list[str] = []
    for name in names:
        place = next((number for number, group in enumerate(shares) if _fits(name, group)), None)
        (homeless if place is None else members[place]).append(name)
    if homeless:
        raise ConfigurationError(
            f"Expected privacy.layer-shares to name every parameter, found no group for {homeless[:_NAMED]}: "
            "add '*=share' at the end."
        )
    empty = ["|".join(group.patterns) for group, found in zip(shares, members, strict=True) if not found]
    if empty:
        raise ConfigurationError(
            f"Expected a parameter in every group of privacy.layer-shares, found none for {empty}: its share would be "
            "lost; correct the pattern or move it in front of the one that takes its layers."
        )
    pairs = zip(shares, members, strict=True)
    return tuple(LayerGroup(names=tuple(found), share=float(group.share)) for group, found in pairs)


def _fits(name: str, group: LayerShare) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in group.patterns)
