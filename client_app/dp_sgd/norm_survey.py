"""How large gradients are, asked with differential privacy: what a clip norm can be chosen by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client_app.dp_sgd.batches import Batches
from client_app.dp_sgd.gradient_hooks import UnitGradients, hooks_on
from client_app.dp_sgd.separability import require_separable
from client_app.dp_sgd.training import require_private_plan
from client_app.dp_sgd.units import group_units
from client_app.noise.source import NoiseSource
from client_app.training import prior_shift
from federation.accounting.events import GaussianRelease
from federation.config import PrivacyConfig, TrainingConfig
from federation.datasets.image_set import DatasetInfo, ImageSet
from federation.errors import PrivacyError
from federation.metrics import losses_of


def survey_gradient_norms(  # noqa: PLR0913 - what training takes, and the bins
    model: nn.Module,
    images: ImageSet,
    info: DatasetInfo,
    plan: TrainingConfig,
    privacy: PrivacyConfig,
    *,
    edges: Sequence[float],
    noise_multiplier: float,
    noise: NoiseSource,
    generator: torch.Generator,
    device: torch.device,
) -> tuple[NDArray[np.float64], GaussianRelease]:
    """Return a noisy histogram of the units' gradient norms at `model`, and the event that its release is.

    Guarantee: (epsilon, delta)-differential privacy for every pair that `federation.accounting` computes from the
    returned event, under the add-or-remove relation; the unit is that of `privacy.unit`. Each unit counts in exactly
    one bin, so one unit more changes the histogram by 1 in L2 norm; the bins are fixed before any image is read.

    Not guaranteed: as for `train_with_dp_sgd`, but that a NaN tells nothing here: it counts as the largest norm.

    Args:
        model: already on `device`; its values are left as they are.
        images: the training split.
        info: what the labels are.
        plan: augmentation and public class frequencies.
        privacy: unit, views, and how gradients are had. `clip_norm` is not used.
        edges: ascending positive norms between the bins: never taken from the data. Bin 0 holds the norms below the
            first edge, the last bin those from the last edge on.
        noise_multiplier: standard deviation of the noise on each count, the sensitivity being 1.
        noise: where noise, and the choice of a patient's images, come from.
        generator: CPU generator for augmentation.
        device: where to compute.

    Returns:
        Noisy counts, shape (len(edges) + 1,), which may be negative; and the event.

    Raises:
        SiteError: as for `train_with_dp_sgd`, but for NaN.
        PrivacyError: `noise_multiplier` or `edges` are impossible.
    """
    event = GaussianRelease(noise_multiplier=noise_multiplier)
    borders = _check_edges(edges)
    require_private_plan(plan, privacy)
    units = group_units(images, privacy)
    require_separable(model, info, mode=privacy.grad_sample, device=device)
    batches = Batches(images, info, plan, privacy, generator=generator, device=device)
    shift = prior_shift(info, plan).to(device)
    counts = torch.zeros(len(edges) + 1, dtype=torch.float64)
    with hooks_on(model, privacy.grad_sample) as hooks:
        for part in units.everyone(noise).pieces(privacy.physical_batch // batches.views):
            batch = batches.take(part)
            if isinstance(hooks, UnitGradients):
                hooks.sizes = batch.sizes
            losses = losses_of(model(batch.images) + shift, batch.labels, info.task)
            norms = hooks.measure_norms(losses, batch.images)
            counts += _count(torch.linalg.vector_norm(torch.stack(norms), dim=0).cpu(), borders)
            hooks.set_grad_sample_to_none()
    noisy = counts + noise.normal(counts.shape, noise_multiplier, device=torch.device("cpu")).double()
    return noisy.numpy(), event


def suggest_clip_norm(histogram: NDArray[np.float64], edges: Sequence[float], *, quantile: float = 0.5) -> float:
    """Return the smallest edge below which at least the share `quantile` of the units lies, else the last edge.

    It looks at a released histogram only, so it costs no privacy.

    Args:
        histogram: as `survey_gradient_norms` returned it; negative counts are read as 0.
        edges: of its bins.
        quantile: from 0 to 1. Clipping at the median serves most models (Andrew et al., arXiv 1905.03871, section 3).

    Raises:
        PrivacyError: sizes do not match, the quantile is none, or the noise has left no count above 0.
    """
    _check_edges(edges)
    counts = np.clip(histogram, 0, None)
    if len(counts) != len(edges) + 1 or not 0 <= quantile <= 1 or not counts.sum() > 0:
        raise PrivacyError(
            f"Expected {len(edges) + 1} counts, some above 0, and 0 <= quantile={quantile} <= 1, found {len(counts)} "
            f"counts whose positive part sums to {counts.sum():g}: repeat the survey with a smaller noise_multiplier."
        )
    reached = np.cumsum(counts)[:-1] >= quantile * counts.sum()
    return float(edges[int(np.argmax(reached))] if reached.any() else edges[-1])


def _check_edges(edges: Sequence[float]) -> Tensor:
    borders = torch.tensor(list(edges), dtype=torch.float64)
    if not len(borders) or not bool((torch.diff(borders, prepend=torch.zeros(1)) > 0).all()):
        raise PrivacyError(f"Expected positive edges in ascending order, found {list(edges)}.")
    return borders


def _count(norms: Tensor, borders: Tensor) -> Tensor:
    numbers = norms.double().nan_to_num(nan=torch.inf, posinf=torch.inf)
    places = torch.bucketize(numbers, borders, right=True)
    return torch.bincount(places, minlength=len(borders) + 1).double()
