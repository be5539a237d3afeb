"""A hospital's three handlers, called as Flower calls them, on a small phantom data set."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from sklearn.metrics import accuracy_score, roc_auc_score

from client_app import main
from client_app.training import train_locally
from federation.config import Configuration, TrainingConfig, parse_configuration
from federation.datasets import sites
from federation.datasets.image_set import Dataset, ImageSet
from federation.datasets.sites import load_site
from federation.errors import SiteErrorCode
from federation.metrics import predict
from federation.models import build_model
from federation.parameters import Parameters, read_parameters
from federation.records.answers import (
    ModelUpdate,
    decode_enrolment,
    decode_hospital_scores,
    decode_model_update,
    encode_model_update,
)
from federation.records.tasks import encode_evaluation_task, encode_query, encode_training_task
from federation.records.tensors import encode_parameters
from tests.client_app.calls import (
    deployed_node,
    flat_configuration,
    make_context,
    make_message,
    save_own_images,
    wire_bytes,
)

SITE = {"partition_id": 1, "num_partitions": 2}


class Desk:
    """The server's side of one simulated hospital."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.flat = flat_configuration(folder, **settings)
        self.configuration: Configuration = parse_configuration(
            {key: value for key, value in self.flat.items() if not key.startswith("no.")}
        )
        self.context: Context = make_context(self.flat, **SITE)
        self.parameters: Parameters = {}

    def data(self) -> Dataset:
        return load_site(self.configuration.data, site=1, sites=2, seed=0)

    def build(self) -> Parameters:
        model = build_model(self.configuration.model, self.data().info, seed=0)
        return read_parameters(model)

    def query(self) -> Message:
        return main.app(make_message(encode_query("demo"), "query"), self.context)

    def train(
        self, parameters: Parameters, *, seed: int = 7, message_id: str = "message-1", **plan: Any
    ) -> Message:  # fmt: skip
        settings = TrainingConfig(**{"device": "cpu", "batch_size": 8, **plan})
        arrays = encode_parameters(parameters)
        content = encode_training_task(arrays, model_version=3, plan=settings, seed=seed, run="demo")
        return main.app(make_message(content, "train", message_id=message_id), self.context)

    def evaluate(self, parameters: Parameters, split: str = "validation") -> Message:
        content = encode_evaluation_task(encode_parameters(parameters), model_version=3, split=split, run="demo")
        return main.app(make_message(content, "evaluate"), self.context)

    def log(self) -> str:
        return (self.folder / "run" / "sites" / "hospital-001.log").read_text()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_hospital_introduces_itself_with_its_data(desk: Desk) -> None:
    enrolment = decode_enrolment(desk.query().content)

    data = desk.data()
    assert (enrolment.hospital_id, enrolment.examples) == ("hospital-001", len(data.train))
    assert (enrolment.classes, enrolment.channels, enrolment.height, enrolment.width) == (4, 1, 28, 28)
    assert (enrolment.task, enrolment.label_digest) == (data.info.task, data.info.label_digest)


@pytest.mark.parametrize("augmentation", ["none", "shift-flip"])
def test_update_is_the_difference_that_local_training_makes(desk: Desk, augmentation: Any) -> None:
    before = desk.build()
    model = build_model(desk.configuration.model, desk.data().info, seed=0)
    plan = TrainingConfig(device="cpu", batch_size=8, local_epochs=2, augmentation=augmentation)
    generator = torch.Generator().manual_seed(7)
    data = desk.data()
    train_locally(model, data.train, data.info, plan, generator=generator, device=torch.device("cpu"))

    answer = decode_model_update(desk.train(before, seed=7, local_epochs=2, augmentation=augmentation).content)

    assert (answer.hospital_id, answer.model_version, answer.examples) == ("hospital-001", 3, len(data.train))
    assert list(answer.update) == list(before)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(answer.update[name], value - before[name], rtol=0, atol=1e-6)
    assert max(float(value.abs().max()) for value in answer.update.values()) > 1e-3


@pytest.mark.parametrize("name", ["cnn", "mlp", "resnet18"])
def test_every_network_trains(tmp_path: Path, name: str) -> None:
    desk = Desk(tmp_path, model__name=name, data__phantom_examples=60)

    answer = decode_model_update(desk.train(desk.build()).content)

    assert all(value.isfinite().all() for value in answer.update.values())
    assert {name: value.shape for name, value in answer.update.items()} == {
        name: value.shape for name, value in desk.build().items()
    }


