"""What the server asks of a hospital: to train a model, to release or discard what came of it, to score, to say who.

A training task travels as message type "train", and under `aggregation.release = "two-phase"` its `Decision` follows as
`RELEASE` or `DISCARD`.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from pydantic import ValidationError

from federation.config import TrainingConfig
from federation.errors import RefusalCode, RefusalError
from federation.parameters import Parameters
from federation.records.fields import ARRAYS, CONFIG, PROTOCOL_VERSION, arrays_of, config_of, integer_of, text_of
from federation.records.tensors import decode_parameters

RELEASE, DISCARD = "train.release", "train.discard"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTask:
    """What the server asks of a hospital: train this model by this plan.

    Attributes:
        parameters: the model to start from.
        model_version: its version.
        plan: how to train.
        seed: of shuffling and augmentation; a deployed hospital ignores it.
    """

    parameters: Parameters
    model_version: int
    plan: TrainingConfig
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the server asks of a hospital that is ready: release the result it keeps, or discard it.

    Which of the two, the type of the message says.

    Attributes:
        model_version: the version from which the kept result was trained.
    """

    model_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTask:
    """What the server asks of a hospital: score this model on `split` ("validation" or "test")."""

    parameters: Parameters
    model_version: int
    split: str


def encode_training_task(
    arrays: ArrayRecord, *, model_version: int, plan: TrainingConfig, seed: int, run: str
) -> RecordDict:
    """Return the records of a `TrainingTask` whose parameters are already encoded as `arrays`."""
    config = ConfigRecord({"protocol": PROTOCOL_VERSION, "run": run, "model-version": model_version, "seed": seed})
    config.update({f"plan.{key}": value for key, value in plan.model_dump(by_alias=True).items()})
    return RecordDict({ARRAYS: arrays, CONFIG: config})


def decode_training_task(content: RecordDict) -> TrainingTask:
    """Return the task in `content`.

    Raises:
        RefusalError: it does not follow the protocol, or its plan is not a valid training table.
    """
    config = config_of(content)
    plan = {key.removeprefix("plan."): value for key, value in config.items() if key.startswith("plan.")}
    if missing := set(TrainingConfig().model_dump(by_alias=True)) - set(plan):
        raise RefusalError(RefusalCode.MALFORMED, f"Expected a whole training plan, found no {sorted(missing)}.")
    try:
        training = TrainingConfig.model_validate(plan)
    except ValidationError as error:
        raise RefusalError(RefusalCode.MALFORMED, f"Training plan: {error.errors()[0]['msg']}.") from None
    return TrainingTask(
        parameters=decode_parameters(arrays_of(content)),
        model_version=integer_of(config, "model-version"),
        plan=training,
        seed=integer_of(config, "seed"),
    )


def encode_decision(model_version: int, run: str) -> RecordDict:
    """Return the records of a `Decision` on what was trained from `model_version`."""
    return RecordDict(
        {CONFIG: ConfigRecord({"protocol": PROTOCOL_VERSION, "run": run, "model-version": model_version})}
    )


def decode_decision(content: RecordDict) -> Decision:
    """Return the decision in `content`.

    Raises:
        RefusalError: it does not follow the protocol.
    """
    return Decision(model_version=integer_of(config_of(content), "model-version"))


def encode_evaluation_task(arrays: ArrayRecord, *, model_version: int, split: str, run: str) -> RecordDict:
    """Return the records of an `EvaluationTask` whose parameters are already encoded as `arrays`."""
    config = ConfigRecord({"protocol": PROTOCOL_VERSION, "run": run, "model-version": model_version, "split": split})
    return RecordDict({ARRAYS: arrays, CONFIG: config})


def decode_evaluation_task(content: RecordDict) -> EvaluationTask:
    """Return the task in `content`.

    Raises:
        RefusalError: it does not follow the protocol, or names no split a hospital has.
    """
    config = config_of(content)
    split = text_of(config, "split")
    if split not in ("validation", "test"):
        raise RefusalError(RefusalCode.MALFORMED, f"Expected split 'validation' or 'test', found {split!r}.")
    return EvaluationTask(
        parameters=decode_parameters(arrays_of(content)),
        model_version=integer_of(config, "model-version"),
        split=split,
    )


def encode_query(run: str) -> RecordDict:
    """Return the records that ask a node who it is."""
    return RecordDict({CONFIG: ConfigRecord({"protocol": PROTOCOL_VERSION, "run": run})})


def check_protocol(content: RecordDict) -> None:
    """Check that `content` carries this protocol version.

    Raises:
        RefusalError: it carries none or another one.
    """
    config_of(content)
