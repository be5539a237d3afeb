"""What became of each real image and each candidate, kept an image each so that batches and seeds can be pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attacks.metrics.identity import Gallery, identify
from attacks.metrics.images import Images, Mask, Values, are_usable, check_images, clean_candidates
from attacks.metrics.nulls import Null
from attacks.metrics.pairing import Pairing, PairingName, mean_squared_errors, pair_by_oracle
from attacks.metrics.quality import measure_psnr, measure_ssim
from federation.errors import DataError

MATCH_DB = 30.0
"""A candidate within this PSNR of a real image shows it: no null reaches it for more than 0.6 % of images."""

Basis = Literal["occupants", "match-at-30-db"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateTruth:
    """What the harness knows of the candidates and an attacker does not; one entry for each of K candidates.

    Attributes:
        isolated: bool, shape (K,); exactly one image, real or synthetic, went into the candidate. None if not known.
        shows_real: bool, shape (K,); the candidate shows a real image. None: judged by its match, `MATCH_DB`.
    """

    isolated: Mask | None = None
    shows_real: Mask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCounts:
    """How many of the candidates an attacker is left with are real.

    Attributes:
        non_empty: usable candidates.
        real: those of them that show a real image.
        isolated: usable candidates that hold exactly one image; None if not known.
        isolated_real: those of them that show a real image; None if not known.
        basis: how it was judged that a candidate shows a real image.
    """

    non_empty: int
    real: int
    isolated: int | None
    isolated_real: int | None
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of N real images.

    Attributes:
        pairing: how each got its candidate.
        batches: sets of reconstructions that were pooled.
        answered: bool, shape (N,); the image has a usable candidate.
        psnr_db: float64 in [0, 100], shape (N,); 0 where there is no candidate.
        raw_psnr_db: float64, shape (N,); infinite for an exact copy.
        ssim: float64, shape (N,); 0 where there is no candidate.
        identified: bool, shape (N,); its candidate points at it among all training images. None if not asked.
        candidates: of all K candidates.
    """

    pairing: PairingName
    batches: int
    answered: Mask
    psnr_db: Values
    raw_psnr_db: Values
    ssim: Values
    identified: Mask | None
    candidates: CandidateCounts


def measure(
    real: NDArray[np.floating],
    candidates: NDArray[np.floating],
    pairing: Pairing,
    *,
    truth: CandidateTruth | None = None,
    gallery: Gallery | None = None,
) -> Outcome:
    """Return what became of each real image of one set of reconstructions.

    Args:
        real: float in [0, 1], shape (N, C, H, W), every image that the attack was after.
        candidates: float, shape (K, C, H, W), NaN where the attack found nothing.
        pairing: which candidate belongs to which real image.
        truth: what is known of the candidates.
        gallery: all training images; None leaves identification out.

    Raises:
        DataError: images, pairing or truth do not fit.
    """
    checked = check_images(real, "real images")
    cleaned = clean_candidates(candidates, checked)
    found = pairing.select(cleaned)
    psnr = measure_psnr(checked, found)
    return Outcome(
        pairing=pairing.name,
        batches=1,
        answered=are_usable(found),
        psnr_db=psnr.capped_db,
        raw_psnr_db=psnr.raw_db,
        ssim=measure_ssim(checked, found),
        identified=None if gallery is None else identify(checked, found, gallery),
        candidates=_count_candidates(checked, cleaned, truth or CandidateTruth()),
    )


def measure_null(real: NDArray[np.floating], null: Null, *, gallery: Gallery | None = None) -> Outcome:
    """Return what became of each real image under a guess that uses no update.

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        null: a guess for each of them.
        gallery: all training images; None leaves identification out.

    Raises:
        DataError: the images do not fit.
    """
    return measure(real, null.images, pair_by_oracle(np.arange(len(null.images))), gallery=gallery)


def pool(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome over all batches and seeds; every real image weighs the same.

    Args:
        outcomes: of one attack, at least one.

    Raises:
        DataError: there are none, or they were not measured in the same way.
    """
    ways = {
        (outcome.pairing, outcome.candidates.basis, outcome.candidates.isolated is None, outcome.identified is None)
        for outcome in outcomes
    }
    if len(ways) != 1:
        raise DataError(f"Expected outcomes measured in one way, found {len(ways)} of them; pool each on its own.")
    first = outcomes[0]
    identified = [outcome.identified for outcome in outcomes if outcome.identified is not None]
    return Outcome(
        pairing=first.pairing,
        batches=sum(outcome.batches for outcome in outcomes),
        answered=np.concatenate([outcome.answered for outcome in outcomes]),
        psnr_db=np.concatenate([outcome.psnr_db for outcome in outcomes]),
        raw_psnr_db=np.concatenate([outcome.raw_psnr_db for outcome in outcomes]),
        ssim=np.concatenate([outcome.ssim for outcome in outcomes]),
        identified=np.concatenate(identified) if identified else None,
        candidates=_add_counts([outcome.candidates for outcome in outcomes]),
    )


def _count_candidates(real: Images, cleaned: Images, truth: CandidateTruth) -> CandidateCounts:
    usable = are_usable(cleaned)
    for mask in (truth.isolated, truth.shows_real):
        if mask is not None and (mask.shape != usable.shape or mask.dtype != np.bool_):
            raise DataError(f"Expected the truth as booleans of shape {usable.shape}, found {mask.dtype} {mask.shape}.")
    shows_real = _match(real, cleaned) if truth.shows_real is None else truth.shows_real
    isolated = None if truth.isolated is None else usable & truth.isolated
    return CandidateCounts(
        non_empty=int(usable.sum()),
        real=int((usable & shows_real).sum()),
        isolated=None if isolated is None else int(isolated.sum()),
        isolated_real=None if isolated is None else int((isolated & shows_real).sum()),
        basis="match-at-30-db" if truth.shows_real is None else "occupants",
    )


def _match(real: Images, cleaned: Images) -> Mask:
    matches: Mask = mean_squared_errors(real, cleaned).min(axis=0) < 10 ** (-MATCH_DB / 10)
    return matches


def _add_counts(counts: Sequence[CandidateCounts]) -> CandidateCounts:
    isolated = [count.isolated for count in counts if count.isolated is not None]
    isolated_real = [count.isolated_real for count in counts if count.isolated_real is not None]
    return CandidateCounts(
        non_empty=sum(count.non_empty for count in counts),
        real=sum(count.real for count in counts),
        isolated=sum(isolated) if isolated else None,
        isolated_real=sum(isolated_real) if isolated_real else None,
        basis=counts[0].basis,
    )