def test_same_task_gives_the_same_bytes_and_another_seed_others(desk: Desk) -> None:
    first, second, other = (desk.train(desk.build(), seed=seed).content["arrays"] for seed in (1, 1, 2))

    def data_of(record: Any) -> list[bytes]:
        return [array.data for array in record.values()]

    assert data_of(first) == data_of(second)
    assert data_of(first) != data_of(other)


def test_one_training_leaves_no_trace_in_the_next(desk: Desk) -> None:
    parameters = desk.build()
    fresh = decode_model_update(desk.train(parameters).content)
    desk.train({name: value + 1 for name, value in parameters.items()}, optimizer="adam")

    again = decode_model_update(desk.train(parameters).content)

    assert all(torch.equal(again.update[name], value) for name, value in fresh.update.items())
    assert len(desk.context.state) == 0


def test_plan_of_the_task_counts_and_not_the_run_configuration(tmp_path: Path) -> None:
    slow, fast = Desk(tmp_path, training__learning_rate=0.001), Desk(tmp_path, training__learning_rate=0.9)

    updates = [
        decode_model_update(desk.train(desk.build(), learning_rate=0.01).content).update for desk in (slow, fast)
    ]

    assert all(torch.equal(updates[0][name], updates[1][name]) for name in updates[0])


@pytest.mark.parametrize("split", ["validation", "test"])
def test_scores_are_those_of_the_split_that_was_asked_for(desk: Desk, split: str) -> None:
    data = desk.data()
    images = data.validation if split == "validation" else data.test
    model = build_model(desk.configuration.model, data.info, seed=0)
    probabilities = predict(model, images, torch.device("cpu")).softmax(1).numpy()
    areas = [roc_auc_score(images.labels == k, probabilities[:, k]) for k in set(images.labels.tolist())]

    answer = decode_hospital_scores(desk.evaluate(desk.build(), split).content)

    assert (answer.hospital_id, answer.model_version, answer.split) == ("hospital-001", 3, split)
    assert answer.scores.accuracy == accuracy_score(images.labels, probabilities.argmax(1))
    assert answer.scores.auroc == pytest.approx(np.mean(areas), abs=1e-9)
    assert (answer.scores.examples, answer.scores.loss) == (len(images), None)


def test_finished_training_is_logged_at_the_hospital_only(desk: Desk) -> None:
    desk.train(desk.build())

    trained, sent = map(json.loads, desk.log().splitlines())
    assert (trained["event"], trained["model_version"], trained["milliseconds"] > 0) == ("trained", 3, True)
    assert {key: sent[key] for key in ("event", "model_version", "examples")} == {
        "event": "update", "model_version": 3, "examples": len(desk.data().train),
    }  # fmt: skip


def test_training_restores_the_number_of_threads(desk: Desk) -> None:
    before = torch.get_num_threads()

    desk.train(desk.build(), threads=before + 1)

    assert torch.get_num_threads() == before


