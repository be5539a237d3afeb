"""Which real and synthetic images form a step, and what each of them weighs: the four modes of masking.

Notation: n real images in mini-batches of B, the number of mini-batches S = ceil(n / B), M synthetic images. A weight
is what an image's loss is multiplied by in the gradient of one optimizer step, before the learning rate. What counts
against a server that reads an update is how much a synthetic image weighs beside a real one *in the same step*: across
steps, an optimizer that rescales its steps, such as Adam, undoes any weighting of losses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from federation.config.masking_table import MaskingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer step of an epoch.

    Attributes:
        batch: number of the mini-batch of real images that takes part; None for none.
        synthetic: which synthetic images take part, as positions in the epoch's order; may be empty.
        real_weight: of each real image's loss.
        synthetic_weight: of each synthetic image's loss.
    """

    batch: int | None
    synthetic: range
    real_weight: float
    synthetic_weight: float


def plan_epoch(mode: MaskingMode, batches: Sequence[float], synthetic: int) -> list[Step]:
    """Return the steps of one local epoch.

    Args:
        mode: how synthetic images take part.
        batches: images in each mini-batch; where they are drawn at random, as in DP-SGD, the number expected.
        synthetic: M, at least 1 unless `mode` is "none".

    Raises:
        ValueError: there is no mini-batch, or M does not go with `mode`.
    """
    if not batches or min(batches) <= 0 or (synthetic < 1) != (mode == "none"):
        raise ValueError(f"Expected mini-batches of more than 0 images and synthetic={synthetic} to fit mode={mode!r}.")
    return _MODES[mode](batches, synthetic)


def count_beside(mode: MaskingMode, synthetic: int, steps: int) -> int:
    """Return the fewest synthetic images of equal weight beside the real ones of a step.

    Among these a real image hides from a server that lets only one step move what it reads.

    Args:
        mode: how synthetic images take part.
        synthetic: M.
        steps: mini-batches of an epoch.
    """
    return {"interleaved": synthetic // steps, "joint": synthetic}.get(mode, 0)


def plan_unmasked(batches: Sequence[float], _synthetic: int) -> list[Step]:
    """Return the steps of ordinary training: a real image of a mini-batch of b weighs 1/b, in one step of the epoch."""
    return [_plain(number, size) for number, size in enumerate(batches)]


def plan_sequential(batches: Sequence[float], synthetic: int) -> list[Step]:
    """Return the steps of Algorithm 1 of arXiv 2609.38339: ordinary ones, then one on the mean loss of all M.

    Effective weights: a real image of a mini-batch of b weighs 1/b in one step of the epoch; a synthetic image weighs
    1/M in another step, so b/M of a real one: 1/32 for B = 64 and M = 2048. Not guaranteed: that this hides anything.
    A real image then stands 30 dB above a synthetic one in the same bin, and is read at some 45 dB instead of more than
    100.
    """
    steps = plan_unmasked(batches, synthetic)
    return [*steps, Step(batch=None, synthetic=range(synthetic), real_weight=0.0, synthetic_weight=1 / synthetic)]


def plan_lambda(batches: Sequence[float], synthetic: int) -> list[Step]:
    """Return the steps of "sequential" with losses weighted by numbers of images.

    Effective weights: over an epoch every image, real or synthetic, weighs S / (n + M), which is what it weighs
    under "interleaved" with equal mini-batches: a real one in one of S steps, a synthetic one in the last step.
    With a single mini-batch the mean losses are multiplied by n / (n + M) and M / (n + M), as in the paper's
    analysis.

    Not guaranteed: equal weights in what leaves, unless the optimizer is SGD without momentum: Adam and AdamW
    divide each step by its own size, and the two kinds of images stand in different steps.

    Deviation: the paper's lambda is defined for one mini-batch; for several, the factor S keeps the movement of an
    epoch at that of ordinary training.
    """
    weight = len(batches) / (sum(batches) + synthetic)
    steps = [
        Step(batch=number, synthetic=range(0), real_weight=weight, synthetic_weight=0.0)
        for number in range(len(batches))
    ]
    return [*steps, Step(batch=None, synthetic=range(synthetic), real_weight=0.0, synthetic_weight=weight)]


def plan_joint(batches: Sequence[float], synthetic: int) -> list[Step]:
    """Return steps on the mean over a mini-batch and all M synthetic images.

    Effective weights: in the step of a mini-batch of b, each of its images and each synthetic image weighs
    1 / (b + M). Over an epoch a synthetic image weighs as much as S real ones, at S times the work of "interleaved".
    """
    return [
        Step(batch=number, synthetic=range(synthetic), real_weight=weight, synthetic_weight=weight)
        for number, weight in enumerate(1 / (size + synthetic) for size in batches)
    ]


def plan_interleaved(batches: Sequence[float], synthetic: int) -> list[Step]:
    """Return steps on the mean over a mini-batch and its share of the synthetic images.

    Effective weights: in the step of a mini-batch of b with a share of m, each of its images and each synthetic image
    of the share weighs 1 / (b + m). Over an epoch every image, real or synthetic, takes part once. Shares differ by at
    most one image.
    """
    borders = [synthetic * number // len(batches) for number in range(len(batches) + 1)]
    steps = []
    for number, size in enumerate(batches):
        share = range(borders[number], borders[number + 1])
        weight = 1 / (size + len(share))
        steps.append(Step(batch=number, synthetic=share, real_weight=weight, synthetic_weight=weight))
    return steps


def _plain(number: int, size: float) -> Step:
    return Step(batch=number, synthetic=range(0), real_weight=1 / size, synthetic_weight=0.0)


_MODES: dict[str, Callable[[Sequence[float], int], list[Step]]] = {
    "none": plan_unmasked,
    "sequential": plan_sequential,
    "lambda": plan_lambda,
    "joint": plan_joint,
    "interleaved": plan_interleaved,
}
