"""Accounts turned round: how many releases still fit below an epsilon, and which noise lets so many fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from federation.accounting.accounts import Account, account_of
from federation.accounting.bounds import require_delta, require_epsilon
from federation.accounting.events import Event, History
from federation.errors import PrivacyError

LARGEST_COUNT = 10**9
LARGEST_MULTIPLIER = 1e6
SMALLEST_MULTIPLIER = 1e-6

# How far above the least noise multiplier the answer may lie, as a share.
_MULTIPLIER_WIDTH = 1e-4

_LARGEST_JUMP = 1024
_INTERPOLATIONS = 12
_TINY = 1e-300

# Bounds of a step between logarithms of noise multipliers.
_SHORTEST_STEP = 0.05
_LONGEST_STEP = math.log(100)


def largest_count(event: Event, *, epsilon: float, delta: float, account: Account, spent: History | None = None) -> int:
    """Return how many releases of `event` fit on top of `spent` without exceeding `epsilon`; at most 10^9.

    Args:
        event: the release.
        epsilon: that the whole history may cost at `delta`.
        delta: of that epsilon.
        account: by which it is counted.
        spent: what has been released before.

    Raises:
        PrivacyError: `epsilon` is not positive and finite, or `delta` not between 0 and 1.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    before = spent or History()

    def excess(count: float) -> float:
        return account.epsilon(before.plus(event, int(count)), delta) - epsilon

    fits, over = _Point(0, excess(0)), _Point(1, excess(1))
    while over.excess <= 0:
        if over.x >= LARGEST_COUNT:
            return LARGEST_COUNT
        fits, count = over, min(over.x * _jump(epsilon, epsilon + over.excess), LARGEST_COUNT)
        over = _Point(count, excess(count))
    return int(_narrow(excess, fits, over, width=1, whole=True).x)


def smallest_noise_multiplier(
    make_event: Callable[[float], Event],
    *,
    releases: int,
    epsilon: float,
    delta: float,
    account: Account,
    spent: History | None = None,
) -> float:
    """Return the smallest noise multiplier with which `releases` more releases stay within `epsilon`.

    Guarantee: `account` says at most `epsilon` of `spent` and `releases` releases of make_event(result): that very
        number was asked for. It is at most a share of 1e-4 above the least one, and never below 1e-6.
    Not guaranteed: more than `account` guarantees.

    Args:
        make_event: from a noise multiplier to the release.
        releases: at least 1.
        epsilon: that the whole history may cost at `delta`.
        delta: of that epsilon.
        account: by which it is counted.
        spent: what has been released before.

    Raises:
        PrivacyError: an argument is out of its bounds, `spent` alone costs more, or noise of 10^6 times the
            sensitivity is still too little.
    """
    require_epsilon(epsilon)
    require_delta(delta)
    if releases < 1:
        raise PrivacyError(f"Expected releases={releases} >= 1.")
    before = spent or History()
    if (cost := account.epsilon(before, delta)) > epsilon:
        raise PrivacyError(f"Expected epsilon={epsilon} of at least what was spent before, found {cost:.6g}.")

    def multiplier(by: Account, start: float) -> float:
        def excess(logarithm: float) -> float:
            cost = by.epsilon(before.plus(make_event(math.exp(logarithm)), releases), delta)
            ratio = math.log(max(cost, _TINY)) - math.log(epsilon)
            return max(ratio, _TINY) if cost > epsilon else min(ratio, 0.0)

        return _narrow(excess, *_bracket(excess, start), width=_MULTIPLIER_WIDTH, whole=False).x

    if account.name == "rdp":
        return math.exp(multiplier(account, 0.0))
    # The RDP account answers at once and is never far from the others, whose answers may take a second each.
    with suppress(PrivacyError):
        return math.exp(multiplier(account, multiplier(account_of("rdp"), 0.0)))
    return math.exp(multiplier(account, 0.0))


@dataclass(frozen=True, slots=True)
class _Point:
    x: float
    excess: float


def _bracket(excess: Callable[[float], float], start: float) -> tuple[_Point, _Point]:
    """Return a multiplier's logarithm that fits, and one that does not, with nothing tried in between.

    Epsilon falls at least in proportion to the noise, so from `start` a step somewhat longer than the excess crosses.
    """
    point = _Point(start, excess(start))
    downwards = point.excess <= 0
    while (point.excess <= 0) == downwards:
        last, step = point, min(max(1.1 * abs(point.excess), _SHORTEST_STEP), _LONGEST_STEP)
        if downwards and point.x <= math.log(SMALLEST_MULTIPLIER):
            return point, point
        if not downwards and point.x >= math.log(LARGEST_MULTIPLIER):
            raise PrivacyError(
                f"Expected a noise multiplier of at most {LARGEST_MULTIPLIER:g} to suffice: allow more epsilon, or "
                "fewer releases."
            )
        following = point.x - step if downwards else point.x + step
        following = min(max(following, math.log(SMALLEST_MULTIPLIER)), math.log(LARGEST_MULTIPLIER))
        point = _Point(following, excess(following))
    return (last, point) if downwards else (point, last)


def _jump(epsilon: float, cost: float) -> int:
    """Return by which factor to multiply a count that costs `cost`, at least 2: epsilon grows as its root or faster."""
    if cost <= 0 or epsilon / cost > math.sqrt(_LARGEST_JUMP):
        return _LARGEST_JUMP
    return max(2, math.ceil((epsilon / cost) ** 2))


def _narrow(excess: Callable[[float], float], fits: _Point, over: _Point, *, width: float, whole: bool) -> _Point:
    """Return the point that fits within `width` of one that does not.

    False position with the Illinois rule, then bisection, so that a function with steps is no trap.

    Args:
        excess: monotone between the two points.
        fits: where the excess is at most 0.
        over: where it is greater.
        width: at which distance to stop.
        whole: whether only whole numbers count.
    """
    weights = {True: fits.excess, False: over.excess}
    last: bool | None = None
    least, rounds = (1.0 if whole else width / 2), 0
    while (gap := abs(over.x - fits.x)) > width:
        share = 0.5
        if rounds < _INTERPOLATIONS and math.isfinite(weights[False] - weights[True]):
            share = weights[True] / (weights[True] - weights[False])
        step = min(max(share * gap, least), gap - least)
        step = math.copysign(math.floor(step) if whole else step, over.x - fits.x)
        found = _Point(fits.x + step, excess(fits.x + step))
        side = found.excess <= 0
        if side == last:
            weights[not side] /= 2
        weights[side], last = found.excess, side
        fits, over = (found, over) if side else (fits, found)
        rounds += 1
    return fits
