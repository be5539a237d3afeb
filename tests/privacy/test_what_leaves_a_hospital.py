"""What leaves a hospital, restated: the fields of the contract, and on failure a code and its fixed sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client_app.boundary import guarded
from client_app.main import app
from federation.config import TrainingConfig, parse_configuration
from federation.datasets.sites import load_site
from federation.errors import SiteErrorCode
from federation.models import build_model
from federation.parameters import read_parameters
from federation.records.tasks import encode_evaluation_task, encode_query, encode_training_task
from federation.records.tensors import encode_parameters
from tests.client_app.calls import flat_configuration, make_context, make_message, wire_bytes


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secret=st.text(max_size=40).map(lambda text: f"secret-{text}-of-a-patient"))
def test_reply_to_a_failed_task_is_a_code_and_its_fixed_sentence(tmp_path: Path, secret: str) -> None:
    def fail(message: Message, context: Context) -> RecordDict:
        raise OSError(secret)

    reply = guarded(fail)(make_message(RecordDict()), make_context(flat_configuration(tmp_path), hospital_id="north"))

    assert (reply.error.code, reply.error.reason) == (SiteErrorCode.INTERNAL, SiteErrorCode.INTERNAL.sentence)
    assert b"-of-a-patient" not in wire_bytes(reply)


@pytest.fixture
def answers(tmp_path: Path) -> dict[str, RecordDict]:
    """The successful answers of one simulated hospital to all three kinds of task."""
    flat = flat_configuration(
        tmp_path, data__phantom_examples=90, data__phantom_classes=2, model__name="mlp", training__device="cpu"
    )
    context = make_context(flat, partition_id=0, num_partitions=1)
    tasks = {"query": encode_query("run")}
    configuration = parse_configuration(flat)
    dataset = load_site(configuration.data, site=0, sites=1, seed=0)
    arrays = encode_parameters(read_parameters(build_model(configuration.model, dataset.info, seed=0)))
    plan = TrainingConfig(device="cpu")
    tasks["train"] = encode_training_task(arrays, model_version=0, plan=plan, seed=1, run="run")
    tasks["evaluate"] = encode_evaluation_task(arrays, model_version=0, split="validation", run="run")
    return {kind: app(make_message(content, kind), context).content for kind, content in tasks.items()}


ALLOWED: dict[str, dict[str, set[str]]] = {
    "query": {
        "config": {
            "protocol", "hospital-id", "examples", "task", "classes", "channels", "height", "width", "label-digest",
        }
    },
    "train": {"arrays": set(), "config": {"protocol", "hospital-id", "model-version"}, "metrics": {"examples"}},
    "evaluate": {
        "config": {"protocol", "hospital-id", "model-version", "split"},
        "metrics": {"examples", "accuracy", "auroc"},
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", ALLOWED)
def test_answer_holds_the_fields_of_the_contract_and_no_other(answers: dict[str, RecordDict], kind: str) -> None:
    found = {name: set(record) if name != "arrays" else set() for name, record in answers[kind].items()}

    assert found == ALLOWED[kind]
