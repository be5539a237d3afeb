"""The hospital's Flower ClientApp: its handlers, each behind the boundary.

One update's path here: `train` decodes the task, checks it against the site policy (`client_app.policy`), prepares
masking (`client_app.masking`), plans its protection (`client_app.protection`), trains (`client_app.updating`), and
releases the difference through the ledger (`client_app.releasing`) and nothing else. Under two-phase release it keeps
the difference (`client_app.pending`) until the server's decision, which one of the two handlers below it carries out.
"""

from __future__ import annotations

import time

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from client_app.boundary import guarded
from client_app.device import cpu_threads
from client_app.granting import require_evaluation, require_training
from client_app.masking.preparation import prepare_masking
from client_app.mini_batches import count_batches
from client_app.outbox import keep_sent, note_received
from client_app.pending import PendingStore
from client_app.releasing import open_ledger, read_histories, release, require_room
from client_app.scoring import blur, name_split, plan_scoring, score
from client_app.site import ReleaseKey, Site, identify_site
from client_app.site_log import log_task
from client_app.trained_update import TrainedUpdate, terms_of
from client_app.updating import compute_update, plan_update, protect
from federation.config import Configuration, PrivacyConfig, parse_configuration
from federation.datasets.image_set import ImageSet
from federation.errors import AlreadyReleasedError, BudgetExhaustedError, SiteError, SiteErrorCode
from federation.records.answers import (
    Discarded,
    HospitalScores,
    ModelUpdate,
    Readiness,
    encode_discarded,
    encode_enrolment,
    encode_hospital_scores,
    encode_model_update,
    encode_readiness,
)
from federation.records.declarations import Declaration
from federation.records.tasks import (
    TrainingTask,
    check_protocol,
    decode_decision,
    decode_evaluation_task,
    decode_training_task,
)

app = ClientApp()


@app.query()
@guarded
def enrol(message: Message, context: Context) -> RecordDict:
    """Answer who this hospital is and what its data looks like."""
    check_protocol(message.content)
    site = identify_site(context, parse_configuration(context.run_config))
    dataset = site.load()
    return encode_enrolment(site.hospital_id, len(dataset.train), dataset.info)


@app.train()
@guarded
def train(message: Message, context: Context) -> RecordDict:
    """Train the received model on this hospital's images; answer the difference, protected as asked, or readiness.

    Whatever was kept for a decision before gives way to the new task.
    """
    task = decode_training_task(message.content)
    configuration = parse_configuration(context.run_config)
    site = identify_site(context, configuration)
    trained = _train(task, configuration, site, site.release_key(context, message, f"train-{task.model_version}"))
    if configuration.aggregation.release == "immediate":
        return _release(site, configuration.privacy, trained)
    PendingStore.of(site).keep(trained)
    _log(site, "ready", model_version=task.model_version)
    return encode_readiness(Readiness(hospital_id=site.hospital_id, model_version=task.model_version))


@app.train("release")
@guarded
def release_kept(message: Message, context: Context) -> RecordDict:
    """Answer the update that is kept for this decision, and keep it no longer."""
    version = decode_decision(message.content).model_version
    configuration = parse_configuration(context.run_config)
    site = identify_site(context, configuration)
    asked_by = _who_asked(configuration, site.release_key(context, message, f"train-{version}"))
    store = PendingStore.of(site)
    trained = store.load(run=configuration.run.name, asked_by=asked_by, model_version=version)
    if trained.terms != terms_of(site.policy, configuration):
        store.clear()
        raise SiteError(SiteErrorCode.NOTHING_PENDING, "Expected the policy of the training, found a changed one.")
    try:
        answer = _release(site, configuration.privacy, trained)
    except (AlreadyReleasedError, BudgetExhaustedError):
        store.clear()
        raise
    store.clear()
    return answer


@app.train("discard")
@guarded
def discard_kept(message: Message, context: Context) -> RecordDict:
    """Delete the update that is kept for this decision, and answer that it is gone.

    Guarantee: bounded quantity, what the server has of a discarded update: that the hospital trained it, from which
        version, and when it was done. No release is booked for it; a release of it that a crash broke off before stays
        booked. Neighbouring relation and unit: any; nothing that it has depends on what the images show.
    Not guaranteed: that the time training took tells nothing: it grows with the number of images, which is told anyway,
        and whatever else slows a machine. That without a mechanism training which diverges is not told as such.
    """
    version = decode_decision(message.content).model_version
    configuration = parse_configuration(context.run_config)
    site = identify_site(context, configuration)
    asked_by = _who_asked(configuration, site.release_key(context, message, f"train-{version}"))
    PendingStore.of(site).discard(run=configuration.run.name, asked_by=asked_by, model_version=version)
    _log(site, "discarded", model_version=version)
    return encode_discarded(Discarded(hospital_id=site.hospital_id, model_version=version))


