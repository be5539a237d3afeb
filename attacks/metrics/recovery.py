"""The report of an attack: how many real images it recovered, how well, and how much of that a guess reaches too.

Not guaranteed: that a low rate means safety. It is what this attack read with this pairing; a rate of 0 of n images has
an interval that says so, and no rate of recovery is a bound on leakage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attacks.metrics.images import Mask, Values
from attacks.metrics.intervals import Share
from attacks.metrics.nulls import NullName
from attacks.metrics.outcome import Basis, Outcome
from attacks.metrics.pairing import PairingName
from attacks.metrics.quality import PSNR_CAP_DB
from federation.errors import DataError

THRESHOLDS_DB = (18.0, 24.0, 30.0, 40.0)
HISTOGRAM_WIDTH_DB = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many real images were recovered at one threshold.

    Attributes:
        threshold_db: an image counts as recovered if its PSNR is above.
        calibrated: the threshold is tau*, what the best of M foreign images passes in one case of a hundred.
        recovered: of all real images, those without any candidate included.
        success_psnr_db: mean over the recovered images; None if there are none.
        success_ssim: mean over the recovered images.
        failure_psnr_db: mean over all others; None if there are none.
        failure_ssim: mean over all others.
        excess: for each null, the share recovered less the share that it recovers, in [-1, 1].
    """

    threshold_db: float
    calibrated: bool
    recovered: Share
    success_psnr_db: float | None
    success_ssim: float | None
    failure_psnr_db: float | None
    failure_ssim: float | None
    excess: Mapping[NullName, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What an attacker is left with, who cannot tell real from synthetic.

    Attributes:
        non_empty: share of the usable candidates that show a real image.
        isolated: the same of those that hold exactly one image; None if that is not known.
        basis: how it was judged that a candidate shows a real image.
    """

    non_empty: Share
    isolated: Share | None
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """How one attack did over N real images.

    Attributes:
        pairing: how each real image got its candidate.
        batches: sets of reconstructions that were pooled.
        images: N, the denominator of every rate.
        unanswered: real images without any usable candidate; 0 dB and an SSIM of 0 each.
        exact_copies: real images whose raw PSNR is infinite.
        psnr_db: mean over all images of the PSNR capped at 100 dB.
        raw_psnr_db: mean without the cap; infinite with any exact copy.
        ssim: mean over all images.
        rates: at 18, 24, 30 and 40 dB, and at tau* where it was given.
        precision: of the candidates.
        identified: images that their candidate points at among all training images; None if not asked.
        histogram: images by PSNR in steps of 2 dB from 0 to 100; the last step takes in 100.
        histogram_width_db: the step.
    """

    pairing: PairingName
    batches: int
    images: int
    unanswered: int
    exact_copies: int
    psnr_db: float
    raw_psnr_db: float
    ssim: float
    rates: tuple[Rate, ...]
    precision: Precision
    identified: Share | None
    histogram: tuple[int, ...]
    histogram_width_db: float

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers under kebab-case keys, fit for JSON: what is infinite or unknown is None."""
        content: dict[str, Any] = _as_plain(asdict(self))
        return content


def report(
    outcome: Outcome, *, tau_star_db: float | None = None, nulls: Mapping[NullName, Outcome] | None = None
) -> RecoveryReport:
    """Return the report of `outcome`, which may be pooled.

    Args:
        outcome: what became of each real image.
        tau_star_db: the calibrated threshold of this data set, `nulls.calibrate_threshold_db`.
        nulls: what became of the same real images, in the same order, under guesses without any update.

    Raises:
        DataError: a null is about another number of images, or the threshold is not from 0 to below 100 dB.
    """
    known = nulls or {}
    for name, null in known.items():
        if len(null.psnr_db) != len(outcome.psnr_db):
            raise DataError(f"Expected null {name} of {len(outcome.psnr_db)} images, found {len(null.psnr_db)}.")
    if tau_star_db is not None and not 0 <= tau_star_db < PSNR_CAP_DB:
        raise DataError(f"Expected 0 <= tau_star_db={tau_star_db} < {PSNR_CAP_DB}.")
    rates = [_rate_at(threshold, outcome, known, calibrated=False) for threshold in THRESHOLDS_DB]
    if tau_star_db is not None:
        rates.append(_rate_at(tau_star_db, outcome, known, calibrated=True))
    edges = np.linspace(0, PSNR_CAP_DB, round(PSNR_CAP_DB / HISTOGRAM_WIDTH_DB) + 1)
    identified = outcome.identified
    return RecoveryReport(
        pairing=outcome.pairing,
        batches=outcome.batches,
        images=len(outcome.psnr_db),
        unanswered=int((~outcome.answered).sum()),
        exact_copies=int(np.isposinf(outcome.raw_psnr_db).sum()),
        psnr_db=float(outcome.psnr_db.mean()),
        raw_psnr_db=float(outcome.raw_psnr_db.mean()),
        ssim=float(outcome.ssim.mean()),
        rates=tuple(rates),
        precision=_precision_of(outcome),
        identified=None if identified is None else Share.of(int(identified.sum()), len(identified)),
        histogram=tuple(np.histogram(outcome.psnr_db, edges)[0].tolist()),
        histogram_width_db=HISTOGRAM_WIDTH_DB,
    )


def _rate_at(threshold_db: float, outcome: Outcome, nulls: Mapping[NullName, Outcome], *, calibrated: bool) -> Rate:
    recovered = outcome.psnr_db > threshold_db
    share = float(recovered.mean())
    return Rate(
        threshold_db=threshold_db,
        calibrated=calibrated,
        recovered=Share.of(int(recovered.sum()), len(recovered)),
        success_psnr_db=_mean_over(outcome.psnr_db, recovered),
        success_ssim=_mean_over(outcome.ssim, recovered),
        failure_psnr_db=_mean_over(outcome.psnr_db, ~recovered),
        failure_ssim=_mean_over(outcome.ssim, ~recovered),
        excess={name: share - float((null.psnr_db > threshold_db).mean()) for name, null in nulls.items()},
    )


def _precision_of(outcome: Outcome) -> Precision:
    counts = outcome.candidates
    isolated = None
    if counts.isolated is not None and counts.isolated_real is not None:
        isolated = Share.of(counts.isolated_real, counts.isolated)
    return Precision(non_empty=Share.of(counts.real, counts.non_empty), isolated=isolated, basis=counts.basis)


def _mean_over(values: Values, chosen: Mask) -> float | None:
    return float(values[chosen].mean()) if chosen.any() else None


def _as_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key.replace("_", "-"): _as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
