"""The hospital's Flower ClientApp: three handlers, each behind the boundary.

One update's path here: `train` decodes the task, checks the model against the hospital's own, trains
(`client_app.training`), and releases the difference and nothing else.
"""

from __future__ import annotations

import torch
from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from client_app.boundary import guarded
from client_app.device import cpu_threads, pick_device
from client_app.site import Site, identify_site
from client_app.site_log import log_task
from client_app.training import train_locally
from federation.config import Configuration, parse_configuration
from federation.datasets.image_set import Dataset, ImageSet
from federation.errors import SiteError, SiteErrorCode
from federation.metrics import evaluate as evaluate_model
from federation.models import build_empty_model
from federation.parameters import Parameters, is_finite, read_parameters, require_like, subtract, write_parameters
from federation.records.answers import (
    HospitalScores,
    ModelUpdate,
    encode_enrolment,
    encode_hospital_scores,
    encode_model_update,
)
from federation.records.tasks import TrainingTask, check_protocol, decode_evaluation_task, decode_training_task

app = ClientApp()


@app.query()
@guarded
def enrol(content: RecordDict, context: Context) -> RecordDict:
    """Answer who this hospital is and what its data looks like."""
    check_protocol(content)
    site = identify_site(context, parse_configuration(context.run_config))
    dataset = site.load()
    return encode_enrolment(site.hospital_id, len(dataset.train), dataset.info)


@app.train()
@guarded
def train(content: RecordDict, context: Context) -> RecordDict:
    """Train the received model on this hospital's images and answer the difference."""
    task = decode_training_task(content)
    configuration = parse_configuration(context.run_config)
    site = identify_site(context, configuration)
    dataset = site.load()
    images = _require_images(dataset.train, "train")
    with cpu_threads(task.plan.threads):
        update = compute_update(task, configuration, site, dataset)
    log_task(site.state_dir, site.hospital_id, "update", model_version=task.model_version, examples=len(images))
    return encode_model_update(
        ModelUpdate(hospital_id=site.hospital_id, model_version=task.model_version, examples=len(images), update=update)
    )


@app.evaluate()
@guarded
def evaluate(content: RecordDict, context: Context) -> RecordDict:
    """Score the received model on this hospital's images and answer accuracy and AUROC."""
    task = decode_evaluation_task(content)
    configuration = parse_configuration(context.run_config)
    if not configuration.run.hospital_evaluation:
        raise SiteError(SiteErrorCode.PLAN_REFUSED, "Expected no evaluation: run.hospital-evaluation is false.")
    site = identify_site(context, configuration)
    dataset = site.load()
    images = _require_images(dataset.validation if task.split == "validation" else dataset.test, task.split)
    device = pick_device(configuration.training.device)
    with cpu_threads(configuration.training.threads):
        model = load_model(configuration, dataset, task.parameters).to(device)
        scores = evaluate_model(model, images, dataset.info, device)
    return encode_hospital_scores(
        HospitalScores(hospital_id=site.hospital_id, model_version=task.model_version, split=task.split, scores=scores)
    )


def compute_update(task: TrainingTask, configuration: Configuration, site: Site, dataset: Dataset) -> Parameters:
    """Return the parameters after local training minus those received.

    Raises:
        SiteError: training stopped (out of memory, for example) or diverged.
        RefusalError: the received parameters do not fit the model.
    """
    device = pick_device(task.plan.device)
    model = load_model(configuration, dataset, task.parameters).to(device)
    generator = torch.Generator().manual_seed(site.training_seed(task.seed))
    try:
        train_locally(model, dataset.train, dataset.info, task.plan, generator=generator, device=device)
    except RuntimeError as error:
        raise SiteError(SiteErrorCode.TRAINING_FAILED, f"Local training stopped: {error}") from error
    update = subtract(read_parameters(model), task.parameters)
    if not is_finite(update):
        raise SiteError(SiteErrorCode.NON_FINITE_UPDATE, "Local training produced NaN or infinite parameters.")
    return update


def load_model(configuration: Configuration, dataset: Dataset, parameters: Parameters) -> nn.Module:
    """Return this hospital's own model filled with the received `parameters`.

    Raises:
        RefusalError: names, shapes or dtypes differ, or a value is not finite.
    """
    model = build_empty_model(configuration.model, dataset.info)
    require_like(parameters, model.state_dict())
    write_parameters(model, parameters)
    return model.to(memory_format=torch.channels_last)


def _require_images(images: ImageSet, split: str) -> ImageSet:
    if not len(images):
        raise SiteError(SiteErrorCode.EMPTY_SPLIT, f"Expected at least 1 image in the {split} split, found 0.")
    return images
