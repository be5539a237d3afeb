"""The outbox holds what left, as it left, and nothing that leaves depends on it."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from attacks.records import RecordedUpdate, read_records
from client_app.pending import PendingStore
from client_app.trained_update import TrainedUpdate
from federation.parameters import digest
from federation.recorded_updates.folder import UpdateFolder
from federation.records.answers import decode_model_update
from federation.records.declarations import decode_declaration
from federation.records.tasks import DISCARD, RELEASE
from tests.client_app.answers import MECHANISMS, UPDATE, updated
from tests.client_app.calls import wire_bytes
from tests.client_app.clinic import Clinic
from tests.federation.recorded_updates.made_up_records import names_in

TWO_PHASE = {"aggregation__release": "two-phase"}
ALL: dict[str, dict[str, Any]] = {"none": {}, **MECHANISMS}
MakeClinic = Callable[..., Clinic]


@pytest.fixture
def watched(clinic: MakeClinic, volume: Path) -> MakeClinic:
    """Make a deployed hospital with an outbox that keeps `keep` copies."""
    return lambda keep=20, **settings: clinic(
        policy={"outbox": {"folder": str(volume / "outbox"), "keep": keep}}, **settings
    )


def copies(clinic: Clinic, run: str = "run") -> list[RecordedUpdate]:
    return read_records(clinic.folder / "outbox" / run)


def outbox_names(clinic: Clinic, run: str = "run") -> list[str]:
    return names_in(clinic.folder / "outbox" / run)


@pytest.mark.parametrize("mechanism", ALL)
def test_update_is_copied_exactly_as_it_was_sent(watched: MakeClinic, mechanism: str) -> None:
    clinic = watched(**ALL[mechanism])

    answer = updated(clinic, version=2, learning_rate=0.5)

    (copy,) = copies(clinic)
    assert digest(copy.update) == digest(answer.update)
    assert digest(copy.broadcast) == digest(clinic.build())
    assert decode_declaration(copy.metadata.declaration) == answer.declaration
    facts = copy.metadata
    assert (facts.run, facts.hospital_id, facts.model_version, facts.examples) == ("run", "north", 2, 60)
    assert (facts.model, facts.data.name) == (clinic.configuration.model, "npz")
    assert (facts.data.shape, facts.data.class_names) == ((1, 8, 8), ("class-0", "class-1", "class-2"))
    assert (facts.training.batch_size, facts.training.learning_rate) == (20, 0.5)


@pytest.mark.parametrize("mechanism", ALL)
def test_update_that_waited_is_copied_when_it_is_released(watched: MakeClinic, mechanism: str) -> None:
    clinic = watched(**TWO_PHASE, **ALL[mechanism])
    clinic.train(version=2)
    before = (clinic.folder / "outbox").exists()

    reply = clinic.decide(RELEASE, 2)

    answer = decode_model_update(reply.content)
    (copy,) = copies(clinic)
    assert not before
    assert digest(copy.update) == digest(answer.update)
    assert digest(copy.broadcast) == digest(clinic.build())
    assert copy.metadata.training.batch_size == 20


def test_update_that_is_thrown_away_is_not_copied(watched: MakeClinic) -> None:
    clinic = watched(**TWO_PHASE)
    clinic.train()

    clinic.decide(DISCARD)

    assert not (clinic.folder / "outbox").exists()


def test_update_that_is_refused_is_not_copied(watched: MakeClinic) -> None:
    clinic = watched(**UPDATE, privacy__epsilon=0.3)
    updated(clinic, "m1", version=0)

    refused = clinic.train("m2", version=1)

    assert refused.has_error()
    assert [copy.metadata.model_version for copy in copies(clinic)] == [0]


def test_without_an_outbox_nothing_is_copied_and_no_model_waits(
    clinic: MakeClinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[TrainedUpdate] = []
    monkeypatch.setattr(PendingStore, "keep", lambda self, trained: kept.append(trained))
    north = clinic(**TWO_PHASE)

    north.train()

    assert [trained.received for trained in kept] == [None]
    assert not list(north.folder.rglob("*.safetensors"))


def test_copy_is_made_after_the_release_is_booked(watched: MakeClinic, monkeypatch: pytest.MonkeyPatch) -> None:
    clinic, booked, keep = watched(), [], UpdateFolder.keep_model

    def watch(folder: UpdateFolder, *args: Any) -> Any:
        booked.append(clinic.rows()[-1])
        return keep(folder, *args)

    monkeypatch.setattr(UpdateFolder, "keep_model", watch)
    updated(clinic)

    assert booked == ["commit"]


def test_only_the_newest_copies_stay_and_only_the_models_they_started_from(watched: MakeClinic) -> None:
    clinic = watched(keep=2)

    for version in range(5):
        updated(clinic, f"m{version}", version=version)

    assert outbox_names(clinic) == [
        "3-model.safetensors", "3-north.json", "3-north.safetensors",
        "4-model.safetensors", "4-north.json", "4-north.safetensors",
    ]  # fmt: skip
    assert [copy.metadata.model_version for copy in copies(clinic)] == [3, 4]


def test_copies_of_all_runs_count_together_and_empty_folders_go(watched: MakeClinic) -> None:
    clinic = watched(keep=2)
    for number, run in enumerate(["first", "second", "third"]):
        clinic.flat["run.name"] = run
        updated(clinic, f"m{number}")

    assert [path.name for path in sorted((clinic.folder / "outbox").glob("[!.]*"))] == ["second", "third"]
    assert len(copies(clinic, "third")) == 1


def test_copy_that_was_just_made_stays_whatever_the_clock_says(watched: MakeClinic) -> None:
    clinic = watched(keep=1)
    updated(clinic, "m0", version=0)
    for path in (clinic.folder / "outbox" / "run").iterdir():
        os.utime(path, (4e9, 4e9))

    updated(clinic, "m1", version=1)

    assert [copy.metadata.model_version for copy in copies(clinic)] == [1]


def test_two_updates_of_one_version_and_one_model_are_both_kept(watched: MakeClinic) -> None:
    clinic = watched(**UPDATE)

    answers = [updated(clinic, f"m{number}") for number in range(2)]

    assert {digest(copy.update) for copy in copies(clinic)} == {digest(answer.update) for answer in answers}
    assert sum("-model" in name for name in outbox_names(clinic)) == 1


def test_what_a_crash_left_is_swept_and_what_others_put_there_stays(watched: MakeClinic) -> None:
    clinic = watched()
    (folder := clinic.folder / "outbox" / "run").mkdir(parents=True)
    for name in ("7-north.safetensors", "7-model.safetensors", ".write-1f.tmp", "mine.safetensors", "notes.txt"):
        (folder / name).touch()

    updated(clinic)

    assert outbox_names(clinic) == [
        "0-model.safetensors", "0-north.json", "0-north.safetensors", "mine.safetensors", "notes.txt"
    ]  # fmt: skip


def test_nobody_else_may_read_the_copies(watched: MakeClinic) -> None:
    clinic, usual = watched(), os.umask(0)

    try:
        updated(clinic)
    finally:
        os.umask(usual)

    root = clinic.folder / "outbox"
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (root, root / "run")} == {0o700}


@pytest.mark.parametrize("settings", [{}, TWO_PHASE], ids=["immediate", "two-phase"])
@pytest.mark.parametrize("error", [OSError(28, "planted-marker"), MemoryError("planted-marker"), KeyError("x")])
def test_copy_that_cannot_be_made_costs_a_line_in_the_local_log_and_nothing_else(
    watched: MakeClinic, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(UpdateFolder, "keep_update", fail)
    clinic = watched(**settings)
    reply = clinic.train()

    if settings:
        reply = clinic.decide(RELEASE)

    assert decode_model_update(reply.content).examples == 60
    assert clinic.rows()[-1] == "commit"
    assert b"planted-marker" not in wire_bytes(reply)
    (line,) = [entry for entry in map(json.loads, clinic.log().splitlines()) if entry["event"] == "outbox-failed"]
    assert type(error).__name__ in line["error"]
    assert not clinic.slot.exists()


def test_folder_that_is_none_costs_no_answer(watched: MakeClinic) -> None:
    clinic = watched()
    (clinic.folder / "outbox").write_text("a file")

    answer = updated(clinic)

    assert answer.examples == 60
    assert "outbox-failed" in clinic.log()


def test_damaged_copy_goes_with_its_age_and_keeps_no_new_one_out(watched: MakeClinic) -> None:
    clinic = watched(keep=2)
    updated(clinic, "m0", version=0)
    (clinic.folder / "outbox" / "run" / "0-north.json").write_text("damaged")

    for version in (1, 2, 3):
        updated(clinic, f"m{version}", version=version)

    assert [copy.metadata.model_version for copy in copies(clinic)] == [2, 3]


def test_reply_is_the_same_with_and_without_an_outbox(clinic: MakeClinic, watched: MakeClinic) -> None:
    replies: list[Message] = []
    for make in (clinic, watched):
        north = make()
        replies.append(north.train(f"m{len(replies)}", batch_size=64))
    sizes = [len(wire_bytes(reply)) for reply in replies]

    assert [sorted(reply.content) for reply in replies] == [["arrays", "config", "metrics"]] * 2
    assert sizes[0] == sizes[1]
    assert dict(replies[0].content["config"]) == dict(replies[1].content["config"])


def test_metadata_hold_no_path_and_nothing_of_the_log(volume: Path) -> None:
    marker = "planted-marker"
    place = volume / marker
    clinic = Clinic(
        place, policy={"outbox": {"folder": str(place / "outbox")}, "data": {"id": f"id-{marker}"}}, class_names="kind"
    )

    updated(clinic)

    (text,) = [path.read_text() for path in (place / "outbox" / "run").glob("*.json")]
    assert marker not in text
    assert str(volume) not in text
    assert set(json.loads(text)["data"]) == {"name", "task", "shape", "class_names"}


def test_outbox_that_somebody_else_holds_costs_the_copy_and_not_the_answer(
    watched: MakeClinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_app.outbox._PATIENCE_S", 0.1, raising=False)
    clinic = watched()
    (root := clinic.folder / "outbox").mkdir(mode=0o700)
    with (root / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        release = threading.Timer(20, fcntl.flock, (file, fcntl.LOCK_UN))
        release.start()
        answer = updated(clinic)
        release.cancel()
        release.join()

    assert answer.examples == 60
    assert clinic.rows()[-1] == "commit"
    assert not list(root.rglob("*.json"))
    assert "outbox-failed" in clinic.log()
    assert "another process holds it" in clinic.log()


def test_damaged_metadata_stop_no_deletion_and_keep_the_models_of_their_version(watched: MakeClinic) -> None:
    clinic = watched(keep=2)
    updated(clinic, "m0", version=0)
    updated(clinic, "m1", version=1)
    (clinic.folder / "outbox" / "run" / "1-north.json").write_text("damaged")

    updated(clinic, "m2", version=2)

    assert outbox_names(clinic) == [
        "1-model.safetensors", "1-north.json", "1-north.safetensors",
        "2-model.safetensors", "2-north.json", "2-north.safetensors",
    ]  # fmt: skip
    assert "outbox-failed" not in clinic.log()
