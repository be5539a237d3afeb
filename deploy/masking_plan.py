"""What a simulated run will be masked with, checked and told before it begins, hospital by hospital."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from flwr.app import Context, RecordDict
from rich.console import Console

from client_app.masking.preparation import Masking, prepare_masking, require_claimable
from client_app.masking.schedule import count_beside
from client_app.mini_batches import count_batches
from client_app.site import identify_site
from federation.config import Configuration, MaskingConfig, TrainingConfig, flatten
from federation.datasets.image_set import ImageSet
from federation.errors import CacheError, ConfigurationError, SiteError
from federation.occupancy import expected_verbatim_share, largest_verbatim_share
from server_app.masking_words import weighs_equally

_STRONGER = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingPlan:
    """What one hospital will be masked with.

    Attributes:
        hospital_id: its id.
        examples: n, its training images.
        size: M, synthetic images an epoch.
        share: of the real images that are expected to leave verbatim at the assumed capacity k; synthetic ones count
            only where they weigh as much as real ones.
        uneven_share: the same where the server may make its bins uneven.
        step_share: the same of one mini-batch, where the server lets only the first optimizer step move its bins.
        class_share: the same of the images of one class, the worst, where the server lets only these move its bins.
        stronger_share: as `share`, at a server with sixteen times as many bins.
    """

    hospital_id: str
    examples: int
    size: int
    share: float
    uneven_share: float
    step_share: float
    class_share: float
    stronger_share: float


def plan_masking(configuration: Configuration, hospitals: int) -> list[MaskingPlan]:
    """Return what every simulated hospital will be masked with; nothing for a run without masking.

    Raises:
        ConfigurationError: a hospital has no cache that fits, or no epsilon could be claimed with it.
        DataError: the data are missing or damaged.
    """
    if not configuration.masking.is_on:
        return []
    return [_plan_one(configuration, number, hospitals) for number in range(hospitals)]


def tell_plan(configuration: Configuration, hospitals: int, console: Console) -> None:
    """Print what every simulated hospital will be masked with; nothing for a run without masking.

    Raises:
        ConfigurationError: as for `plan_masking`.
        DataError: the data are missing or damaged.
    """
    plans = plan_masking(configuration, hospitals)
    for line in describe_plan(configuration.masking, configuration.training, plans):
        console.print(line, style="cyan", markup=False, highlight=False)


def describe_plan(masking: MaskingConfig, training: TrainingConfig, plans: list[MaskingPlan]) -> list[str]:
    """Return the plan in sentences, for people."""
    if not plans:
        return []
    sizes = sorted({plan.size for plan in plans})
    worst = max(plans, key=lambda plan: plan.share)
    uneven, step = max(plan.uneven_share for plan in plans), max(plan.step_share for plan in plans)
    alone = max(plan.class_share for plan in plans)
    lines = [
        f"masking: {masking.mode}, M={sizes[0] if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]}'}, refresh "
        f"{masking.refresh}. Expected share of real images that one update shows verbatim to a server with "
        f"k={masking.capacity} bins, by counting, where it is largest: {_percent(worst.share)} ({worst.hospital_id}, "
        f"n={worst.examples}); with uneven bins {_percent(uneven)}; of one mini-batch, if only the first step counts, "
        f"{_percent(step)}; of one class, if only that class does, {_percent(alone)}; with {_STRONGER} times as many "
        f"bins {_percent(max(plan.stronger_share for plan in plans))}. No bound, and no differential privacy."
    ]
    if not weighs_equally(masking, training):
        lines.append(
            f"masking: under {masking.mode} with {training.optimizer} synthetic images do not weigh as much as real "
            "ones, so they are not counted; interleaved costs the same and counts."
        )
    elif worst.share > masking.target:
        lines.append(f"masking: that is more than masking.target={masking.target:g}; masking.size=auto would reach it.")
    if not masking.refreshes:
        lines.append(
            "masking: refresh none: images that are in two updates cancel in their difference, so those that came in "
            "between stand there without synthetic ones; augment takes no more images."
        )
    return lines


def _plan_one(configuration: Configuration, number: int, hospitals: int) -> MaskingPlan:
    node: dict[str, int] = {"partition-id": number, "num-partitions": hospitals}
    context = Context(
        run_id=0, node_id=0, node_config=dict(node), state=RecordDict(), run_config=flatten(configuration)
    )
    site = identify_site(context, configuration)
    data = site.load()
    examples = len(data.train)
    try:
        batches = count_batches(configuration, configuration.training, data.train)
        masking = prepare_masking(
            site,
            configuration,
            configuration.training,
            data.info,
            examples=examples,
            version=0,
            seed=0,
            batches=batches,
        )
        # A simulated hospital's ledger holds nothing of what a generator cost: a run that would need it is refused.
        require_claimable(masking, configuration, ())
    except (SiteError, CacheError) as error:
        raise ConfigurationError(f"{site.hospital_id}: {error}") from None
    return _describe(site.hospital_id, data.train, masking, configuration, batches)


def _percent(share: float) -> str:
    """Return `share` in percent, rounded up, so that it is never shown as nothing."""
    return f"{max(1, math.ceil(1000 * share - 1e-6)) / 10:.1f} %"


def _worst_class(own: ImageSet, masking: Masking | None, capacity: int, *, counts: bool) -> float:
    """Return the largest share over the classes that the hospital has, counting the images of each alone."""
    classes, numbers = np.unique(own.labels, return_counts=True)
    labels = np.empty(0, dtype=np.int64)
    if masking is not None and counts:
        labels = masking.synthetic.cache.labels[masking.synthetic.chosen]
    return max(
        largest_verbatim_share(int(number), int((labels == label).sum()), capacity)
        for label, number in zip(classes, numbers, strict=True)
    )


def _describe(
    hospital_id: str, own: ImageSet, masking: Masking | None, configuration: Configuration, batches: int
) -> MaskingPlan:
    counts, examples = weighs_equally(configuration.masking, configuration.training), len(own)
    size, capacity = 0 if masking is None else masking.size, configuration.masking.capacity
    counted = size if counts else 0
    # Under DP-SGD a step expects so many patients; these may have more images than there are patients.
    batch = min(examples, max(configuration.training.batch_size, -(-examples // batches)))
    beside = count_beside(configuration.masking.mode, size, batches)
    return MaskingPlan(
        hospital_id=hospital_id,
        examples=examples,
        size=size,
        share=expected_verbatim_share(examples, counted, capacity),
        uneven_share=largest_verbatim_share(examples, counted, capacity),
        class_share=_worst_class(own, masking, capacity, counts=counts),
        step_share=largest_verbatim_share(batch, beside, capacity),
        stronger_share=expected_verbatim_share(examples, counted, _STRONGER * capacity),
    )
