"""A folder of recorded updates holds each update once, under a name that nothing else can take."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch

from federation.durable import write_durably
from federation.parameters import digest
from federation.recorded_updates.folder import UpdateFolder
from federation.recorded_updates.metadata import read_metadata
from federation.records.declarations import decode_declaration
from tests.federation.recorded_updates.made_up_records import (
    DECLARATION,
    ORIGIN,
    make_answer,
    make_model,
    names_in,
    record,
)


def test_update_lies_beside_its_model_and_its_metadata(tmp_path: Path) -> None:
    answer = make_answer(declaration=DECLARATION)

    facts = record(tmp_path / "updates", answer)

    folder = facts.parent
    assert names_in(folder) == ["3-model.safetensors", "3-north.json", "3-north.safetensors"]
    update = safetensors.torch.load_file(folder / "3-north.safetensors")
    model = safetensors.torch.load_file(folder / "3-model.safetensors")
    assert all(torch.equal(update[name], value) for name, value in answer.update.items())
    assert all(torch.equal(model[name], value) for name, value in make_model().items())


def test_metadata_say_what_is_known_and_how_the_files_can_be_told(tmp_path: Path) -> None:
    answer = make_answer(declaration=DECLARATION)

    found = read_metadata(record(tmp_path, answer))

    assert (found.run, found.hospital_id, found.model_version, found.examples) == ("run", "north", 3, 60)
    assert (found.model, found.data, found.training) == (ORIGIN.model, ORIGIN.data, ORIGIN.training)
    assert decode_declaration(found.declaration) == DECLARATION
    assert found.model_file == "3-model.safetensors"
    assert found.update_sha256 == hashlib.sha256((tmp_path / "3-north.safetensors").read_bytes()).hexdigest()
    assert found.model_sha256 == hashlib.sha256((tmp_path / "3-model.safetensors").read_bytes()).hexdigest()
    assert found.model_digest == digest(make_model())


def test_unprotected_update_declares_nothing(tmp_path: Path) -> None:
    assert read_metadata(record(tmp_path)).declaration == {}


def test_metadata_hold_the_stated_facts_and_no_other(tmp_path: Path) -> None:
    content = json.loads(record(tmp_path, make_answer(declaration=DECLARATION)).read_text())

    assert set(content) == {
        "format", "run", "hospital_id", "model_version", "examples", "declaration", "model", "data", "training",
        "model_file", "update_sha256", "model_sha256", "model_digest",
    }  # fmt: skip
    assert set(content["data"]) == {"name", "task", "shape", "class_names"}
    assert content["data"]["shape"] == [1, 4, 5]
    assert set(content["model"]) == {"name", "hidden-units"}


def test_same_update_again_changes_nothing(tmp_path: Path) -> None:
    facts = record(tmp_path)
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in tmp_path.iterdir()}

    assert record(tmp_path) == facts

    assert {path.name: (path.read_bytes(), path.stat().st_ino) for path in tmp_path.iterdir()} == before


def test_other_update_of_the_same_version_gets_a_name_of_its_own(tmp_path: Path) -> None:
    first = record(tmp_path)
    content = first.read_bytes()

    second = record(tmp_path, make_answer(seed=2))
    third = record(tmp_path, make_answer(seed=3))

    assert [path.name for path in (second, third)] == ["3-north~2.json", "3-north~3.json"]
    assert first.read_bytes() == content
    assert record(tmp_path, make_answer(seed=2)) == second


def test_same_update_of_another_model_is_another_record(tmp_path: Path) -> None:
    record(tmp_path)

    second = read_metadata(record(tmp_path, model_seed=5))

    assert second.model_file == "3-model~2.safetensors"
    assert second.model_digest == digest(make_model(5))
    assert "3-north~2.json" in names_in(tmp_path)


def test_hospital_that_calls_itself_model_takes_no_file_of_a_model(tmp_path: Path) -> None:
    facts = record(tmp_path, make_answer("model"))

    assert names_in(tmp_path) == ["3-model.safetensors", "3-~model.json", "3-~model.safetensors"]
    assert read_metadata(facts).model_digest == digest(make_model())


def test_hospitals_whose_ids_end_like_files_keep_apart(tmp_path: Path) -> None:
    ids = ["a", "a.json", "a.safetensors", "a-model"]

    facts = [record(tmp_path, make_answer(name, seed=index)) for index, name in enumerate(ids)]

    assert [read_metadata(path).hospital_id for path in facts] == ids
    assert len(names_in(tmp_path)) == 2 * len(ids) + 1


def test_update_that_a_crash_left_without_metadata_is_written_over(tmp_path: Path) -> None:
    record(tmp_path).unlink()
    answer = make_answer(seed=2)

    record(tmp_path, answer)

    assert names_in(tmp_path) == ["3-model.safetensors", "3-north.json", "3-north.safetensors"]
    found = safetensors.torch.load_file(tmp_path / "3-north.safetensors")
    assert all(torch.equal(found[name], value) for name, value in answer.update.items())


def test_metadata_are_written_after_everything_they_speak_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def watch(path: Path, *args: object, **kwargs: object) -> None:
        written.append(path.name)
        write_durably(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("federation.recorded_updates.folder.write_durably", watch)
    record(tmp_path)

    assert written == ["3-model.safetensors", "3-north.safetensors", "3-north.json"]


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b'{"update_sha256": 1}'])
def test_damaged_metadata_are_left_for_whoever_looks_into_them(tmp_path: Path, content: bytes) -> None:
    record(tmp_path).write_bytes(content)

    record(tmp_path, make_answer(seed=2))

    assert (tmp_path / "3-north.json").read_bytes() == content
    assert "3-north~2.json" in names_in(tmp_path)


def test_model_that_was_written_last_is_found_again(tmp_path: Path) -> None:
    folder = UpdateFolder(tmp_path)
    folder.keep_model(3, make_model())
    newest = folder.keep_model(3, make_model(5))

    assert UpdateFolder(tmp_path).find_model(3, make_model()) == newest


def test_model_of_another_version_or_network_is_not_found(tmp_path: Path) -> None:
    folder = UpdateFolder(tmp_path)
    folder.keep_model(3, make_model())
    (tmp_path / "5-model.safetensors").write_bytes(b"damaged")

    assert folder.find_model(4, make_model()) is None
    assert folder.find_model(3, ["other"]) is None
    assert folder.find_model(5, make_model()) is None


@pytest.mark.parametrize(("secret", "modes"), [(True, (0o600, 0o700)), (False, (0o644, 0o755))])
def test_secret_folder_is_closed_to_others(tmp_path: Path, secret: bool, modes: tuple[int, int]) -> None:
    folder, usual = UpdateFolder(tmp_path / "updates", secret=secret), os.umask(0o022)

    try:
        folder.keep_update(make_answer(), ORIGIN, folder.keep_model(3, make_model()))
    finally:
        os.umask(usual)

    assert {path.stat().st_mode & 0o777 for path in folder.path.iterdir()} == {modes[0]}
    assert folder.path.stat().st_mode & 0o777 == modes[1]
