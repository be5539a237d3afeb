"""Local training with differential privacy: DP-SGD on a hospital's own images, in place, on the model received."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from client_app.dp_sgd.batches import Batches, count_views
from client_app.dp_sgd.beside import SyntheticGradients
from client_app.dp_sgd.clipping import ClippingOptimizer, make_clipping_optimizer
from client_app.dp_sgd.gradient_hooks import hooks_on
from client_app.dp_sgd.separability import require_separable
from client_app.dp_sgd.units import Sample, group_units
from client_app.masking.preparation import Masking
from client_app.masking.schedule import Step, plan_epoch
from client_app.noise.source import NoiseSource
from client_app.training import make_optimizer, prior_shift
from federation.accounting.events import SampledGaussianRelease
from federation.accounting.sampling_plan import plan_sampling
from federation.config import PrivacyConfig, TrainingConfig
from federation.datasets.image_set import DatasetInfo, ImageSet
from federation.errors import SiteError, SiteErrorCode
from federation.metrics import losses_of


def train_with_dp_sgd(  # noqa: PLR0913 - what `train_locally` takes, and what privacy adds
    model: nn.Module,
    images: ImageSet,
    info: DatasetInfo,
    plan: TrainingConfig,
    privacy: PrivacyConfig,
    *,
    noise_multiplier: float,
    noise: NoiseSource,
    generator: torch.Generator,
    device: torch.device,
    masking: Masking | None = None,
) -> SampledGaussianRelease:
    """Train `model` in place by `plan` and return the event that releasing it is.

    Every step draws a Poisson sample of units, averages each unit's gradients over its images and their augmented views
    (De et al., arXiv 2204.13650, section 3.3), clips the average to `privacy.clip_norm`, adds noise to the sum, divides
    by the expected number of units and lets the plan's optimizer move (Abadi et al., arXiv 1607.00133, algorithm 1). A
    sample that turns out empty is a step on noise alone, never skipped, and a unit whose gradient is NaN or infinite
    contributes nothing. With `masking`, gradients of synthetic images are added to the noised mean, in the proportions
    that `client_app.masking.schedule` states for the expected number of units; they are neither clipped nor noised.

    Guarantee: the trained parameters are (epsilon, delta)-differentially private for every pair that
    `federation.accounting` computes from the returned event, under the add-or-remove relation: the neighbouring data
    set has one unit more, while event and divisor stay what they are. The unit is one image under `privacy.unit =
    "record"`; under `"patient"` it is all images of one patient, of which at most `privacy.images_per_patient` enter a
    step. Masking leaves this as it is, provided that no private image had a part in the synthetic ones or that part is
    booked beside the event, which `client_app.masking.preparation.require_claimable` checks: what is added to the
    noised mean depends on parameters and synthetic images only.

    Not guaranteed: that masking adds privacy; that the number of images stays secret where M or the steps follow
    from it; that the number of units stays secret: event and divisor tell it, so it counts as public; that running
    out of memory tells nothing, though the size of a part is bounded; secrecy against someone who knows the state
    of `noise` or of `generator`, or who measures how long training takes, which follows the private sizes of the
    samples; exact arithmetic: sums in float32 may exceed the clip norm by rounding, and the noise is as good
    against attacks on floating-point numbers as `noise` is; two patients who share a number, or one patient who has
    two.

    Args:
        model: already on `device`; a model without batch statistics. What is left on it afterwards is trained values.
        images: the training split, at least one image; with `patients` under `privacy.unit = "patient"`.
        info: what the labels are.
        plan: optimizer, epochs, expected units per step (`batch_size`), augmentation and public class frequencies.
        privacy: clip norm, unit, views and how gradients are had.
        noise_multiplier: standard deviation of the noise over the clip norm.
        noise: draws the noise, the samples, and which of a patient's images enter a step.
        generator: CPU generator for augmentation; at a deployed hospital seeded by the operating system.
        device: where to compute.
        masking: synthetic images and how they take part; None for none.

    Raises:
        SiteError: the plan or the model does not go with DP-SGD, or there are no images or no patients' numbers.
        PrivacyError: `noise_multiplier` is not a positive finite number.
    """
    units = group_units(images, privacy)
    event = dp_sgd_event(units.count, plan, privacy, noise_multiplier)
    require_separable(model, info, mode=privacy.grad_sample, device=device)
    batches = Batches(images, info, plan, privacy, generator=generator, device=device, masking=masking)
    shift = prior_shift(info, plan).to(device)

    def losses_of_images(seen: Tensor, labels: Tensor) -> Tensor:
        return losses_of(model(seen) + shift, labels, info.task)

    expected = event.sampling_probability * units.count
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with hooks_on(model, privacy.grad_sample) as hooks:
        optimizer = make_clipping_optimizer(
            hooks,
            make_optimizer(trainable, plan),
            clip_norm=privacy.clip_norm,
            noise_multiplier=noise_multiplier,
            noise=noise,
            expected_units=expected,
        )
        beside = None
        if masking is not None:
            beside = SyntheticGradients(model, hooks, losses_of_images, masking, plan.augmentation, generator)
        for step in _plan_steps(event, units.count, plan, masking):
            if beside is None or _add_beside(step, beside, optimizer, expected):
                parts = units.sample(event.sampling_probability, noise).pieces(privacy.physical_batch // batches.views)
                _step(optimizer, list(parts), batches, losses_of_images)
    return event


def _plan_steps(event: SampledGaussianRelease, units: int, plan: TrainingConfig, masking: Masking | None) -> list[Step]:
    """Return the steps of all epochs; how many units each draws is private, so the expected number stands for it."""
    batches = [event.sampling_probability * units] * (event.steps // plan.local_epochs)
    epoch = plan_epoch("none", batches, 0) if masking is None else plan_epoch(masking.mode, batches, masking.size)
    return epoch * plan.local_epochs


def _add_beside(step: Step, beside: SyntheticGradients, optimizer: ClippingOptimizer, expected: float) -> bool:
    """Prepare the synthetic part of `step`, or do it where it is the whole; return whether a private part follows."""
    if step.batch == 0:
        beside.shuffle()
    gradients = beside.compute(step.synthetic, step.synthetic_weight)
    if step.batch is None:
        optimizer.step_outside(gradients)
        return False
    optimizer.put_beside(step.real_weight * expected, gradients)
    return True


def _step(
    optimizer: ClippingOptimizer, parts: list[Sample], batches: Batches, losses: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """Do one private step on the `parts` of its sample, which may be none."""
    if not parts:
        optimizer.step_on_nobody()
    for number, part in enumerate(parts, start=1):
        optimizer.signal_skip_step(number < len(parts))
        optimizer.add_part(batches.take(part), lambda batch: losses(batch.images, batch.labels))


def dp_sgd_event(
    units: int, plan: TrainingConfig, privacy: PrivacyConfig, noise_multiplier: float
) -> SampledGaussianRelease:
    """Return the event that one update of `train_with_dp_sgd` is; of the data only the number of units enters.

    See `federation.accounting.sampling_plan`, by which the server checks it.

    Raises:
        SiteError: there is no unit, or the plan does not go with DP-SGD.
        PrivacyError: `noise_multiplier` is not a positive finite number.
    """
    if units < 1:
        raise SiteError(SiteErrorCode.EMPTY_SPLIT, f"Expected units={units} >= 1.")
    require_private_plan(plan, privacy)
    probability, steps = plan_sampling(units, batch_size=plan.batch_size, local_epochs=plan.local_epochs)
    return SampledGaussianRelease(noise_multiplier=noise_multiplier, sampling_probability=probability, steps=steps)


def require_private_plan(plan: TrainingConfig, privacy: PrivacyConfig) -> None:
    """Check that nothing in `plan` uses private data beside the clipped gradients, and that a unit fits into memory.

    Raises:
        SiteError: something does; the message says what to change.
    """
    if plan.label_skew != "none":
        raise SiteError(
            SiteErrorCode.PLAN_REFUSED,
            f"Expected training.label-skew = 'none' under dp-sgd, found {plan.label_skew!r}: it trains on the private "
            "counts of labels, which no noise protects and no account knows.",
        )
    images = privacy.images_per_patient if privacy.unit == "patient" else 1
    largest = images * count_views(plan, privacy)
    if largest > privacy.physical_batch:
        raise SiteError(
            SiteErrorCode.PLAN_REFUSED,
            f"Expected privacy.physical-batch={privacy.physical_batch} >= {largest}, the images and views that one "
            "unit may bring, which are averaged before clipping: raise it, or lower images-per-patient or "
            "augmentation-multiplicity.",
        )
