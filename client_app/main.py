"""The hospital's Flower ClientApp: three handlers, each behind the boundary.

One update's path here: `train` decodes the task, checks it against the site policy (`client_app.policy`), plans its
protection (`client_app.protection`), trains (`client_app.updating`), and releases the difference through the ledger
(`client_app.releasing`) and nothing else.
"""

from __future__ import annotations

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from client_app.boundary import guarded
from client_app.device import cpu_threads
from client_app.granting import require_evaluation, require_mechanism, require_training
from client_app.ledger import Ledger
from client_app.protection import Protection, plan_protection
from client_app.releasing import Bill, open_ledger, read_histories, release, require_room, unprotected
from client_app.scoring import blur, name_split, plan_scoring, score
from client_app.site import ReleaseKey, Site, identify_site
from client_app.site_log import log_task
from client_app.updating import compute_update, protect
from federation.config import Configuration, TrainingConfig, parse_configuration
from federation.datasets.image_set import ImageSet
from federation.errors import SiteError, SiteErrorCode
from federation.records.answers import (
    HospitalScores,
    ModelUpdate,
    encode_enrolment,
    encode_hospital_scores,
    encode_model_update,
)
from federation.records.declarations import Declaration
from federation.records.tasks import check_protocol, decode_evaluation_task, decode_training_task

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
    """Train the received model on this hospital's images and answer the difference, protected as asked."""
    task = decode_training_task(message.content)
    configuration = parse_configuration(context.run_config)
    site = identify_site(context, configuration)
    dataset = site.load()
    images = _require_images(dataset.train, "train")
    require_training(site.policy, model=configuration.model.name, examples=len(images))
    key = site.release_key(context, message, f"train-{task.model_version}")
    with open_ledger(site) as ledger:
        bill, protection = _plan(site, ledger, key, configuration, task.plan, images)
        require_room(site, ledger, key, bill)
    noise = site.noise("train", task.model_version)
    with cpu_threads(task.plan.threads):
        update = compute_update(task, configuration, site, dataset, protection=protection, noise=noise)

    def form(declaration: Declaration | None) -> RecordDict:
        released = protect(update, configuration.privacy, protection, noise)
        return encode_model_update(
            ModelUpdate(
                hospital_id=site.hospital_id,
                model_version=task.model_version,
                examples=len(images),
                update=released,
                declaration=declaration,
            )
        )

    answer = release(site, key, bill, form)
    log_task(site.state_dir, site.hospital_id, "update", model_version=task.model_version, examples=len(images))
    return answer


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


def _plan(
    site: Site,
    ledger: Ledger,
    key: ReleaseKey,
    configuration: Configuration,
    plan: TrainingConfig,
    images: ImageSet,
) -> tuple[Bill, Protection | None]:
    """Return what the update will cost and how it is protected; None without a mechanism."""
    privacy = configuration.privacy
    if privacy.mechanism == "none":
        require_mechanism(site.policy, "none")
        return unprotected(site.data_set), None
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
    )
    return bill, protection


def _require_images(images: ImageSet, split: str) -> ImageSet:
    if not len(images):
        raise SiteError(SiteErrorCode.EMPTY_SPLIT, f"Expected at least 1 image in the {split} split, found 0.")
    return images
