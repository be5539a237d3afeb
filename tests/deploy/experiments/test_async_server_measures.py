"""What the server's measurements do, in small: both sides do the same work, and what is counted is what is said."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, Message, RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

from deploy.experiments.async_server_apply import OurAggregation, make_replies, measure_against_flower, measure_apply
from deploy.experiments.async_server_memory import measure_memory, read_memory
from deploy.experiments.async_server_rate import TimedGrid, app, measure_rate
from deploy.experiments.async_server_replies import ReplyFile, ReplyGrid, draw_update, model_like
from federation.config import Configuration, flatten, parse_configuration
from federation.records.tasks import encode_query
from federation.records.tensors import decode_parameters
from server_app.main import app as server_app
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import VirtualSite
from server_app.summary import Summary


@pytest.fixture
def replies(tmp_path: Path) -> ReplyFile:
    return ReplyFile.write(tmp_path / "mlp.bin", model_like("mlp"))


def test_reply_read_from_its_file_is_the_update_that_was_written(replies: ReplyFile) -> None:
    expected = draw_update(model_like("mlp"), 0)

    found = decode_parameters(ReplyFile.open(replies.path).read())

    assert list(found) == list(expected)
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert replies.size_bytes == sum(value.nbytes for value in expected.values())


@pytest.mark.parametrize(("together", "handed_over"), [(False, [1, 1, 1, 0]), (True, [3, 0, 0, 0])])
def test_grid_answers_one_at_a_time_or_all_at_once(replies: ReplyFile, together: bool, handed_over: list[int]) -> None:
    grid = ReplyGrid(replies, hospitals=3, together=together)
    asked = [Message(encode_query("run"), dst_node_id=node, message_type="query") for node in grid.get_node_ids()]
    names = list(grid.push_messages(asked))

    assert [len(list(grid.pull_messages(names))) for _ in range(4)] == handed_over


@pytest.mark.parametrize("rule", ["fedasync", "buffered", "fedavg"])
def test_server_runs_on_the_grid_to_its_end(tmp_path: Path, replies: ReplyFile, rule: str) -> None:
    own = {
        "aggregation.rule": rule, "aggregation.rounds": 3, "aggregation.buffer-size": 2, "model.name": "mlp",
        "run.root": str(tmp_path), "run.central-evaluation": False, "run.hospital-evaluation": False,
        "run.allow-silent-hospitals": True,
    }  # fmt: skip
    flat = flatten(parse_configuration({**flatten(Configuration()), **own}))
    grid = ReplyGrid(replies, hospitals=4, together=True)

    server_app(grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(flat)))

    summary = Summary.model_validate_json((tmp_path / "run" / "summary.json").read_text())
    assert summary.model_version == 3
    assert summary.updates_applied == {"fedasync": 3, "buffered": 6, "fedavg": 12}[rule] <= grid.given


def test_time_in_the_grid_is_counted_once_and_time_outside_is_not() -> None:
    sites = [VirtualSite(node_config={"partition-id": 0}, timing=SiteTiming(train_s=1.0))]
    grid = TimedGrid(app, sites, dict(flatten(Configuration())), fidelity=True)

    began = time.perf_counter()
    names = list(grid.push_messages([Message(encode_query("run"), dst_node_id=2, message_type="query")]))
    grid.clock.wait(5.0)
    replies = list(grid.pull_messages(names))
    inside = time.perf_counter() - began
    time_of_the_caller = sum(index for index in range(100_000))

    assert len(replies) == 1
    assert time_of_the_caller
    assert 0 < grid.inside_s <= inside


def test_rate_of_the_server_alone_is_higher_than_that_of_everything(tmp_path: Path) -> None:
    settings = {"hospitals": 2, "updates": 6, "optimizers": ["average", "momentum"], "turns": 1}

    result = measure_rate(settings, tmp_path)

    assert list(result["optimizers"]) == ["average", "momentum"]
    for (run,) in result["optimizers"].values():
        assert run["server_per_s"] > run["all_per_s"] > 0
        assert run["writes_per_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_speeds_are_measured_for_every_model_and_number_of_updates(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"models": ["mlp"], "repetitions": 3}

    axpy = measure_apply({**settings, "updates_per_version": [1, 2]}, tmp_path)
    flower = measure_against_flower({**settings, "replies": [8, 9]}, tmp_path)

    assert list(axpy["cases"]) == ["mlp, K=1", "mlp, K=2"]
    assert list(flower["cases"]) == [
        f"mlp, {replies} replies, {way}" for way in ("all cores", "processor time") for replies in (8, 9)
    ]
    assert axpy["worst"] == min(case["ratio"] for case in axpy["cases"].values()) > 0
    assert flower["worst"] == min(case["ratio"] for name, case in flower["cases"].items() if "all cores" in name) > 0
    assert all(case["once_ms"] > 0 for case in flower["cases"].values())
    assert all(len(case["ratios"]) == 3 for result in (axpy, flower) for case in result["cases"].values())


def test_our_way_and_flowers_lead_to_the_same_model() -> None:
    replies = make_replies("mlp", 9)
    ours = OurAggregation("mlp", replies)

    ours()
    flower = decode_parameters(aggregate_arrayrecords(replies, "examples"))

    assert all(torch.allclose(flower[name], value, atol=1e-7) for name, value in ours.model.parameters.items())
    assert all(value.abs().max() > 0 for value in flower.values())


def test_memory_of_this_process_is_what_linux_says() -> None:
    memory = read_memory()

    assert 0 < memory["RssAnon"] < memory["VmRSS"] <= memory["VmHWM"]


@pytest.mark.slow
def test_memory_of_a_server_does_not_grow_with_the_hospitals(tmp_path: Path) -> None:
    settings = {
        "model": "cnn", "hospitals": [4, 12],
        "configuration": {"aggregation.rule": "buffered", "aggregation.buffer-size": 4},
    }  # fmt: skip

    result = measure_memory(settings, tmp_path)

    few, many = result["cases"]
    assert (few["replies"], many["replies"]) == (4, 12)
    assert 1.5 < few["peak_models"] < 2.5
    assert many["peak_models"] == pytest.approx(few["peak_models"], abs=0.3)
    assert list(tmp_path.iterdir()) == []
