"""All that a row of a table says: recovery under two pairings, nulls, the self-test, and what it cost."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.attack import Attack
from attacks.evaluation.exchange import NOWHERE, Exchange, Stage
from attacks.evaluation.trial import Trial
from attacks.metrics.identity import Gallery
from attacks.metrics.intervals import BinomialCheck, check_occupancy
from attacks.metrics.nulls import (
    Null,
    NullName,
    calibrate_threshold_db,
    guess_best_foreign,
    guess_mean,
    guess_nearest_synthetic,
    guess_scaled_mean,
)
from attacks.metrics.outcome import Outcome, measure, measure_null, pool
from attacks.metrics.pairing import Pairing, mean_squared_errors, pair_by_hungarian, pair_by_oracle
from attacks.metrics.recovery import THRESHOLDS_DB, RecoveryReport, report
from attacks.threat_model import ThreatModel, grant
from attacks.world import World, as_floats
from federation.randomness import numpy_stream

VERBATIM_DB = 60.0
_LARGEST_PAIRING = 500_000
_SHOWN = 8
_FOREIGN = 2048
_GALLERY = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an attack got, over all batches and seeds.

    Attributes:
        oracle: report under the pairing that the planted network gives; over several rounds the best of them.
        hungarian: under the best pairing without repetition; None where there are too many pairs.
        nulls: share above each threshold without any update, by null.
        verbatim: real images read at more than 60 dB, oracle.
        by_seed: for each seed, the shares of real images above 18, 24, 30, 40 and 60 dB, oracle.
        alone: real images that share their place with no other image; 0 over several rounds.
        images: real images in all.
        occupancy: whether `verbatim` is what k equally likely bins give; None where it does not apply.
        tau_star_db: the calibrated threshold.
        processor_s: of computing.
        real: up to eight real images, float32, shape (n, C, H, W).
        read: their candidates, NaN where there are none.
    """

    oracle: RecoveryReport
    hungarian: RecoveryReport | None
    nulls: dict[NullName, RecoveryReport]
    verbatim: int
    by_seed: tuple[tuple[float, ...], ...]
    alone: int
    images: int
    occupancy: BinomialCheck | None
    tau_star_db: float
    processor_s: float
    real: NDArray[np.float32] = field(repr=False)
    read: NDArray[np.float32] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers under kebab-case keys, fit for JSON; the pictures are left out."""
        check = self.occupancy
        interval = None
        if check is not None:
            interval = {"low": check.low, "high": check.high, "expected": check.probability, "passed": check.passed}
        return {
            "oracle": self.oracle.as_dict(),
            "hungarian": None if self.hungarian is None else self.hungarian.as_dict(),
            "nulls": {name: found.as_dict() for name, found in self.nulls.items()},
            "verbatim": self.verbatim,
            "by-seed": [list(shares) for shares in self.by_seed],
            "alone": self.alone,
            "images": self.images,
            "occupancy": interval,
            "tau-star-db": self.tau_star_db,
            "processor-s": self.processor_s,
        }


class Tally:
    """Outcomes gathered batch by batch."""

    def __init__(self, world: World, *, identify: bool) -> None:
        """Start with nothing."""
        self._world, self._identify = world, identify
        self.oracle: list[Outcome] = []
        self.hungarian: list[Outcome] = []
        self.nulls: dict[NullName, list[Outcome]] = {}
        self.verbatim = self.alone = 0
        self.real: NDArray[np.float32] | None = None
        self.read: NDArray[np.float32] | None = None

    def add(self, exchange: Exchange, *, seed: int) -> None:
        """Measure one exchange and the guesses that use no update."""
        pairing = _pair(exchange)
        gallery = self._gallery_around(exchange, seed) if self._identify else None
        outcome = measure(exchange.real, exchange.candidates, pairing, truth=exchange.truth, gallery=gallery)
        self.oracle.append(outcome)
        self.verbatim += int((outcome.raw_psnr_db > VERBATIM_DB).sum())
        self.alone += int(exchange.alone.sum())
        if len(exchange.real) * len(exchange.candidates) <= _LARGEST_PAIRING:
            best = pair_by_hungarian(exchange.real, exchange.candidates)
            self.hungarian.append(measure(exchange.real, exchange.candidates, best, truth=exchange.truth))
        for name, found in self._measure_nulls(exchange, seed).items():
            self.nulls.setdefault(name, []).append(found)
        if self.real is None:
            self.real = exchange.real[:_SHOWN]
            self.read = pairing.select(exchange.candidates)[:_SHOWN].astype(np.float32)

    def _gallery_around(self, exchange: Exchange, seed: int) -> Gallery:
        """Return the real images of `exchange` among others of the training split, all of them if they are few."""
        split = self._world.real
        others = np.setdiff1d(np.arange(len(split)), exchange.victims)
        drawn = numpy_stream(seed, "gallery").permutation(others)[: max(0, _GALLERY - len(exchange.victims))]
        images = as_floats(split.take(np.concatenate([exchange.victims, drawn])))
        return Gallery(images=images, positions=np.arange(len(exchange.victims)))

    def _measure_nulls(self, exchange: Exchange, seed: int) -> dict[NullName, Outcome]:
        """Return what guesses make of the same images, measured once for all attacks."""
        told = hashlib.sha256(exchange.victims.tobytes() + exchange.synthetic.tobytes()).hexdigest()
        if told not in self._world.kept:
            guesses = self._guess(exchange, seed)
            self._world.kept[told] = {guess.name: measure_null(exchange.real, guess) for guess in guesses}
        found: dict[NullName, Outcome] = self._world.kept[told]
        return found

    def _guess(self, exchange: Exchange, seed: int) -> list[Null]:
        real, foreign = exchange.real, self._world.foreign
        stream = numpy_stream(seed, "null")
        found = [
            guess_mean(real, foreign),
            guess_scaled_mean(real, foreign),
            guess_best_foreign(real, foreign, min(_FOREIGN, len(foreign)), stream=stream),
        ]
        if len(exchange.synthetic):
            found.append(guess_nearest_synthetic(real, exchange.synthetic))
        return found


def evaluate(
    attack: Attack,
    world: World,
    trial: Trial,
    *,
    threat: ThreatModel | None = None,
    capacity: int | None = None,
    identify: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Findings:
    """Return what `attack` gets in `trial`.

    Args:
        attack: is handed what it declares and `threat` grants.
        world: real, auxiliary and synthetic images.
        trial: what is attacked.
        threat: what the server can do; by default what the attack needs.
        capacity: k, for the self-test on occupancy; None leaves it out.
        identify: whether to look for each real image among up to 5000 of the training split by its candidate.
        progress: told what is done, batch by batch.

    Raises:
        DataError: there are too few images, or the threat model does not grant what the attack needs.
    """
    started = time.process_time()
    model = threat or ThreatModel(rounds=attack.needs.rounds, sees=attack.needs.sees)
    foreign = min(_FOREIGN, len(world.foreign))
    tau = calibrate_threshold_db(world.some_real(), world.foreign, foreign, stream=numpy_stream(0, "tau-star"))
    tally = Tally(world, identify=identify)
    for seed in trial.seeds:
        told = "generator" in attack.needs.knows
        view = grant(world.view(trial.plan, numpy_stream(seed, "server"), generator=told), attack.needs, model)
        with tempfile.TemporaryDirectory() as folder:
            stage = Stage(attack, attack.begin(view), world, trial, seed=seed, folder=Path(folder))
            for batch in range(trial.batches):
                tally.add(stage.play(batch), seed=seed)
                progress(f"{attack.name}, seed {seed}, batch {batch + 1} of {trial.batches}")
    return _conclude(tally, attack, trial, capacity, tau, started)


def _conclude(tally: Tally, attack: Attack, trial: Trial, capacity: int | None, tau: float, started: float) -> Findings:
    oracle, nulls = pool(tally.oracle), {name: pool(found) for name, found in tally.nulls.items()}
    images, check = len(oracle.psnr_db), None
    if capacity is not None and attack.needs.rounds == 1 and trial.clients == 1:
        check = check_occupancy(
            tally.verbatim,
            batches=images // trial.batch,
            real=trial.batch,
            synthetic=trial.synthetic,
            capacity=capacity,
        )
    empty = np.empty((0, 1, 1, 1), dtype=np.float32)
    return Findings(
        oracle=report(oracle, tau_star_db=tau, nulls=nulls),
        hungarian=report(pool(tally.hungarian), tau_star_db=tau, nulls=nulls) if tally.hungarian else None,
        nulls={name: report(found, tau_star_db=tau) for name, found in nulls.items()},
        verbatim=tally.verbatim,
        by_seed=tuple(
            _shares(pool(tally.oracle[start : start + trial.batches]))
            for start in range(0, len(tally.oracle), trial.batches)
        ),
        alone=tally.alone,
        images=images,
        occupancy=check,
        tau_star_db=tau,
        processor_s=time.process_time() - started,
        real=empty if tally.real is None else tally.real,
        read=empty if tally.read is None else tally.read,
    )


def _shares(outcome: Outcome) -> tuple[float, ...]:
    return tuple(float((outcome.raw_psnr_db > threshold).mean()) for threshold in (*THRESHOLDS_DB, VERBATIM_DB))


def _pair(exchange: Exchange) -> Pairing:
    """Return the place of each image; over several rounds the one in which it is read best."""
    places = exchange.places
    if places.shape[1] == 1:
        return pair_by_oracle(places[:, 0])
    chosen = np.full(len(places), NOWHERE, dtype=np.int64)
    for index, row in enumerate(places):
        taken = row[row != NOWHERE]
        if len(taken):
            errors = mean_squared_errors(exchange.real[index : index + 1], exchange.candidates[taken])[0]
            chosen[index] = taken[int(errors.argmin())]
    return pair_by_oracle(chosen)
