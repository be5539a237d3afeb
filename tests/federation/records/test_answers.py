"""What a hospital answers survives the wire, holds nothing but what it must, and is refused when it is malformed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from hypothesis import given
from hypothesis import strategies as st

from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import RefusalCode, RefusalError
from federation.identifiers import is_identifier
from federation.metrics import Scores
from federation.records.answers import (
    Discarded,
    Enrolment,
    HospitalScores,
    ModelUpdate,
    Readiness,
    decode_discarded,
    decode_enrolment,
    decode_hospital_scores,
    decode_model_update,
    decode_readiness,
    decode_training_answer,
    encode_discarded,
    encode_enrolment,
    encode_hospital_scores,
    encode_model_update,
    encode_readiness,
)
from federation.records.fields import PROTOCOL_VERSION

INFO = DatasetInfo(name="x", task=Task.MULTILABEL, class_names=("b", "a", "c"), channels=3, height=28, width=64)
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
VERSIONS = st.integers(0, 2**31)
SHARES = st.floats(0, 1)


def update_content() -> Any:
    update = {"weight": torch.ones(2, 3)}
    return encode_model_update(ModelUpdate(hospital_id="north", model_version=4, examples=12, update=update))


def scores_content(**changes: Any) -> Any:
    fields: dict[str, Any] = {"accuracy": 0.75, "auroc": 0.5, "loss": 1.25, "examples": 8} | changes
    answer = HospitalScores(hospital_id="north", model_version=4, split="test", scores=Scores(**fields))
    return encode_hospital_scores(answer)


def enrolment_content() -> Any:
    return encode_enrolment("north", 12, INFO)


def readiness_content() -> Any:
    return encode_readiness(Readiness(hospital_id="north", model_version=4))


def discarded_content() -> Any:
    return encode_discarded(Discarded(hospital_id="north", model_version=4))


Decoder = Callable[[RecordDict], object]
ANSWERS: dict[str, tuple[Decoder, Callable[[], Any]]] = {
    "update": (decode_model_update, update_content),
    "readiness": (decode_readiness, readiness_content),
    "discarded": (decode_discarded, discarded_content),
    "scores": (decode_hospital_scores, scores_content),
    "enrolment": (decode_enrolment, enrolment_content),
}
INTEGERS = [
    ("update", "config", "model-version"),
    ("update", "metrics", "examples"),
    ("readiness", "config", "model-version"),
    ("discarded", "config", "model-version"),
    ("scores", "config", "model-version"),
    ("scores", "metrics", "examples"),
    *[("enrolment", "config", key) for key in ("examples", "classes", "channels", "height", "width")],
]
TEXTS = [
    ("update", "config", "hospital-id"),
    *[(kind, "config", key) for kind in ("readiness", "discarded") for key in ("hospital-id", "phase")],
    ("scores", "config", "hospital-id"),
    ("scores", "config", "split"),
    *[("enrolment", "config", key) for key in ("hospital-id", "task", "label-digest")],
]
RECORDS = [
    ("update", "arrays"), ("update", "config"), ("update", "metrics"), ("scores", "config"), ("scores", "metrics"),
    ("enrolment", "config"), ("readiness", "config"), ("discarded", "config"),
]  # fmt: skip


def refusal_of(kind: str, content: RecordDict) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        ANSWERS[kind][0](content)
    return caught.value


def all_bytes(content: RecordDict) -> bytes:
    return b"".join(item.deflate() for item in get_all_nested_objects(content).values())


@given(IDS, VERSIONS, st.integers(1, 2**31))
def test_model_update_survives(hospital_id: str, version: int, examples: int) -> None:
    sent = ModelUpdate(
        hospital_id=hospital_id, model_version=version, examples=examples, update={"w": torch.arange(3.0)}
    )  # fmt: skip

    received = decode_model_update(encode_model_update(sent))

    assert (received.hospital_id, received.model_version, received.examples) == (hospital_id, version, examples)
    assert torch.equal(received.update["w"], torch.arange(3.0))


@given(IDS, VERSIONS, st.integers(0, 2**31), SHARES, st.one_of(st.none(), SHARES), st.floats(0, 10))
def test_scores_survive_all_but_the_loss(
    hospital_id: str, version: int, examples: int, accuracy: float, auroc: float | None, loss: float
) -> None:
    scores = Scores(accuracy=accuracy, auroc=auroc, loss=loss, examples=examples)
    sent = HospitalScores(hospital_id=hospital_id, model_version=version, split="validation", scores=scores)

    received = decode_hospital_scores(encode_hospital_scores(sent))

    expected = Scores(accuracy=accuracy, auroc=auroc, loss=None, examples=examples)
    assert received == HospitalScores(
        hospital_id=hospital_id, model_version=version, split="validation", scores=expected
    )  # fmt: skip


@given(IDS, VERSIONS)
def test_readiness_and_discard_survive(hospital_id: str, version: int) -> None:
    ready = Readiness(hospital_id=hospital_id, model_version=version)
    discarded = Discarded(hospital_id=hospital_id, model_version=version)

    assert decode_readiness(encode_readiness(ready)) == ready
    assert decode_discarded(encode_discarded(discarded)) == discarded


def test_training_is_answered_by_an_update_or_by_readiness() -> None:
    update, ready = decode_training_answer(update_content()), decode_training_answer(readiness_content())

    assert isinstance(update, ModelUpdate)
    assert (update.hospital_id, update.model_version, update.examples) == ("north", 4, 12)
    assert ready == Readiness(hospital_id="north", model_version=4)


@pytest.mark.parametrize("phase", ["discarded", "", "Ready", 1, True])
def test_training_answer_of_another_phase_is_refused_even_with_an_update(phase: Any) -> None:
    content = update_content()
    content["config"]["phase"] = phase

    with pytest.raises(RefusalError) as caught:
        decode_training_answer(content)

    assert caught.value.code is RefusalCode.MALFORMED
    assert "phase" in caught.value.detail


@pytest.mark.parametrize(
    ("decode", "content"), [(decode_readiness, discarded_content), (decode_discarded, readiness_content)]
)
def test_readiness_and_discard_are_not_taken_for_each_other(decode: Decoder, content: Callable[[], Any]) -> None:
    with pytest.raises(RefusalError, match="Expected phase '"):
        decode(content())


def test_enrolment_survives() -> None:
    assert decode_enrolment(enrolment_content()) == Enrolment(
        hospital_id="north",
        examples=12,
        task=Task.MULTILABEL,
        classes=3,
        channels=3,
        height=28,
        width=64,
        label_digest=INFO.label_digest,
    )


def test_loss_never_leaves_the_hospital() -> None:
    assert all_bytes(scores_content(loss=1.25)) == all_bytes(scores_content(loss=987654.0))
    assert b"loss" not in all_bytes(scores_content())


def test_answers_hold_nothing_beyond_their_fields() -> None:
    update, scores, enrolment = update_content(), scores_content(), enrolment_content()
    phases = [readiness_content(), discarded_content()]

    assert {key: set(record) for key, record in update.items()} == {
        "arrays": {"weight"}, "config": {"protocol", "hospital-id", "model-version"}, "metrics": {"examples"},
    }  # fmt: skip
    assert {key: set(record) for key, record in scores.items()} == {
        "config": {"protocol", "hospital-id", "model-version", "split"},
        "metrics": {"examples", "accuracy", "auroc"},
    }
    for phase in phases:
        assert {key: set(record) for key, record in phase.items()} == {
            "config": {"protocol", "hospital-id", "model-version", "phase"},
        }
    assert {key: set(record) for key, record in enrolment.items()} == {
        "config": {
            "protocol", "hospital-id", "examples", "task", "classes", "channels", "height", "width", "label-digest",
        }
    }  # fmt: skip


def test_class_names_do_not_travel_but_their_order_shows() -> None:
    reordered = DatasetInfo(
        name="x", task=Task.MULTILABEL, class_names=("a", "b", "c"), channels=3, height=28, width=64
    )  # fmt: skip
    named = DatasetInfo(
        name="x", task=Task.MULTILABEL, class_names=("melanoma", "naevus"), channels=3, height=28, width=64
    )  # fmt: skip

    assert b"melanoma" not in all_bytes(encode_enrolment("north", 12, named))
    received = decode_enrolment(encode_enrolment("north", 12, reordered))
    assert received.label_digest != decode_enrolment(enrolment_content()).label_digest


@pytest.mark.parametrize(("kind", "key"), RECORDS)
def test_missing_record_is_refused(kind: str, key: str) -> None:
    content = ANSWERS[kind][1]()
    del content[key]

    error = refusal_of(kind, content)

    assert error.code is RefusalCode.MALFORMED
    assert f"'{key}'" in error.detail


@pytest.mark.parametrize(("kind", "key"), RECORDS)
def test_record_of_another_type_is_refused(kind: str, key: str) -> None:
    content = ANSWERS[kind][1]()
    content[key] = ArrayRecord() if key == "config" else ConfigRecord()

    assert refusal_of(kind, content).code is RefusalCode.MALFORMED


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("version", [PROTOCOL_VERSION + 1, 0, "1", None])
def test_other_protocol_is_refused(kind: str, version: Any) -> None:
    content = ANSWERS[kind][1]()
    if version is None:
        del content["config"]["protocol"]
    else:
        content["config"]["protocol"] = version

    error = refusal_of(kind, content)

    assert error.code is RefusalCode.WRONG_PROTOCOL
    assert error.detail == f"Expected protocol 3, found {version!r}."


@pytest.mark.parametrize(("kind", "record", "key"), [*INTEGERS, *TEXTS, ("scores", "metrics", "accuracy")])
def test_missing_field_is_refused_by_name(kind: str, record: str, key: str) -> None:
    content = ANSWERS[kind][1]()
    del content[record][key]

    error = refusal_of(kind, content)

    assert error.code is RefusalCode.MALFORMED
    assert f"'{key}'" in error.detail


@pytest.mark.parametrize(
    ("kind", "record", "key", "value"),
    # A metric record takes numbers only: Flower itself refuses a bool or a text there.
    [(*field, value) for field in INTEGERS for value in (1.0, [1, 2], *((True, "1") if field[1] == "config" else ()))],
)
def test_what_is_no_integer_is_refused_where_one_is_expected(kind: str, record: str, key: str, value: Any) -> None:
    content = ANSWERS[kind][1]()
    content[record][key] = value

    error = refusal_of(kind, content)

    assert error.code is RefusalCode.MALFORMED
    assert error.detail == f"Expected an integer {key!r}, found {value!r}."


@pytest.mark.parametrize(("kind", "record", "key"), TEXTS)
@pytest.mark.parametrize("value", [1, True, b"north", ["north"]])
def test_what_is_no_text_is_refused_where_one_is_expected(kind: str, record: str, key: str, value: Any) -> None:
    content = ANSWERS[kind][1]()
    content[record][key] = value

    error = refusal_of(kind, content)

    assert error.code is RefusalCode.MALFORMED
    assert error.detail == f"Expected a text {key!r}, found {value!r}."


@pytest.mark.parametrize("key", ["accuracy", "auroc"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.001, 1.001, 2, -1, [0.5]])
def test_score_that_is_no_share_is_refused(key: str, value: Any) -> None:
    content = scores_content()
    content["metrics"][key] = value

    error = refusal_of("scores", content)

    assert error.code is RefusalCode.MALFORMED
    assert error.detail == f"Expected {key!r} between 0 and 1, found {value!r}."


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0])
def test_score_may_be_nought_or_one(value: float) -> None:
    content = scores_content()
    content["metrics"] = MetricRecord({"examples": 1, "accuracy": value, "auroc": value})

    assert decode_hospital_scores(content).scores.accuracy == float(value)


@pytest.mark.parametrize("examples", [0, -1])
def test_update_without_images_is_refused_as_such(examples: int) -> None:
    content = update_content()
    content["metrics"]["examples"] = examples

    assert refusal_of("update", content).code is RefusalCode.NO_EXAMPLES


def test_unknown_task_is_refused_with_those_that_exist() -> None:
    content = enrolment_content()
    content["config"]["task"] = "regression"

    error = refusal_of("enrolment", content)

    assert error.detail == "Expected a task of ['multiclass', 'multilabel'], found 'regression'."


BAD_IDS = ["", ".", "..", ".hidden", "-flag", "_a", "a/b", "../x", "a\\b", "a b", "a\n", "a\0", "ä", "a" * 65, "a:b"]


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("name", BAD_IDS)
def test_hospital_id_that_is_not_safe_as_a_file_name_is_refused(kind: str, name: str) -> None:
    content = ANSWERS[kind][1]()
    content["config"]["hospital-id"] = name

    assert refusal_of(kind, content).code is RefusalCode.MALFORMED
    assert not is_identifier(name)


@given(IDS)
def test_hospital_id_of_letters_digits_dots_underscores_and_hyphens_is_one(name: str) -> None:
    assert is_identifier(name)
