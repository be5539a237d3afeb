"""Noise for privacy, measured: its speed against numpy's `normal`, and its distribution over 10^8 draws."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from client_app.noise.cryptographic import CryptographicNoise
from client_app.noise.source import NoiseSource
from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim

COMMAND = "aegis experiment privacy"
_CPU = torch.device("cpu")
_MODEL_SIZE = 1_670_000
_SIZES = (10_000, _MODEL_SIZE, 10_000_000)
_SAMPLES_PER_TIMING = 1_000_000
_TAILS = (4.0, 5.0, 5.5)
# Mean and variance of x^k for a standard normal x: moments 1, 0, 3, 0 and 105 - 9, 15, 3 - 1, 1.
_MOMENTS = {1: (0.0, 1.0), 2: (1.0, 2.0), 3: (0.0, 15.0), 4: (3.0, 96.0)}


def noise_cells() -> list[Cell]:
    """Return the cells that measure speed (alone) and distribution."""
    speed = {"sizes": list(_SIZES), "repetitions": 15}
    # The third lag is the distance at which two samples share their uniforms.
    drawn = {"draws": 100_000_000, "chunk": 1_000_000, "lags": [1, 2, 16_130], "bins": 16_384}
    return [
        Cell(name="noise-speed", compute=measure_speed, settings=speed, alone=True),
        Cell(name="noise-distribution", compute=measure_distribution, settings=drawn),
    ]


def noise_claims(results: dict[str, Result]) -> list[Claim]:
    """Return the claim on speed, with the other sizes and the other baseline in its note."""
    sizes = results.get("noise-speed", {}).get("sizes", {})
    model = sizes.get(str(_MODEL_SIZE))
    others = "; ".join(
        f"{int(size):,} samples {found['median_ratio']:.2f} and {found['median_generator_ratio']:.2f}"
        for size, found in sizes.items()
    )
    note = f"samples per second over np.random.normal, {_MODEL_SIZE:,} samples, one thread, four normals to a sample"
    values = [model["median_ratio"]] if model else []
    return [
        claim("noise_speed_ratio", ">= 0.5", values, unit="x", command=COMMAND, cells=["noise-speed"],
              note=f"{note}; over np.random.normal and over Generator.normal: {others}" if others else note)
    ]  # fmt: skip


def measure_speed(settings: dict[str, Any], folder: Path) -> Result:  # noqa: ARG001 -- every cell is given one
    """Return, for each size, the samples per second of our noise, `np.random.normal` and `Generator.normal`.

    One thread; the three alternate, so that a drifting machine cancels out, and each ratio belongs to one turn.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    sizes = {str(size): _compare(size, settings["repetitions"]) for size in settings["sizes"]}
    torch.set_num_threads(before)
    return {"sizes": sizes}


def _compare(size: int, repetitions: int) -> Result:
    noise, generator = CryptographicNoise(), np.random.default_rng()
    contestants: dict[str, Callable[[], object]] = {
        "ours": lambda: noise.normal((size,), 1.0, device=_CPU),
        "numpy": lambda: np.random.normal(size=size),  # noqa: NPY002 -- the baseline
        "generator": lambda: generator.normal(size=size),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repetitions + 1):
        for name, draw in contestants.items():
            times[name].append(_time_per_sample(draw, size))
    kept = {name: values[1:] for name, values in times.items()}
    ratios = {name: [base / ours for base, ours in zip(kept[name], kept["ours"], strict=True)] for name in kept}
    return {
        "samples_per_s": {name: 1 / statistics.median(values) for name, values in kept.items()},
        "ratios": ratios["numpy"],
        "generator_ratios": ratios["generator"],
        "median_ratio": statistics.median(ratios["numpy"]),
        "median_generator_ratio": statistics.median(ratios["generator"]),
    }


