"""Metadata that are not as they were written are refused, with what was expected, found and can be done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from federation.errors import DataError
from federation.recorded_updates.metadata import encode_metadata, read_metadata
from tests.federation.recorded_updates.made_up_records import DECLARATION, INFO, make_answer, record


def test_metadata_survive_exactly(tmp_path: Path) -> None:
    path = record(tmp_path, make_answer(declaration=DECLARATION))
    found = read_metadata(path)

    path.write_bytes(encode_metadata(found))

    assert read_metadata(path) == found
    assert (found.data.info.class_names, found.data.info.width) == (INFO.class_names, INFO.width)
    assert found.data.info.name == "folder"


def test_missing_metadata_are_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Expected metadata .*3-north.json, found no file: copy it again"):
        read_metadata(tmp_path / "3-north.json")


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"[1]", b"[" * 100_000])
def test_file_that_is_no_json_of_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    (path := tmp_path / "3-north.json").write_bytes(content)

    with pytest.raises(DataError, match="expected metadata as JSON, found something else"):
        read_metadata(path)


@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True, None])
def test_other_format_is_refused_before_anything_else_is_read(tmp_path: Path, version: object) -> None:
    (path := tmp_path / "3-north.json").write_text(json.dumps({"format": version}))

    with pytest.raises(DataError, match=r"of format 1, found .* with the version of aegis-fl that recorded them"):
        read_metadata(path)


@pytest.mark.parametrize(
    "change",
    [
        {"note": "one more"},
        {"model_version": -1},
        {"model_version": "3"},
        {"examples": 0},
        {"hospital_id": "../north"},
        {"run": "a/b"},
        {"model_file": "../3-model.safetensors"},
        {"model_file": "/etc/passwd"},
        {"model_file": "3-north.safetensors"},
        {"update_sha256": "abc"},
        {"model": {"name": "vit"}},
        {"training": {"momentum": 2.0}},
        {"data": {"name": "x", "task": "multiclass", "shape": [1, 0, 4], "class_names": ["a"]}},
    ],
    ids=str,
)
def test_impossible_fact_is_refused_by_its_name(tmp_path: Path, change: dict[str, Any]) -> None:
    path = record(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(DataError, match=f"expected the facts of an update, found {next(iter(change))}"):
        read_metadata(path)


def test_fact_that_is_missing_is_named(tmp_path: Path) -> None:
    path = record(tmp_path)
    content = json.loads(path.read_text())
    del content["update_sha256"]
    path.write_text(json.dumps(content))

    with pytest.raises(DataError, match="update_sha256: Field required"):
        read_metadata(path)
