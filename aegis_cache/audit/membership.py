"""Whether the synthetic images, or the generator itself, tell which real images were trained on.

The attacks are the plainest ones: an image is taken for a member if a synthetic image lies near it (arXiv 1909.03935,
section 4, the full black box), or if the generator's loss on it is small. A stronger attack may find more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aegis_cache.audit.distances import find_nearest
from aegis_cache.features.extractor import FeatureExtractor
from aegis_cache.features.pixels import PixelFeatures
from federation.datasets.image_set import ImageSet
from federation.errors import DataError
from federation.metrics import auroc
from federation.preprocessing import to_unit_interval
from federation.randomness import numpy_stream

FALSE_POSITIVE_RATES = (0.01, 0.001)
_REPEATS = 400
_BATCH = 64

LossOf = Callable[[Tensor, Tensor], Tensor]
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtMembers:
    """Members that are recognized while few others are taken for one.

    Attributes:
        false_positive_rate: allowed share of non-members taken for members; the null value of `share` as well.
        share: of the members recognized; None where there are too few non-members to speak of such a rate.
    """

    false_positive_rate: float
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipResult:
    """One attack.

    Attributes:
        attack: what the score of an image is.
        members: number of images that were trained on.
        non_members: number of fresh images.
        auc: probability that a member scores above a non-member; 0.5 tells nothing.
        low: of the 95 % bootstrap interval of `auc`.
        high: of the 95 % bootstrap interval of `auc`.
        null_low: of the central 95 % of the AUC once members and non-members are shuffled.
        null_high: of the central 95 % of the AUC once members and non-members are shuffled.
        p_value: share of the shuffles that reach `auc`, itself counted.
        caught: members recognized at low false positive rates.
    """

    attack: str
    members: int
    non_members: int
    auc: float
    low: float
    high: float
    null_low: float
    null_high: float
    p_value: float
    caught: tuple[CaughtMembers, ...]


def audit_membership(
    synthetic: ImageSet,
    members: ImageSet,
    non_members: ImageSet,
    extractors: Sequence[FeatureExtractor] = (),
    *,
    seed: int,
    loss_of: LossOf | None = None,
) -> tuple[MembershipResult, ...]:
    """Return how well each attack tells `members` from `non_members`: in pixels, in each feature space, by the loss.

    Deviation: scores are compared after centring and scaling them by median and quartiles of their class, members and
    others together, because otherwise different shares of the classes would look like membership.

    Not guaranteed: that no other attack does better, or anything for a single patient.

    Args:
        synthetic: what an attacker holds.
        members: images that were trained on.
        non_members: images of the same kind that were not, best of other patients.
        extractors: feature spaces beside pixels.
        seed: of bootstrap and shuffles.
        loss_of: takes float32 images in [0, 1], shape (B, C, H, W), and int64 labels, and returns the generator's loss
            per image, shape (B,); for an attacker who holds the generator. None leaves that attack out.

    Raises:
        DataError: a set is empty or shapes differ, or a loss is not finite or not one per image.
    """
    both = ImageSet.concatenate([members, non_members])
    if min(len(synthetic), len(members), len(non_members)) == 0:
        raise DataError("Expected synthetic images, members and non-members, found none of one kind.")
    is_member = np.arange(len(both)) < len(members)
    pixels, samples = (to_unit_interval(torch.from_numpy(part.images.copy())) for part in (both, synthetic))
    scores: dict[str, Values] = {}
    for extractor in (PixelFeatures(), *extractors):
        found = find_nearest(extractor.extract(pixels), extractor.extract(samples))
        scores[f"nearness to a synthetic image, {extractor.identity}"] = -found.distances[:, 0].numpy()
    if loss_of is not None:
        scores["small loss of the generator"] = -_losses(pixels, torch.from_numpy(both.labels.copy()), loss_of)
    classes = np.unique(both.labels, axis=0, return_inverse=True)[1].reshape(-1)
    return tuple(
        _judge(attack, _within_classes(values, classes), is_member, numpy_stream(seed, "audit", "membership", attack))
        for attack, values in scores.items()
    )


def _losses(pixels: Tensor, labels: Tensor, loss_of: LossOf) -> Values:
    with torch.no_grad():
        parts = [loss_of(*batch) for batch in zip(pixels.split(_BATCH), labels.split(_BATCH), strict=True)]
    losses = torch.cat([part.detach().cpu().double() for part in parts])
    if losses.shape != (len(pixels),) or not bool(losses.isfinite().all()):
        raise DataError(
            f"Expected one finite loss for each of {len(pixels)} images, found shape {tuple(losses.shape)}."
        )
    return losses.numpy()


def _within_classes(values: Values, classes: NDArray[np.int64]) -> Values:
    scaled = values.copy()
    for label in np.unique(classes):
        chosen = classes == label
        low, middle, high = np.quantile(values[chosen], [0.25, 0.5, 0.75])
        scaled[chosen] = (values[chosen] - middle) / ((high - low) or 1.0)
    return scaled


def _judge(attack: str, scores: Values, is_member: NDArray[np.bool_], stream: np.random.Generator) -> MembershipResult:
    members, others = np.flatnonzero(is_member), np.flatnonzero(~is_member)
    auc = _area(scores, is_member)
    resampled = [
        _area(
            scores[np.concatenate([stream.choice(members, len(members)), stream.choice(others, len(others))])],
            is_member,
        )
        for _ in range(_REPEATS)
    ]
    shuffled = np.array([_area(scores, stream.permutation(is_member)) for _ in range(_REPEATS)])
    low, high = np.quantile(resampled, [0.025, 0.975])
    null_low, null_high = np.quantile(shuffled, [0.025, 0.975])
    return MembershipResult(
        attack=attack,
        members=len(members),
        non_members=len(others),
        auc=auc,
        low=float(low),
        high=float(high),
        null_low=float(null_low),
        null_high=float(null_high),
        p_value=float((1 + (shuffled >= auc).sum()) / (1 + _REPEATS)),
        caught=tuple(catch_members(scores, is_member, rate) for rate in FALSE_POSITIVE_RATES),
    )


def _area(scores: Values, is_member: NDArray[np.bool_]) -> float:
    area = auroc(scores, is_member)
    if area is None:
        raise DataError("Expected members and non-members, found only one of them.")
    return area


def catch_members(scores: Values, is_member: NDArray[np.bool_], rate: float) -> CaughtMembers:
    """Return which share of the members scores above all but a share `rate` of the non-members.

    Args:
        scores: shape (N,), higher means more likely a member.
        is_member: shape (N,).
        rate: allowed share of non-members.
    """
    others = np.sort(scores[~is_member])[::-1]
    allowed = int(rate * len(others))
    if allowed == 0:
        return CaughtMembers(false_positive_rate=rate, share=None)
    return CaughtMembers(false_positive_rate=rate, share=float((scores[is_member] > others[allowed]).mean()))
