"""What a hospital answers: a model update, that it is ready, scores, or who it is.

Nothing else ever leaves it but an error code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, MetricRecord, RecordDict

from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import RefusalCode, RefusalError
from federation.identifiers import IDENTIFIER_RULE, is_identifier
from federation.metrics import Scores
from federation.parameters import Parameters
from federation.records.declarations import Declaration, decode_declaration, encode_declaration
from federation.records.fields import (
    ARRAYS,
    CONFIG,
    METRICS,
    PROTOCOL_VERSION,
    arrays_of,
    bounded_of,
    config_of,
    integer_of,
    metrics_of,
    share_of,
    text_of,
)
from federation.records.tensors import decode_parameters, encode_parameters

_LARGEST_CLASSES, _LARGEST_CHANNELS, _LARGEST_SIDE, _LARGEST_EXAMPLES = 10_000, 64, 4096, 100_000_000
_PHASE, _READY, _DISCARDED = "phase", "ready", "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUpdate:
    """What a hospital answers to a `TrainingTask`.

    Attributes:
        hospital_id: who answers.
        model_version: the version it started from.
        examples: training images it used.
        update: parameters after local training minus parameters received; decoded ones must only be read.
        declaration: how it is protected; None when it is not.
    """

    hospital_id: str
    model_version: int
    examples: int
    update: Parameters
    declaration: Declaration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What a hospital answers to a `TrainingTask` under two-phase release: it has trained and awaits the decision.

    Attributes:
        hospital_id: who answers.
        model_version: the version it started from.
    """

    hospital_id: str
    model_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """What a hospital answers to a `Decision` against its result, which it no longer keeps; nothing was spent.

    Attributes:
        hospital_id: who answers.
        model_version: the version it had started from.
    """

    hospital_id: str
    model_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HospitalScores:
    """What a hospital answers to an `EvaluationTask`; its loss never leaves.

    Attributes:
        hospital_id: who answers.
        model_version: the version it scored.
        split: on which of its splits.
        scores: accuracy and AUROC; under a privacy mechanism accuracy is noised and AUROC missing.
        declaration: how the scores are protected; None when they are exact.
    """

    hospital_id: str
    model_version: int
    split: str
    scores: Scores
    declaration: Declaration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """How a hospital introduces itself: its id, what its data looks like, and how many images it trains on.

    Attributes:
        hospital_id: the name under which the coordinator knows it.
        examples: training images.
        task: what its labels are.
        classes: number of classes.
        channels: channels of its images.
        height: image height in pixels.
        width: image width in pixels.
        label_digest: sha256 of the class names, so that different label orders are noticed.
    """

    hospital_id: str
    examples: int
    task: Task
    classes: int
    channels: int
    height: int
    width: int
    label_digest: str


def encode_model_update(answer: ModelUpdate) -> RecordDict:
    """Return the records of `answer`."""
    return RecordDict(
        {
            ARRAYS: encode_parameters(answer.update),
            CONFIG: _answer_config(answer.hospital_id, answer.model_version, answer.declaration),
            METRICS: MetricRecord({"examples": answer.examples}),
        }
    )


def decode_model_update(content: RecordDict) -> ModelUpdate:
    """Return the update in `content`, its tensors not yet compared with the model's.

    Raises:
        RefusalError: it does not follow the protocol.
    """
    config = config_of(content)
    examples = integer_of(metrics_of(content), "examples")
    if examples < 1:
        raise RefusalError(RefusalCode.NO_EXAMPLES, f"Expected at least 1 training image, found {examples}.")
    return ModelUpdate(
        hospital_id=hospital_id_of(config),
        model_version=integer_of(config, "model-version"),
        examples=examples,
        update=decode_parameters(arrays_of(content), copy=False),
        declaration=decode_declaration(config),
    )


def encode_readiness(answer: Readiness) -> RecordDict:
    """Return the records of `answer`."""
    return _encode_phase(_READY, answer)


def decode_readiness(content: RecordDict) -> Readiness:
    """Return the readiness in `content`.

    Raises:
        RefusalError: it does not follow the protocol.
    """
    return Readiness(**_decode_phase(_READY, content))


def encode_discarded(answer: Discarded) -> RecordDict:
    """Return the records of `answer`."""
    return _encode_phase(_DISCARDED, answer)


def decode_discarded(content: RecordDict) -> Discarded:
    """Return the answer in `content` that a result was discarded.

    Raises:
        RefusalError: it does not follow the protocol.
    """
    return Discarded(**_decode_phase(_DISCARDED, content))


