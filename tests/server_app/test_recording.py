"""`record.updates`: what arrived and the model it started from lie on the disk, bit by bit, under every rule."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message

from attacks.records import RecordedUpdate, read_records
from client_app.main import app as client_app
from federation.errors import RunFailedError
from federation.models import build_model
from federation.parameters import Parameters, digest, read_parameters
from federation.records.answers import decode_model_update
from federation.records.declarations import decode_declaration
from federation.records.fields import ARRAYS
from federation.records.tasks import decode_training_task
from server_app.checkpoint import CheckpointStore
from server_app.recording import Recording
from server_app.simulation.run import simulate
from tests.doubles import INFO, Hospitals, changed, configure
from tests.federation.recorded_updates.made_up_records import make_answer
from tests.server_app.killing import Point, break_off
from tests.server_app.runs import ASYNCHRONOUS, events, final_digest, run, seconds

ON: dict[str, Any] = {"record__updates": True, "run__evaluate_every": 0, "run__hospital_evaluation": False}
TWO_PHASE: dict[str, Any] = {"aggregation__rule": "fedasync", "aggregation__release": "two-phase"}
RULES: dict[str, dict[str, Any]] = {"fedavg": {"aggregation__rounds": 3}, **ASYNCHRONOUS, "two-phase": TWO_PHASE}


@dataclass
class Watched(Hospitals):
    """Scripted hospitals that remember which model they received for which version."""

    received: dict[tuple[str, int], str] = field(default_factory=dict)

    def _train(self, message: Message, context: Context) -> Message:
        task = decode_training_task(message.content)
        self.received[self._id(context)[1], task.model_version] = digest(task.parameters)
        return super()._train(message, context)


def records_of(folder: Path) -> list[RecordedUpdate]:
    return read_records(folder / "run" / "updates")


def keys_of(records: list[RecordedUpdate]) -> list[tuple[str, int]]:
    return [(item.metadata.hospital_id, item.metadata.model_version) for item in records]


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "run" / "updates").iterdir()}


def spoiled(answer: Any) -> Any:
    return changed(update={name: value * torch.nan for name, value in answer.update.items()})(answer)


def test_updates_of_real_hospitals_are_read_back_bit_by_bit(tmp_path: Path) -> None:
    sent: dict[tuple[str, int], Parameters] = {}

    def watch(message: Message) -> Iterable[Message]:
        if message.has_content() and ARRAYS in message.content:
            answer = decode_model_update(message.content)
            sent[answer.hospital_id, answer.model_version] = answer.update
        return [message]

    settings: dict[str, Any] = {
        "data__phantom_examples": 90, "data__phantom_classes": 2, "run__central_evaluation": True,
        "training__local_epochs": 2, "training__batch_size": 9, "training__learning_rate_decay": 0.5,
        "aggregation__rounds": 2, **ON,
    }  # fmt: skip
    configuration = configure(tmp_path, **settings)
    simulate(configuration, client_app, seconds(1.0, 2.0), tamper=watch)

    records = records_of(tmp_path)
    assert sorted(keys_of(records)) == sorted(sent)
    assert len(sent) == 4
    assert all(digest(item.update) == digest(sent[key]) for key, item in zip(keys_of(records), records, strict=True))
    first, last = records[0].metadata, records[-1].metadata
    start = build_model(configuration.model, first.data.info, seed=configuration.run.seed)
    assert digest(records[0].broadcast) == digest(read_parameters(start))
    assert (first.run, first.model, first.data.name) == ("run", configuration.model, "phantom")
    assert (first.data.shape, first.data.info.classes) == ((1, 28, 28), 2)
    assert (first.training.local_epochs, first.training.batch_size) == (2, 9)
    assert last.training == configuration.training.at_version(1)
    assert last.training.learning_rate == configuration.training.learning_rate / 2


@pytest.mark.parametrize("rule", RULES)
def test_every_update_lies_beside_the_model_that_its_hospital_received(tmp_path: Path, rule: str) -> None:
    hospitals = Watched()

    run(tmp_path, seconds(5.0, 11.0, 17.0), hospitals, **ON, **RULES[rule])

    records = records_of(tmp_path)
    arrived = [(item["hospital"], item["base_version"]) for item in events(tmp_path, "update")]
    assert sorted(keys_of(records)) == sorted(arrived)
    assert len({version for _, version in arrived}) > 1
    for (name, version), item in zip(keys_of(records), records, strict=True):
        step = hospitals.step(int(name[-1]), version)
        assert digest(item.broadcast) == hospitals.received[name, version]
        assert all(torch.equal(value, torch.full_like(value, step)) for value in item.update.values())
    models = {name for name in content_of(tmp_path) if "-model" in name}
    sent = {item["version"] for item in events(tmp_path, "dispatch") if item["task"] == "train"}
    assert models == {f"{version}-model.safetensors" for version in sent}


def test_declared_noise_is_recorded_as_it_was_declared(tmp_path: Path) -> None:
    run(tmp_path, seconds(1.0), **ON, privacy__mechanism="update-gaussian", aggregation__rounds=1)

    (found,) = records_of(tmp_path)
    declaration = decode_declaration(found.metadata.declaration)

    assert declaration is not None
    assert (declaration.mechanism, declaration.event.noise_multiplier) == ("update-gaussian", 24.22)


def test_without_being_asked_nothing_is_recorded(tmp_path: Path) -> None:
    run(tmp_path, seconds(1.0), aggregation__rounds=1)

    assert not (tmp_path / "run" / "updates").exists()


def test_recording_changes_no_bit_of_the_result(tmp_path: Path) -> None:
    for name, on in (("off", False), ("on", True)):
        run(tmp_path / name, seconds(5.0, 11.0), **ON | {"record__updates": on}, aggregation__rounds=2)

    assert final_digest(tmp_path / "on") == final_digest(tmp_path / "off")


def test_update_that_left_its_hospital_and_came_too_late_is_recorded(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "fedasync",
        "aggregation__rounds": 8,
        "aggregation__max_staleness": 1,
    }

    run(tmp_path, seconds(5.0, 31.0), **ON, **settings)

    refused = [item for item in events(tmp_path, "refusal") if item["reason"] == "too-stale"]
    assert refused
    assert ("hospital-001", 0) in keys_of(records_of(tmp_path))


def test_reply_that_does_not_pass_the_checks_is_not_recorded(tmp_path: Path) -> None:
    run(tmp_path, seconds(1.0, 1.0), Hospitals(spoil={1: spoiled}), **ON, aggregation__rounds=1)

    assert keys_of(records_of(tmp_path)) == [("hospital-000", 0)]


@pytest.mark.parametrize("rule", ["fedavg", "buffered"])
def test_killed_and_resumed_run_ends_with_the_records_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    settings: dict[str, Any] = {**ON, **RULES[rule], "aggregation__rounds": 3}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(whole, seconds(5.0, 11.0, 17.0), **settings)

    point = Point(CheckpointStore, "save", 3, after=False)
    break_off(monkeypatch, point, lambda: run(broken, seconds(5.0, 11.0, 17.0), **settings))
    run(broken, seconds(5.0, 11.0, 17.0), **settings, run__resume=True)

    assert content_of(broken) == content_of(whole)


def test_recording_may_begin_and_end_when_a_run_is_resumed(tmp_path: Path) -> None:
    for rounds, on in ((1, False), (2, True), (3, False)):
        settings: dict[str, Any] = {
            **ON,
            "record__updates": on,
            "aggregation__rounds": rounds,
            "run__resume": rounds > 1,
        }
        run(tmp_path, seconds(1.0), **settings)

    assert keys_of(records_of(tmp_path)) == [("hospital-000", 1)]


def test_recording_that_begins_at_a_resumption_has_the_models_that_hospitals_work_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {**ON, "aggregation__rule": "fedasync", "aggregation__rounds": 8}
    off = settings | {"record__updates": False}
    point = Point(CheckpointStore, "save", 3, after=False)
    break_off(monkeypatch, point, lambda: run(tmp_path, seconds(5.0, 31.0), **off))

    run(tmp_path, seconds(5.0, 31.0), **settings, run__resume=True)

    assert ("hospital-001", 0) in keys_of(records_of(tmp_path))
    assert not events(tmp_path, "unrecorded")


def test_disk_that_refuses_ends_the_run_and_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("federation.recorded_updates.folder.write_durably", fail)
        with pytest.raises(RunFailedError, match=r"No space left.*resume with record\.updates=false"):
            run(tmp_path, seconds(1.0), **ON, aggregation__rounds=1)
    summary = run(tmp_path, seconds(1.0), aggregation__rounds=1, run__resume=True, **ON | {"record__updates": False})

    assert summary.status == "completed"


def test_update_whose_model_was_sent_before_recording_began_is_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recording, "keep_model", lambda *_: None)

    run(tmp_path, seconds(1.0), **ON, aggregation__rounds=1)

    (event,) = events(tmp_path, "unrecorded")
    assert (event["hospital"], event["base_version"]) == ("hospital-000", 0)
    assert len(events(tmp_path, "update")) == 1
    assert not (tmp_path / "run" / "updates").exists()


def test_restarted_server_finds_the_model_that_an_owed_update_started_from(tmp_path: Path) -> None:
    configuration = configure(tmp_path, **ON)
    parameters = read_parameters(build_model(configuration.model, INFO, seed=0))
    before = Recording(tmp_path / "updates", configuration, INFO)
    before.keep_model(3, parameters)
    answer = make_answer()
    fitting = changed(update={name: torch.ones_like(value) for name, value in parameters.items()})(answer)

    kept = Recording(tmp_path / "updates", configuration, INFO).keep_update(fitting, parameters)

    (found,) = read_records(tmp_path / "updates")
    assert kept
    assert digest(found.broadcast) == digest(parameters)


def test_metadata_hold_no_path_and_nothing_of_what_hospitals_log(tmp_path: Path) -> None:
    marker = "planted-marker"
    root = tmp_path / marker

    run(root, seconds(1.0, 1.0), Hospitals(spoil={1: spoiled}), **ON, aggregation__rounds=1)

    (text,) = [content.decode() for name, content in content_of(root).items() if name.endswith(".json")]
    assert marker not in text
    assert str(tmp_path) not in text
    assert json.loads(text)["data"]["class_names"] == ["class 0", "class 1"]


def test_nobody_else_may_read_the_records(tmp_path: Path) -> None:
    usual = os.umask(0)
    try:
        run(tmp_path, seconds(1.0), **ON, aggregation__rounds=1)
    finally:
        os.umask(usual)

    folder = tmp_path / "run" / "updates"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
