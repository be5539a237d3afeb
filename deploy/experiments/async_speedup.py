"""How much sooner an algorithm has learnt than synchronous FedAvg of the same seed, from finished cells."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from deploy.experiments.async_chapter import Results
from deploy.experiments.async_runs import HELD, SHARE_OF_PLATEAU, Point, plateau, time_to
from deploy.experiments.cells import Result

SEEDS = (0, 1, 2, 3, 4)
FACTORS = (8, 20)
SLOW_SITE = 0


def cell_name(data: str, rule: str, factor: int, seed: int) -> str:
    """Return the name of a cell; who waits for the slowest learns the same at any speed, so 8 stands for 20 as well."""
    return f"straggler-{data}-{rule}-{FACTORS[0] if waits(rule) else factor}x-{seed}"


def waits(rule: str) -> bool:
    """Return whether every round of `rule` takes as long as the slowest hospital."""
    return rule == "fedavg"


def curve(results: Results, data: str, rule: str, factor: int, seed: int) -> list[Point]:
    """Return (virtual time, accuracy) at `factor`; a rule that waits has it stretched from the run at the first one."""
    stretch = factor / FACTORS[0] if waits(rule) else 1.0
    points = results[cell_name(data, rule, factor, seed)]["curve"]
    return [(moment * stretch, accuracy) for moment, accuracy in points]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run beside synchronous FedAvg of the same seed.

    Attributes:
        seed: of both.
        first_s: virtual seconds until one evaluation is at the target; infinite when none was.
        held_s: until the mean of three evaluations in a row is.
        first_speedup: FedAvg's time over `first_s`; 0 when it was never reached.
        speedup: the smaller of `first_speedup` and the same for `held_s`; the claims go by it. The first helps whom
            noise favours, the second whoever evaluates often.
        accuracy: of the last model on the pooled test images.
        worst: of the last model at the hospital that it serves worst.
        slow: of the last model at the slow hospital.
        worst_gap: points by which `worst` is below FedAvg's at its own end.
        cell: the finished cell.
    """

    seed: int
    first_s: float
    held_s: float
    first_speedup: float
    speedup: float
    accuracy: float
    worst: float
    slow: float
    worst_gap: float
    cell: Result


def measure(results: Results, data: str, rule: str, factor: int) -> list[Measured]:
    """Return what was measured for `rule`, a value per seed of which both runs are finished.

    Args:
        results: finished cells by name.
        data: "pneumonia" or "organa".
        rule: of `RULES`.
        factor: how many times slower the slow hospital is.
    """
    names = {seed: (cell_name(data, rule, factor, seed), cell_name(data, "fedavg", factor, seed)) for seed in SEEDS}
    finished = [seed for seed, (own, base) in names.items() if own in results and base in results]
    return [_measure(results, data, rule, factor, seed) for seed in finished]


def median_speedup(measured: list[Measured]) -> float | None:
    """Return the median speed-up over the seeds, or None when nothing was measured."""
    return statistics.median(item.speedup for item in measured) if measured else None


def _measure(results: Results, data: str, rule: str, factor: int, seed: int) -> Measured:
    own, base = (curve(results, data, name, factor, seed) for name in (rule, "fedavg"))
    target = SHARE_OF_PLATEAU * plateau(base)
    first, held = (time_to(own, target, mean_of=count) for count in (1, HELD))
    base_first, base_held = (time_to(base, target, mean_of=count) for count in (1, HELD))
    cell = results[cell_name(data, rule, factor, seed)]
    worst = _worst(cell)
    return Measured(
        seed=seed,
        first_s=first,
        held_s=held,
        first_speedup=base_first / first,
        speedup=min(base_first / first, base_held / held),
        accuracy=own[-1][1],
        worst=worst,
        slow=cell["hospitals"][SLOW_SITE]["accuracy"],
        worst_gap=100 * (_worst(results[cell_name(data, "fedavg", factor, seed)]) - worst),
        cell=cell,
    )


def _worst(cell: Result) -> float:
    return min(float(hospital["accuracy"]) for hospital in cell["hospitals"])