@app.evaluate()
@guarded
def evaluate(message: Message, context: Context) -> RecordDict:
    """Score the received model on this hospital's images and answer accuracy, noised or exact as policy and run say."""
    task = decode_evaluation_task(message.content)
    configuration = parse_configuration(context.run_config)
    if not configuration.run.hospital_evaluation:
        raise SiteError(SiteErrorCode.PLAN_REFUSED, "Expected no evaluation: run.hospital-evaluation is false.")
    site = identify_site(context, configuration)
    exact = configuration.privacy.mechanism == "none"
    require_evaluation(site.policy, model=configuration.model.name, exact=exact)
    dataset = site.load()
    images = _require_images(dataset.validation if task.split == "validation" else dataset.test, task.split)
    key = site.release_key(context, message, f"{task.split}-{task.model_version}")
    with open_ledger(site) as ledger:
        before, _ = read_histories(ledger, key, name_split(site, task.split))
        bill = plan_scoring(site, configuration, dataset, images, task.split, before=before)
        require_room(site, ledger, key, bill)
    with cpu_threads(configuration.training.threads):
        scores = score(task, configuration, dataset, images)
    noise = site.noise(task.split, task.model_version)

    def form(declaration: Declaration | None) -> RecordDict:
        released = scores if bill.event is None else blur(scores, bill.event, noise)
        return encode_hospital_scores(
            HospitalScores(
                hospital_id=site.hospital_id,
                model_version=task.model_version,
                split=task.split,
                scores=released,
                declaration=declaration,
            )
        )

    return release(site, key, bill, form)


def _train(task: TrainingTask, configuration: Configuration, site: Site, key: ReleaseKey) -> TrainedUpdate:
    """Return the result of the task of `key`, which there is room to release; nothing was kept while it was made."""
    dataset = site.load()
    images = _require_images(dataset.train, "train")
    require_training(site.policy, model=configuration.model.name, examples=len(images))
    masking = prepare_masking(
        site,
        configuration,
        task.plan,
        dataset.info,
        examples=len(images),
        version=task.model_version,
        seed=site.training_seed(task.seed),
        batches=count_batches(configuration, task.plan, images),
    )
    with open_ledger(site) as ledger:
        bill, protection = plan_update(site, ledger, key, configuration, task.plan, images, masking)
        require_room(site, ledger, key, bill)
    noise, started = site.noise("train", task.model_version), time.monotonic()
    with cpu_threads(task.plan.threads):
        update = compute_update(
            task,
            configuration,
            site,
            dataset,
            protection=protection,
            noise=noise,
            masking=masking,
            begin=PendingStore.of(site).clear,
        )
    _log(site, "trained", model_version=task.model_version, milliseconds=round(1000 * (time.monotonic() - started)))
    return TrainedUpdate(
        run=configuration.run.name,
        key=key,
        model_version=task.model_version,
        examples=len(images),
        bill=bill,
        terms=terms_of(site.policy, configuration),
        update=update,
        received=note_received(site, task, configuration, dataset.info),
    )


def _who_asked(configuration: Configuration, decision: ReleaseKey) -> str | None:
    """Return the id of the run that must have asked for what is decided on; None for any of the name, once resumed."""
    return None if configuration.run.resume else decision.run


def _release(site: Site, privacy: PrivacyConfig, trained: TrainedUpdate) -> RecordDict:
    """Return the answer with the update, paid for under the key of the task that it was trained for."""

    def form(declaration: Declaration | None) -> tuple[ModelUpdate, RecordDict]:
        noise = site.noise("train", trained.model_version)
        answer = ModelUpdate(
            hospital_id=site.hospital_id,
            model_version=trained.model_version,
            examples=trained.examples,
            update=protect(trained.update, privacy, trained.bill, noise),
            declaration=declaration,
        )
        return answer, encode_model_update(answer)

    answer, content = release(site, trained.key, trained.bill, form)
    keep_sent(site, answer, trained.received)
    _log(site, "update", model_version=trained.model_version, examples=trained.examples)
    return content


def _log(site: Site, event: str, **fields: int) -> None:
    log_task(site.state_dir, site.hospital_id, event, **fields)


def _require_images(images: ImageSet, split: str) -> ImageSet:
    if not len(images):
        raise SiteError(SiteErrorCode.EMPTY_SPLIT, f"Expected at least 1 image in the {split} split, found 0.")
    return images
