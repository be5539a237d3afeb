"""Which candidate counts as the reconstruction of which real image; results differ so much that each says which.

With 872 candidates, best matches "recover" 98 % of images of which 82 % were read: a rate without its pairing says
nothing. `oracle` is what the malicious model knows. `hungarian` and `best` grow with the number of candidates, and
`best` is an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from attacks.metrics.images import Images, Indices, Values, are_usable, check_images, clean_candidates, flatten
from federation.errors import DataError

PairingName = Literal["oracle", "hungarian", "best"]
NO_CANDIDATE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """One candidate, or none, for each real image.

    Attributes:
        name: how the pairs were chosen.
        candidate_of: int64, shape (N,); the candidate of each real image, -1 for none.
    """

    name: PairingName
    candidate_of: Indices

    def select(self, candidates: Images) -> Images:
        """Return the candidate of each real image, float64, shape (N, C, H, W), NaN where there is none.

        Args:
            candidates: float64, shape (K, C, H, W).

        Raises:
            DataError: a pair names a candidate that does not exist.
        """
        if len(self.candidate_of) and int(self.candidate_of.max()) >= len(candidates):
            raise DataError(f"Expected candidates below {len(candidates)}, found {int(self.candidate_of.max())}.")
        chosen = np.full((len(self.candidate_of), *candidates.shape[1:]), np.nan)
        paired = self.candidate_of != NO_CANDIDATE
        chosen[paired] = candidates[self.candidate_of[paired]]
        return chosen


def pair_by_oracle(positions: NDArray[np.integer]) -> Pairing:
    """Return the pairing that the malicious model gives, for example the bin that each real image falls into.

    Args:
        positions: shape (N,), the candidate of each real image, -1 for none; images may share one.

    Raises:
        DataError: a position is below -1, or they are no integers in one row.
    """
    if positions.ndim != 1 or not np.issubdtype(positions.dtype, np.integer) or bool((positions < NO_CANDIDATE).any()):
        raise DataError(f"Expected one position >= {NO_CANDIDATE} an image, found {positions!r}.")
    return Pairing(name="oracle", candidate_of=positions.astype(np.int64))


def pair_by_hungarian(real: NDArray[np.floating], candidates: NDArray[np.floating]) -> Pairing:
    """Return the pairs with the least sum of mean squared errors, each usable candidate given away at most once.

    Where there are fewer usable candidates than real images, the remaining images have none (Kuhn, Nav. Res. Logist. Q.
    2, 1955, 83-97, for rectangular tables).

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        candidates: float, shape (K, C, H, W), NaN where an attack found nothing.

    Raises:
        DataError: the images do not fit.
    """
    errors = mean_squared_errors(real, candidates)
    usable = np.flatnonzero(np.isfinite(errors[0]))
    rows, columns = linear_sum_assignment(errors[:, usable])
    chosen = np.full(len(errors), NO_CANDIDATE, dtype=np.int64)
    chosen[rows] = usable[columns]
    return Pairing(name="hungarian", candidate_of=chosen)


def pair_by_best(real: NDArray[np.floating], candidates: NDArray[np.floating]) -> Pairing:
    """Return the nearest candidate of each real image, with repetition; of equal ones, the first.

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        candidates: float, shape (K, C, H, W), NaN where an attack found nothing.

    Raises:
        DataError: the images do not fit.
    """
    errors = mean_squared_errors(real, candidates)
    if not bool(np.isfinite(errors).any()):
        return Pairing(name="best", candidate_of=np.full(len(errors), NO_CANDIDATE, dtype=np.int64))
    return Pairing(name="best", candidate_of=errors.argmin(axis=1).astype(np.int64))


def mean_squared_errors(real: NDArray[np.floating], candidates: NDArray[np.floating]) -> Values:
    """Return the mean squared error of every pair: float64, shape (N, K), infinite for unusable candidates.

    Args:
        real: float in [0, 1], shape (N, C, H, W).
        candidates: float, shape (K, C, H, W), clamped to [0, 1] first.

    Raises:
        DataError: the images do not fit.
    """
    checked = check_images(real, "real images")
    cleaned = clean_candidates(candidates, checked)
    usable = are_usable(cleaned)
    errors = np.full((len(checked), len(cleaned)), np.inf)
    flat = flatten(checked)
    errors[:, usable] = cdist(flat, flatten(cleaned[usable]), "sqeuclidean") / flat.shape[1]
    return errors