def with_one(parameters: Parameters, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Parameters:
    return {key: change(value) if key == name else value for key, value in parameters.items()}


BAD_MODELS: dict[str, Callable[[Parameters], Parameters]] = {
    "other shape": lambda p: with_one(p, "output.weight", lambda v: v[:-1].contiguous()),
    "shape that broadcasts": lambda p: with_one(p, "output.bias", lambda v: v[:1]),
    "other dtype": lambda p: with_one(p, "output.bias", torch.Tensor.double),
    "missing name": lambda p: {key: value for key, value in p.items() if key != "output.bias"},
    "further name": lambda p: p | {"backdoor": torch.zeros(1)},
    "other order": lambda p: dict(reversed(p.items())),
    "nothing": lambda p: {},
    "not a number": lambda p: with_one(p, "output.bias", lambda v: v * math.nan),
    "infinite": lambda p: with_one(p, "output.bias", lambda v: v + math.inf),
}


@pytest.mark.parametrize("kind", BAD_MODELS)
@pytest.mark.parametrize("action", ["train", "evaluate"])
def test_model_that_is_not_this_hospitals_is_refused(desk: Desk, kind: str, action: str) -> None:
    parameters = BAD_MODELS[kind](desk.build())

    reply = desk.train(parameters) if action == "train" else desk.evaluate(parameters)

    assert reply.error.code == SiteErrorCode.MODEL_MISMATCH
    assert reply.error.reason == SiteErrorCode.MODEL_MISMATCH.sentence


def test_training_that_diverges_releases_nothing(desk: Desk) -> None:
    reply = desk.train(desk.build(), optimizer="sgd", learning_rate=1e30, local_epochs=3)

    assert reply.error.code == SiteErrorCode.NON_FINITE_UPDATE
    assert not reply.has_content()


@pytest.mark.parametrize("split", ["train", "everything", ""])
def test_unknown_split_is_refused(desk: Desk, split: str) -> None:
    assert desk.evaluate(desk.build(), split).error.code == SiteErrorCode.PROTOCOL


@pytest.mark.parametrize(("split", "action"), [("train", "train"), ("validation", "evaluate"), ("test", "evaluate")])
def test_empty_split_is_answered_as_such(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, split: str, action: str
) -> None:  # fmt: skip
    data, parameters = desk.data(), desk.build()
    empty = {split: getattr(data, split).take([])}
    splits = {"train": data.train, "validation": data.validation, "test": data.test} | empty
    monkeypatch.setattr("client_app.site.load_site", lambda *_, **__: Dataset(info=data.info, **splits))

    reply = desk.train(parameters) if action == "train" else desk.evaluate(parameters, split)

    assert reply.error.code == SiteErrorCode.EMPTY_SPLIT


@pytest.mark.parametrize("kind", ["query", "train", "evaluate"])
def test_unknown_configuration_key_is_refused_by_every_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    good = Desk(tmp_path)
    parameters = good.build()
    bad = Desk(tmp_path, no__such_key=1)

    reply = {
        "query": bad.query, "train": lambda: bad.train(parameters), "evaluate": lambda: bad.evaluate(parameters)
    }[kind]()  # fmt: skip

    assert reply.error.code == SiteErrorCode.CONFIGURATION


@pytest.mark.parametrize("kind", ["query", "train", "evaluate"])
def test_message_of_another_protocol_is_refused(desk: Desk, kind: str) -> None:
    reply = main.app(make_message(RecordDict(), kind), desk.context)

    assert reply.error.code == SiteErrorCode.PROTOCOL


def test_answer_of_another_kind_is_refused_as_a_task(desk: Desk) -> None:
    update = ModelUpdate(hospital_id="x", model_version=1, examples=1, update=desk.build())

    reply = main.app(make_message(encode_model_update(update), "train"), desk.context)

    assert reply.error.code == SiteErrorCode.PROTOCOL


def test_absent_device_is_a_configuration_error(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert desk.train(desk.build(), device="cuda").error.code == SiteErrorCode.CONFIGURATION


@pytest.mark.parametrize("name", ["folder", "npz"])
@pytest.mark.parametrize("kind", ["query", "train", "evaluate"])
def test_missing_data_are_a_code_and_their_path_stays_at_the_hospital(tmp_path: Path, name: str, kind: str) -> None:
    desk = Desk(tmp_path)
    parameters = desk.build()
    node = deployed_node(tmp_path, data={"name": name, "root": str(tmp_path / "secret-ward")})
    desk.context = make_context(flat_configuration(tmp_path), **node)

    reply = {
        "query": desk.query, "train": lambda: desk.train(parameters), "evaluate": lambda: desk.evaluate(parameters)
    }[kind]()  # fmt: skip

    assert reply.error.code == SiteErrorCode.DATA_UNAVAILABLE
    assert b"secret-ward" not in wire_bytes(reply)
    assert "secret-ward" in (tmp_path / "state" / "north.log").read_text()


def test_deployed_hospital_enrols_and_trains_on_its_own_file_with_its_own_seed(tmp_path: Path) -> None:
    own = {"name": "npz", "root": str(save_own_images(tmp_path))}
    desk = Desk(tmp_path)
    desk.context = make_context(flat_configuration(tmp_path, data__name="folder"), **deployed_node(tmp_path))

    enrolment = decode_enrolment(desk.query().content)
    site_data = sites.load_own_folder(desk.configuration.data.model_copy(update=own), seed=0)
    model = read_parameters(build_model(desk.configuration.model, site_data.info, seed=0))
    updates = [
        decode_model_update(desk.train(model, seed=7, message_id=message_id).content).update
        for message_id in ("first", "second")
    ]

    assert (enrolment.hospital_id, enrolment.examples) == ("north", len(site_data.train))
    assert not all(torch.equal(updates[0][name], updates[1][name]) for name in model)


def test_replies_hold_no_pixel_and_no_path(desk: Desk) -> None:
    parameters = desk.build()
    replies = [desk.query(), desk.train(parameters), desk.evaluate(parameters)]

    sent = b"".join(map(wire_bytes, replies))

    images: ImageSet = desk.data().train
    assert str(desk.folder).encode() not in sent
    assert not any(images.images[index].tobytes() in sent for index in range(len(images)))
