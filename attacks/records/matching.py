"""Whether what was read out of a recorded update are the hospital's images, beside what a guess reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.metrics.intervals import Share
from attacks.metrics.nulls import NullName, calibrate_threshold_db, guess_best_foreign, guess_mean
from attacks.metrics.outcome import measure, measure_null
from attacks.metrics.pairing import pair_by_hungarian
from attacks.metrics.recovery import RecoveryReport, report
from attacks.records.inspecting import Inspection
from attacks.world import World, as_floats
from federation.errors import DataError
from federation.randomness import numpy_stream

STRICTEST: NullName = "best-foreign"
_MOST_PAIRS = 20_000_000
_LEAST_FOREIGN = 2048
_SHOWN = 8


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Match:
    """How many real images were read out of one recorded update.

    Attributes:
        found: report under the pairing with the least sum of squared errors, each candidate given away once.
        nulls: report of guesses that use no update, by name.
        tau_star_db: what the best of so many foreign images passes for one real image in a hundred.
        images: real images that were looked for.
        held: real images there are; of more than could be paired, `images` of them were drawn.
        psnr_db: float64, shape (images,), for pooling over records.
        real: up to eight images that were read best, float32, shape (n, C, H, W).
        read: what was read of them.
        shown_db: PSNR of these.
    """

    found: RecoveryReport
    nulls: dict[NullName, RecoveryReport]
    tau_star_db: float
    images: int
    held: int
    psnr_db: NDArray[np.float64] = field(repr=False)
    real: NDArray[np.float32] = field(repr=False)
    read: NDArray[np.float32] = field(repr=False)
    shown_db: tuple[float, ...]

    @property
    def exceeds_guesses(self) -> bool:
        """Whether at some threshold the interval of what was read lies above that of the best foreign image."""
        pairs = zip(self.found.rates, self.nulls[STRICTEST].rates, strict=True)
        return any(rate.recovered.low > null.recovered.high for rate, null in pairs)

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers under kebab-case keys, fit for JSON; the pictures are left out."""
        return {
            "images": self.images,
            "held": self.held,
            "tau-star-db": self.tau_star_db,
            "found": self.found.as_dict(),
            "nulls": {name: null.as_dict() for name, null in self.nulls.items()},
            "exceeds-guesses": self.exceeds_guesses,
        }


def match_images(inspection: Inspection, world: World, *, seed: int = 0) -> Match:
    """Return how many real images of `world` are among the candidates of `inspection`.

    Args:
        inspection: of a record with a layer that sees the image.
        world: the hospital's images; its training split is what was trained on, the rest are foreign images.
        seed: of what is drawn.

    Raises:
        DataError: images and record differ in shape, or there are too few images.
    """
    wanted, shape = inspection.candidates.shape[1:], world.real.images.shape[1:]
    if wanted != shape:
        raise DataError(
            f"{inspection.record.path}: expected images of shape {wanted}, as the record says, found {shape}: give the "
            "images that the update was trained on."
        )
    real = as_floats(world.real.take(_choose(len(world.real), len(inspection.candidates), seed)))
    count = min(max(_LEAST_FOREIGN, len(inspection.candidates)), len(world.foreign))
    pairing = pair_by_hungarian(real, inspection.candidates)
    outcome = measure(real, inspection.candidates, pairing)
    guesses = [
        guess_mean(real, world.foreign),
        guess_best_foreign(real, world.foreign, count, stream=numpy_stream(seed, "null")),
    ]
    nulls = {guess.name: measure_null(real, guess) for guess in guesses}
    tau = calibrate_threshold_db(world.some_real(), world.foreign, count, stream=numpy_stream(seed, "tau-star"))
    best = np.argsort(-outcome.psnr_db, kind="stable")[:_SHOWN]
    return Match(
        found=report(outcome, tau_star_db=tau, nulls=nulls),
        nulls={name: report(null, tau_star_db=tau) for name, null in nulls.items()},
        tau_star_db=tau,
        images=len(real),
        held=len(world.real),
        psnr_db=outcome.psnr_db,
        real=real[best],
        read=pairing.select(inspection.candidates)[best].astype(np.float32),
        shown_db=tuple(float(value) for value in outcome.psnr_db[best]),
    )


def read_in_any(matches: Sequence[Match]) -> list[tuple[float, Share]]:
    """Return for each fixed threshold how many images were read in at least one of several records.

    Args:
        matches: of the same images, at least one; as many as all of them looked for are counted.
    """
    thresholds = [rate.threshold_db for rate in matches[0].found.rates if not rate.calibrated]
    alike = [match.psnr_db for match in matches if match.images == matches[0].images]
    best = np.stack(alike).max(axis=0)
    return [(threshold, Share.of(int((best > threshold).sum()), len(best))) for threshold in thresholds]


def _choose(held: int, candidates: int, seed: int) -> NDArray[np.int64]:
    """Return which real images are looked for: all, or as many as can be paired."""
    most = max(1, _MOST_PAIRS // max(candidates, 1))
    if held <= most:
        return np.arange(held)
    return np.sort(numpy_stream(seed, "match").permutation(held)[:most])
