"""The fewest images that every hospital must hold, met by moving images without breaking a method's exclusions."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class _Move(NamedTuple):
    taker: int
    giver: int
    stratum: int


def raise_to_minimum(counts: NDArray[np.int64], allowed: NDArray[np.bool_], minimum: int) -> NDArray[np.int64] | None:
    """Return `counts` after the fewest moves that give every hospital `minimum` images, or None where none can.

    The largest holder gives first, from its most frequent stratum. Where no holder with images to spare has any that
    the poor hospital may hold, images move along the shortest chain of hospitals (an augmenting path in the flow from
    strata to hospitals), so None means that no distribution of these strata exists.

    Args:
        counts: images of each stratum at each hospital, shape (sites, strata).
        allowed: which strata each hospital may hold, shape (sites, strata).
        minimum: fewest images per hospital.
    """
    moved = counts.copy()
    for site in range(len(moved)):
        while moved[site].sum() < minimum:
            chain = _find_chain(moved, allowed, site, minimum)
            if not chain:
                return None
            for move in chain:
                moved[move.giver, move.stratum] -= 1
                moved[move.taker, move.stratum] += 1
    return moved


def _find_chain(counts: NDArray[np.int64], allowed: NDArray[np.bool_], site: int, minimum: int) -> list[_Move]:
    """Return the moves of one image each that bring one to `site` from a hospital with more than `minimum`."""
    totals = counts.sum(axis=1)
    largest_first = np.argsort(-totals, kind="stable").tolist()
    reached: dict[int, _Move | None] = {site: None}
    queue = deque([site])
    while queue:
        taker = queue.popleft()
        offers = np.where(allowed[taker], counts, 0)
        willing = offers.sum(axis=1)
        for giver in largest_first:
            if willing[giver] == 0 or giver in reached:
                continue
            reached[giver] = _Move(taker, giver, int(offers[giver].argmax()))
            if totals[giver] > minimum:
                return _trace(reached, giver)
            queue.append(giver)
    return []


def _trace(reached: dict[int, _Move | None], giver: int) -> list[_Move]:
    chain = []
    move = reached[giver]
    while move is not None:
        chain.append(move)
        move = reached[move.taker]
    return chain