def decode_training_answer(content: RecordDict) -> ModelUpdate | Readiness:
    """Return the answer in `content` to a `TrainingTask`: the update, or that it waits for the decision.

    Raises:
        RefusalError: it does not follow the protocol.
    """
    return decode_readiness(content) if _PHASE in config_of(content) else decode_model_update(content)


def encode_hospital_scores(answer: HospitalScores) -> RecordDict:
    """Return the records of `answer`, without its loss."""
    metrics: dict[str, Any] = {"examples": answer.scores.examples, "accuracy": answer.scores.accuracy}
    if answer.scores.auroc is not None:
        metrics["auroc"] = answer.scores.auroc
    config = _answer_config(answer.hospital_id, answer.model_version, answer.declaration)
    config["split"] = answer.split
    return RecordDict({CONFIG: config, METRICS: MetricRecord(metrics)})


def decode_hospital_scores(content: RecordDict) -> HospitalScores:
    """Return the scores in `content`.

    Raises:
        RefusalError: it does not follow the protocol, or a score lies outside [0, 1].
    """
    config, metrics = config_of(content), metrics_of(content)
    scores = Scores(
        accuracy=share_of(metrics, "accuracy"),
        auroc=share_of(metrics, "auroc") if "auroc" in metrics else None,
        loss=None,
        examples=integer_of(metrics, "examples"),
    )
    return HospitalScores(
        hospital_id=hospital_id_of(config),
        model_version=integer_of(config, "model-version"),
        split=text_of(config, "split"),
        scores=scores,
        declaration=decode_declaration(config),
    )


def encode_enrolment(hospital_id: str, examples: int, info: DatasetInfo) -> RecordDict:
    """Return the records with which a hospital introduces itself."""
    config = ConfigRecord(
        {
            "protocol": PROTOCOL_VERSION,
            "hospital-id": hospital_id,
            "examples": examples,
            "task": info.task.value,
            "classes": info.classes,
            "channels": info.channels,
            "height": info.height,
            "width": info.width,
            "label-digest": info.label_digest,
        }
    )
    return RecordDict({CONFIG: config})


def decode_enrolment(content: RecordDict) -> Enrolment:
    """Return the introduction in `content`.

    Raises:
        RefusalError: it does not follow the protocol.
    """
    config = config_of(content)
    task = text_of(config, "task")
    if task not in set(Task):
        raise RefusalError(RefusalCode.MALFORMED, f"Expected a task of {[t.value for t in Task]}, found {task!r}.")
    return Enrolment(
        hospital_id=hospital_id_of(config),
        examples=bounded_of(config, "examples", smallest=0, largest=_LARGEST_EXAMPLES),
        task=Task(task),
        classes=bounded_of(config, "classes", largest=_LARGEST_CLASSES),
        channels=bounded_of(config, "channels", largest=_LARGEST_CHANNELS),
        height=bounded_of(config, "height", largest=_LARGEST_SIDE),
        width=bounded_of(config, "width", largest=_LARGEST_SIDE),
        label_digest=text_of(config, "label-digest"),
    )


def _encode_phase(phase: str, answer: Readiness | Discarded) -> RecordDict:
    config = _answer_config(answer.hospital_id, answer.model_version, None)
    config[_PHASE] = phase
    return RecordDict({CONFIG: config})


def _decode_phase(phase: str, content: RecordDict) -> dict[str, Any]:
    config = config_of(content)
    if (found := text_of(config, _PHASE)) != phase:
        raise RefusalError(RefusalCode.MALFORMED, f"Expected phase {phase!r}, found {found!r}.")
    return {"hospital_id": hospital_id_of(config), "model_version": integer_of(config, "model-version")}


def _answer_config(hospital_id: str, model_version: int, declaration: Declaration | None) -> ConfigRecord:
    config = ConfigRecord({"protocol": PROTOCOL_VERSION, "hospital-id": hospital_id, "model-version": model_version})
    config.update(encode_declaration(declaration))
    return config


def hospital_id_of(config: Mapping[str, Any]) -> str:
    """Return the hospital id in `config`."""
    name = text_of(config, "hospital-id")
    if not is_identifier(name):
        raise RefusalError(RefusalCode.MALFORMED, f"Expected a hospital id of {IDENTIFIER_RULE}, found {name!r}.")
    return name