def _time_per_sample(draw: Callable[[], object], size: int) -> float:
    calls = max(1, _SAMPLES_PER_TIMING // size)
    started = time.perf_counter()
    for _ in range(calls):
        draw()
    return (time.perf_counter() - started) / (calls * size)


def measure_distribution(settings: dict[str, Any], folder: Path) -> Result:  # noqa: ARG001 -- as above
    """Return the statistics of `settings["draws"]` draws of production noise, as `describe_draws` gives them."""
    noise = CryptographicNoise()
    return describe_draws(_chunks(noise, settings), lags=settings["lags"], bins=settings["bins"])


def _chunks(noise: NoiseSource, settings: dict[str, Any]) -> Iterator[Tensor]:
    left = settings["draws"]
    while left > 0:
        size = min(left, settings["chunk"])
        yield noise.normal((size,), 1.0, device=_CPU)
        left -= size


def describe_draws(chunks: Iterator[Tensor], *, lags: Sequence[int], bins: int) -> Result:
    """Return how far draws are from independent standard normals.

    Args:
        chunks: draws, float32, shape (N,), N larger than every lag.
        lags: distances at which serial correlation is measured, of values and of squares.
        bins: equally likely bins for the distribution function and the chi-squared statistic.

    Returns:
        `draws`; `moments` 1 to 4 and `serial` and `serial_squares` by lag, each with its value and `z`, its distance
        from the ideal in standard errors; `distribution`: the largest distance between empirical and normal
        distribution function over the bins' edges, a bound on its probability (Dvoretzky, Kiefer and Wolfowitz 1956
        with Massart's constant, 1990), and chi-squared with `z`; `tails`: counts beyond 4, 5 and 5.5, what is expected,
        and a bound on the probability of a count this far off (Chernoff); `largest_z` and `least_probability`.
    """
    sums = _Sums(lags, bins)
    for chunk in chunks:
        sums.add(chunk.double())
    return sums.describe()


class _Sums:
    """Everything that is added up over chunks."""

    def __init__(self, lags: Sequence[int], bins: int) -> None:
        self.draws = 0
        self.powers = dict.fromkeys(_MOMENTS, 0.0)
        self.pairs = dict.fromkeys(lags, 0)
        self.products = dict.fromkeys(lags, 0.0)
        self.square_products = dict.fromkeys(lags, 0.0)
        self.counts = torch.zeros(bins, dtype=torch.int64)
        self.beyond = dict.fromkeys(_TAILS, 0)
        self.largest = 0.0

    def add(self, draws: Tensor) -> None:
        """Take in a chunk: float64, shape (N,)."""
        size, bins = len(draws), len(self.counts)
        self.draws += size
        squares, magnitudes = draws.square(), draws.abs()
        for power, term in {1: draws, 2: squares, 3: squares * draws, 4: squares.square()}.items():
            self.powers[power] += term.sum().item()
        for lag in self.pairs:
            self.pairs[lag] += size - lag
            self.products[lag] += torch.dot(draws[:-lag], draws[lag:]).item()
            self.square_products[lag] += torch.dot(squares[:-lag] - 1, squares[lag:] - 1).item()
        places = torch.special.ndtr(draws).mul_(bins).long().clamp_(max=bins - 1)
        self.counts += torch.bincount(places, minlength=bins)
        for limit in self.beyond:
            self.beyond[limit] += int((magnitudes > limit).sum().item())
        self.largest = max(self.largest, magnitudes.max().item())

    def describe(self) -> Result:
        """Return the statistics of all chunks."""
        moments = {str(power): self._moment(power) for power in _MOMENTS}
        serial = {str(lag): _scored(self.products[lag], self.pairs[lag], 0.0, 1.0) for lag in self.pairs}
        squares = {str(lag): _scored(self.square_products[lag], self.pairs[lag], 0.0, 4.0) for lag in self.pairs}
        distribution, tails = self._distribution(), {str(limit): self._tail(limit) for limit in _TAILS}
        scores = [item["z"] for group in (moments, serial, squares) for item in group.values()]
        bounds = [item["probability_bound"] for item in (distribution, *tails.values())]
        return {
            "draws": self.draws,
            "moments": moments,
            "serial": serial,
            "serial_squares": squares,
            "distribution": distribution,
            "tails": tails,
            "largest_magnitude": self.largest,
            "largest_z": max(map(abs, [*scores, distribution["chi_squared_z"]])),
            "least_probability": min(bounds),
        }

    def _moment(self, power: int) -> Result:
        mean, variance = _MOMENTS[power]
        return _scored(self.powers[power], self.draws, mean, variance)

    def _distribution(self) -> Result:
        bins = len(self.counts)
        ideal = torch.arange(1, bins + 1, dtype=torch.float64) / bins
        distance = (self.counts.cumsum(0) / self.draws - ideal).abs().max().item()
        expected = self.draws / bins
        chi_squared = ((self.counts - expected).square().sum() / expected).item()
        return {
            "largest_distance": distance,
            "probability_bound": min(1.0, 2 * math.exp(-2 * self.draws * distance**2)),
            "chi_squared": chi_squared,
            "chi_squared_z": (chi_squared - (bins - 1)) / math.sqrt(2 * (bins - 1)),
        }

    def _tail(self, limit: float) -> Result:
        probability, found = math.erfc(limit / math.sqrt(2)), self.beyond[limit]
        bound = min(1.0, 2 * math.exp(-self.draws * _divergence(found / self.draws, probability)))
        return {"count": found, "expected": self.draws * probability, "probability_bound": bound}


def _scored(total: float, count: int, mean: float, variance: float) -> Result:
    value = total / count
    return {"value": value, "z": (value - mean) / math.sqrt(variance / count)}


def _divergence(found: float, expected: float) -> float:
    """Return the Kullback-Leibler divergence between two coins, in nats."""
    head = found * math.log(found / expected) if found else 0.0
    return head + (1 - found) * (math.log1p(-found) - math.log1p(-expected))
