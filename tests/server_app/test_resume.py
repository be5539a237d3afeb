"""A run killed at any point resumes to the same parameters, with every update applied exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from federation.durable import write_durably
from federation.errors import CheckpointError, ConfigurationError, RunFailedError
from federation.parameters import digest
from server_app import checkpoint as checkpoint_module
from server_app.engine import Engine
from server_app.intake import Intake
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from server_app.summary import Summary
from tests.doubles import Hospitals, changed, configure
from tests.server_app.killing import Killed, kill_at


def final_digest(folder: Path) -> str:
    return digest(safetensors.torch.load_file(folder / "run" / "model.safetensors"))


def run(folder: Path, hospitals: Hospitals, **settings: Any) -> Summary:
    settings = {"aggregation__rounds": 4, "aggregation__sample_count": 2, **settings}
    return simulate(configure(folder, **settings), hospitals.app(), [SiteTiming()] * 4)


POINTS = [
    (owner, name, call, after)
    for owner, name in [
        (Engine, "_apply"),
        (Engine, "_send_training"),
        (Intake, "settle"),
        (Engine, "_record_application"),
        (checkpoint_module, "write_durably"),
        (checkpoint_module.CheckpointStore, "save"),
    ]
    for call in (2, 3, 5)
    for after in (False, True)
    if not (call == 5 and name in ("_apply", "_record_application"))
]


@pytest.mark.parametrize(("owner", "name", "call", "after"), POINTS)
def test_run_killed_anywhere_resumes_to_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool
) -> None:
    run(tmp_path / "unbroken", Hospitals(), run__allow_silent_hospitals=True)
    with monkeypatch.context() as patch:
        kill_at(patch, owner, name, call, after=after)
        with pytest.raises(Killed):
            run(tmp_path / "broken", Hospitals(), run__allow_silent_hospitals=True)

    summary = run(tmp_path / "broken", Hospitals(), run__resume=True, run__allow_silent_hospitals=True)

    assert final_digest(tmp_path / "broken") == final_digest(tmp_path / "unbroken")
    assert (summary.updates_applied, summary.model_version, summary.resumed) == (8, 4, 1)
    assert [point.version for point in summary.curve] == [0, 1, 2, 3, 4]


def test_resume_after_a_round_without_updates_samples_as_an_unbroken_run_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled() -> Hospitals:
        bad = changed(examples=0)
        return Hospitals(spoil=dict.fromkeys((0, 1), bad))

    unbroken = spoiled()
    run(tmp_path / "unbroken", unbroken, aggregation__max_empty_rounds=9, run__allow_silent_hospitals=True)
    with monkeypatch.context() as patch:
        kill_at(patch, Engine, "_record_application", 2, after=True)
        with pytest.raises(Killed):
            run(tmp_path / "broken", spoiled(), aggregation__max_empty_rounds=9, run__allow_silent_hospitals=True)

    resumed = spoiled()
    run(
        tmp_path / "broken", resumed, aggregation__max_empty_rounds=9, run__resume=True,
        run__allow_silent_hospitals=True,
    )  # fmt: skip

    assert len(unbroken.trained) > 8  # At least one round was empty.
    assert final_digest(tmp_path / "broken") == final_digest(tmp_path / "unbroken")


def test_run_with_rare_checkpoints_redoes_the_versions_since_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "unbroken", Hospitals(), aggregation__rounds=7, run__allow_silent_hospitals=True)
    rare = {"aggregation__rounds": 7, "run__checkpoint_every": 3, "run__allow_silent_hospitals": True}
    with monkeypatch.context() as patch:
        kill_at(patch, Engine, "_record_application", 5, after=True)
        with pytest.raises(Killed):
            run(tmp_path / "broken", Hospitals(), **rare)
    newest = sorted((tmp_path / "broken" / "run" / "checkpoints").iterdir())[-1]

    summary = run(tmp_path / "broken", Hospitals(), run__resume=True, **rare)

    assert newest.name == "version-00000003.safetensors"
    assert summary.updates_applied == 14
    assert final_digest(tmp_path / "broken") == final_digest(tmp_path / "unbroken")


def test_resume_may_not_end_before_the_version_it_starts_from(tmp_path: Path) -> None:
    run(tmp_path, Hospitals(), run__allow_silent_hospitals=True)

    with pytest.raises(CheckpointError, match=r"aggregation.rounds=2 to reach version 4"):
        run(tmp_path, Hospitals(), aggregation__rounds=2, run__resume=True, run__allow_silent_hospitals=True)


def test_resume_after_too_many_empty_rounds_gets_all_its_rounds_again(tmp_path: Path) -> None:
    bad = Hospitals(spoil={index: changed(examples=0) for index in range(4)})
    with pytest.raises(RunFailedError, match="3 rounds in a row"):
        run(tmp_path, bad)

    with pytest.raises(RunFailedError, match="3 rounds in a row"):
        run(tmp_path, bad, run__resume=True)

    assert len(bad.trained) == 2 * 3 * 2


def test_resumed_run_evaluates_the_versions_that_an_unbroken_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate_every_fourth(folder: Path, **settings: Any) -> Summary:
        return run(folder, Hospitals(), run__evaluate_every=4, run__allow_silent_hospitals=True, **settings)

    with monkeypatch.context() as patch:
        kill_at(patch, Engine, "_record_application", 3, after=True)
        with pytest.raises(Killed):
            evaluate_every_fourth(tmp_path, aggregation__rounds=5)

    summary = evaluate_every_fourth(tmp_path, aggregation__rounds=5, run__resume=True)

    assert [point.version for point in summary.curve] == [0, 4, 5]


def test_resume_may_extend_the_run(tmp_path: Path) -> None:
    run(tmp_path / "long", Hospitals(), aggregation__rounds=6, run__allow_silent_hospitals=True)
    run(tmp_path / "short", Hospitals(), run__allow_silent_hospitals=True)

    run(
        tmp_path / "short", Hospitals(), aggregation__rounds=6, run__resume=True, run__allow_silent_hospitals=True
    )  # fmt: skip

    assert final_digest(tmp_path / "short") == final_digest(tmp_path / "long")
    events = [json.loads(line) for line in (tmp_path / "short" / "run" / "events.jsonl").read_text().splitlines()]
    (resumed,) = [event for event in events if event["event"] == "resume"]
    assert resumed["changed"] == ["aggregation.rounds: checkpoint 4, now 6"]


def test_resume_without_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises((CheckpointError, ConfigurationError), match="none"):
        run(tmp_path, Hospitals(), run__resume=True)


def test_resume_with_another_configuration_names_the_changed_keys(tmp_path: Path) -> None:
    run(tmp_path, Hospitals(), run__allow_silent_hospitals=True)

    with pytest.raises(CheckpointError, match=r"training.batch-size: checkpoint 64, now 5"):
        run(tmp_path, Hospitals(), run__resume=True, training__batch_size=5)


def test_damaged_checkpoint_is_refused_and_named(tmp_path: Path) -> None:
    run(tmp_path, Hospitals(), run__allow_silent_hospitals=True)
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    write_durably(newest, bytes(content))

    with pytest.raises(CheckpointError, match=f"{newest.name} is damaged"):
        run(tmp_path, Hospitals(), run__resume=True)


@pytest.mark.parametrize("keep_bytes", [0, 7, 200])
def test_truncated_checkpoint_is_refused_and_named(tmp_path: Path, keep_bytes: int) -> None:
    run(tmp_path, Hospitals(), run__allow_silent_hospitals=True)
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:keep_bytes])

    with pytest.raises(CheckpointError, match=f"{newest.name} cannot be read"):
        run(tmp_path, Hospitals(), run__resume=True)


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    run(tmp_path, Hospitals(), run__keep_checkpoints=3, run__allow_silent_hospitals=True)

    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == [f"version-0000000{version}.safetensors" for version in (2, 3, 4)]


def test_event_log_goes_on_after_a_resume(tmp_path: Path) -> None:
    run(tmp_path, Hospitals(), run__allow_silent_hospitals=True)
    run(tmp_path, Hospitals(), run__resume=True, run__allow_silent_hospitals=True)

    kinds = [json.loads(line)["event"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert kinds.count("start") == 1
    assert kinds.count("resume") == 1
    assert kinds.count("apply") == 4


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize(
    ("owner", "name", "call", "after"),
    [
        (Engine, "_send_training", 5, True),
        (Intake, "settle", 3, False),
        (checkpoint_module, "write_durably", 3, False),
        (checkpoint_module, "write_durably", 4, True),
        (Engine, "_record_application", 2, True),
    ],
)
def test_server_optimizer_goes_on_where_a_killed_run_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, owner: Any, name: str, call: int, after: bool
) -> None:
    settings = {"aggregation__server_optimizer": optimizer, "run__allow_silent_hospitals": True}
    run(tmp_path / "unbroken", Hospitals(), **settings)
    with monkeypatch.context() as patch:
        kill_at(patch, owner, name, call, after=after)
        with pytest.raises(Killed):
            run(tmp_path / "broken", Hospitals(), **settings)

    run(tmp_path / "broken", Hospitals(), run__resume=True, **settings)

    assert final_digest(tmp_path / "broken") == final_digest(tmp_path / "unbroken")


def test_server_optimizer_leads_elsewhere_than_averaging(tmp_path: Path) -> None:
    digests = set()
    for optimizer in ("average", "momentum", "adam"):
        run(
            tmp_path / optimizer, Hospitals(), aggregation__server_optimizer=optimizer,
            run__allow_silent_hospitals=True,
        )  # fmt: skip
        digests.add(final_digest(tmp_path / optimizer))

    assert len(digests) == 3


def test_server_learning_rate_may_be_lowered_at_a_resume_and_the_optimizer_may_not(tmp_path: Path) -> None:
    settings = {"aggregation__server_optimizer": "momentum", "run__allow_silent_hospitals": True}
    run(tmp_path, Hospitals(), **settings)

    run(tmp_path, Hospitals(), run__resume=True, aggregation__server_learning_rate=0.5, **settings)

    with pytest.raises(CheckpointError, match=r"aggregation.server-optimizer: checkpoint 'momentum', now 'adam'"):
        run(tmp_path, Hospitals(), run__resume=True, **settings | {"aggregation__server_optimizer": "adam"})
