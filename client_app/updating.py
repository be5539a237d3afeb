"""From the received model to this hospital's update: its plan, training with or without DP-SGD and masking, noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from client_app.device import pick_device
from client_app.granting import require_mechanism
from client_app.ledger import Ledger
from client_app.ledger.release import GENERATOR_RUN, NO_MASKING
from client_app.masking.logical_batch import settle_batch_statistics
from client_app.masking.preparation import Masking, require_claimable
from client_app.model_guard.inspection import require_plausible
from client_app.noise.source import NoiseSource
from client_app.perturbation import perturb_update
from client_app.protection import Protection, plan_protection
from client_app.rehearsal import rehearse
from client_app.releasing import Bill, read_histories, unprotected
from client_app.site import DeployedHospital, ReleaseKey, Site
from client_app.site_log import log_task
from client_app.training import require_plan, train_locally
from federation.config import Configuration, PrivacyConfig, TrainingConfig
from federation.datasets.image_set import Dataset, ImageSet
from federation.errors import SiteError, SiteErrorCode
from federation.models import build_empty_model
from federation.parameters import Parameters, is_finite, read_parameters, require_like, subtract, write_parameters
from federation.records.tasks import TrainingTask


def plan_update(
    site: Site,
    ledger: Ledger,
    key: ReleaseKey,
    configuration: Configuration,
    plan: TrainingConfig,
    images: ImageSet,
    masking: Masking | None,
) -> tuple[Bill, Protection | None]:
    """Return what the update of the task of `key` will cost and how it is protected; None without a mechanism.

    Masking is written down on the bill and costs and saves nothing.

    Raises:
        SiteError: the policy does not allow the mechanism, or the synthetic images let no epsilon be claimed.
        BudgetExhaustedError: the run's planned releases were made, or nothing is left to plan with.
        PrivacyError: no noise is enough, or a formula does not hold for what was asked.
        LedgerError: the ledger cannot be used.
    """
    privacy, record = configuration.privacy, NO_MASKING if masking is None else masking.record
    if privacy.mechanism == "none":
        require_mechanism(site.policy, "none")
        return replace(unprotected(site.data_set), masking=record), None
    require_claimable(masking, configuration, ledger.requests(site.data_set, GENERATOR_RUN))
    before, during = read_histories(ledger, key, site.data_set)
    protection = plan_protection(configuration, plan, images, policy=site.policy, before=before, during=during)
    grant = protection.grant
    bill = Bill(
        data_set=site.data_set,
        mechanism=protection.mechanism,
        event=protection.event,
        delta=grant.delta,
        cap=grant.cap,
        budget=grant.budget,
        account=grant.account,
        masking=record,
    )
    return bill, protection


def compute_update(
    task: TrainingTask,
    configuration: Configuration,
    site: Site,
    dataset: Dataset,
    *,
    protection: Protection | None,
    noise: NoiseSource,
    masking: Masking | None = None,
    begin: Callable[[], None] = lambda: None,
) -> Parameters:
    """Return the parameters after local training minus those received.

    Under "dp-sgd" the training itself adds the noise; under "update-gaussian" nothing may leave before `protect`.

    Under a mechanism, training that diverges on private images gives an update of zeros, which the hospital's log
    tells apart and nobody else: an error in its place would tell the server something about them for nothing. Training
    that diverges on images of noise, too, is an error before a private image was looked at.

    A model that looks crafted is refused before anything else, and so is a plan or a model that cannot be trained: no
    private image was looked at, nothing is booked, and the hospital has not moved on among its synthetic images.

    Args:
        task: what to train, and how.
        configuration: of the run.
        site: who trains.
        dataset: the site's.
        protection: mechanism and noise; None for none.
        noise: draws what the mechanism adds.
        masking: of this update; None for none.
        begin: called once nothing can be refused any more, before a private image is looked at.

    Raises:
        SiteError: the model looks crafted, training stopped (out of memory, for example), or it diverged where no
            private image decided it.
        RefusalError: the received parameters do not fit the model.
        CacheError: whose turn it is among synthetic images cannot be written down.
    """
    device = pick_device(task.plan.device)
    model = _receive(task, configuration, site, dataset).to(device)
    _require_trainable(model, task.plan, configuration, dataset, masking, device)
    begin()
    if masking is not None:
        # Only a task that is worth its training moves the hospital on in its cache.
        masking.take_turn()
    generator = torch.Generator().manual_seed(site.training_seed(task.seed))
    try:
        if protection is not None and protection.mechanism.name == "dp-sgd":
            from client_app.dp_sgd import train_with_dp_sgd

            train_with_dp_sgd(
                model,
                dataset.train,
                dataset.info,
                task.plan,
                configuration.privacy,
                noise_multiplier=protection.noise_multiplier,
                noise=noise,
                generator=generator,
                device=device,
                masking=masking,
            )
        else:
            train_locally(
                model, dataset.train, dataset.info, task.plan, generator=generator, device=device, masking=masking
            )
    except RuntimeError as error:
        raise SiteError(SiteErrorCode.TRAINING_FAILED, f"Local training stopped: {error}") from error
    return _or_zeros(subtract(read_parameters(model), task.parameters), site, task, protection)


def _receive(task: TrainingTask, configuration: Configuration, site: Site, dataset: Dataset) -> nn.Module:
    """Return the model of `task`: it fits this hospital and, where that is guarded against, does not look crafted.

    Raises:
        SiteError: it looks crafted, or could not be looked at (out of memory, for example).
        RefusalError: the received parameters do not fit the model.
    """
    try:
        model = load_model(configuration, dataset, task.parameters)
        if is_guarded(site, configuration):
            require_plausible(model, dataset.info)
    except RuntimeError as error:
        reason = f"A look at the received model stopped: {error}"
        raise SiteError(SiteErrorCode.TRAINING_FAILED, reason) from error
    return model


def _require_trainable(
    model: nn.Module,
    plan: TrainingConfig,
    configuration: Configuration,
    dataset: Dataset,
    masking: Masking | None,
    device: torch.device,
) -> None:
    """Check what training would refuse, so that a task which is refused changes nothing here.

    Raises:
        SiteError: the plan does not go with the labels, the model not with masking or DP-SGD, or under a mechanism
            training diverges on images of noise.
    """
    if configuration.privacy.mechanism != "none":
        rehearse(model, dataset.info, plan, device)
    require_plan(dataset.info, plan)
    if masking is not None:
        settle_batch_statistics(model, masking.batch_statistics)
    if configuration.privacy.mechanism == "dp-sgd":
        from client_app.dp_sgd.separability import require_separable

        require_separable(model, dataset.info, mode=configuration.privacy.grad_sample, device=device)


def is_guarded(site: Site, configuration: Configuration) -> bool:
    """Return whether `site` refuses models that look crafted before it trains them.

    A deployed hospital goes by its policy alone. At a simulated one the stricter of policy and request counts.

    Scores are answered for any model. An accuracy holds little of what a crafted model could read, and
    leaves with noise, or not at all, where the policy says so.
    """
    allowed_off = site.policy is None or not site.policy.guard.enabled
    if isinstance(site, DeployedHospital):
        return not allowed_off
    return not allowed_off or configuration.guard.model == "on"


def _or_zeros(update: Parameters, site: Site, task: TrainingTask, protection: Protection | None) -> Parameters:
    """Return `update`, or under a mechanism zeros in the place of one that is not finite.

    Raises:
        SiteError: it is not finite, and there is no mechanism.
    """
    if is_finite(update):
        return update
    if protection is None:
        raise SiteError(SiteErrorCode.NON_FINITE_UPDATE, "Local training produced NaN or infinite parameters.")
    log_task(site.state_dir, site.hospital_id, "diverged", model_version=task.model_version)
    return {name: torch.zeros_like(value) for name, value in update.items()}


def protect(update: Parameters, privacy: PrivacyConfig, bill: Bill, noise: NoiseSource) -> Parameters:
    """Return what may leave of `update`: clipped and noised as billed under "update-gaussian", else as it is."""
    if bill.event is None or bill.mechanism.name != "update-gaussian":
        return update
    return perturb_update(update, privacy=privacy, noise_multiplier=bill.event.noise_multiplier, noise=noise)


def load_model(configuration: Configuration, dataset: Dataset, parameters: Parameters) -> nn.Module:
    """Return this hospital's own model filled with the received `parameters`.

    Raises:
        RefusalError: names, shapes or dtypes differ, or a value is not finite.
    """
    model = build_empty_model(configuration.model, dataset.info)
    require_like(parameters, model.state_dict())
    write_parameters(model, parameters)
    return model.to(memory_format=torch.channels_last)
