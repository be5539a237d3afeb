"""What was recorded is read bit by bit, and nothing else is: an attack on other tensors would prove nothing."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from attacks.records import read_records
from federation.errors import DataError
from federation.parameters import Parameters, digest
from tests.federation.recorded_updates.made_up_records import (
    DECLARATION,
    INFO,
    make_answer,
    make_model,
    record,
)


class Explosive:
    """Says so if anybody unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('unpickled')",))


def rewrite(facts: Path, **changes: Any) -> None:
    facts.write_text(json.dumps(json.loads(facts.read_text()) | changes))


def replace_tensors(facts: Path, name: str, tensors: Parameters, key: str) -> None:
    """Put `tensors` into the file `name` and let the metadata vouch for it."""
    content = safetensors.torch.save(tensors)
    (facts.parent / name).write_bytes(content)
    rewrite(facts, **{key: hashlib.sha256(content).hexdigest()})


def test_update_and_model_are_read_bit_by_bit_in_the_order_of_the_model(tmp_path: Path) -> None:
    answer = make_answer(declaration=DECLARATION)
    record(tmp_path, answer)

    (found,) = read_records(tmp_path)

    assert list(found.update) == list(found.broadcast) == list(make_model())
    assert digest(found.update) == digest(answer.update)
    assert digest(found.broadcast) == digest(make_model())
    assert (found.metadata.hospital_id, found.metadata.data.info.classes) == ("north", INFO.classes)


def test_records_are_sorted_by_version_as_a_number_and_by_hospital(tmp_path: Path) -> None:
    for version, name in [(10, "a"), (2, "b"), (2, "a"), (2, "model")]:
        record(tmp_path, make_answer(name, version))

    found = [(item.metadata.model_version, item.metadata.hospital_id) for item in read_records(tmp_path)]

    assert found == [(2, "a"), (2, "b"), (2, "model"), (10, "a")]


def test_tensors_are_read_only_when_they_are_asked_for(tmp_path: Path) -> None:
    record(tmp_path)
    (found,) = read_records(tmp_path)
    (tmp_path / "3-north.safetensors").unlink()

    with pytest.raises(DataError, match=r"3-north\.safetensors: expected a file of tensors"):
        _ = found.update


def test_hidden_files_are_left_alone(tmp_path: Path) -> None:
    record(tmp_path)
    (tmp_path / ".write-1.tmp").touch()
    (tmp_path / ".hidden.pt").touch()

    assert len(read_records(tmp_path)) == 1


@pytest.mark.parametrize("make", [lambda folder: None, lambda folder: folder.mkdir()], ids=["absent", "empty"])
def test_folder_without_updates_says_where_they_come_from(tmp_path: Path, make: Any) -> None:
    make(folder := tmp_path / "updates")

    with pytest.raises(DataError, match=r"found none.*record\.updates=true.*\[outbox\]"):
        read_records(folder)


def test_model_alone_is_no_update(tmp_path: Path) -> None:
    facts = record(tmp_path)
    facts.unlink()
    (tmp_path / "3-north.safetensors").unlink()

    with pytest.raises(DataError, match="Expected recorded updates in"):
        read_records(tmp_path)


@pytest.mark.parametrize("name", ["0-north.pt", "a.pth", "x.pkl", "x.PICKLE", "x.bin", "x.ckpt", "u.npz", "u.npy"])
def test_file_that_could_run_code_is_refused_before_anything_is_read(tmp_path: Path, name: str) -> None:
    record(tmp_path)
    (tmp_path / name).write_bytes(pickle.dumps(Explosive()))

    with pytest.raises(DataError, match=f"{name}: expected safetensors only, found .* remove it"):
        read_records(tmp_path)


@pytest.mark.parametrize("kind", ["pickle", "torch", "npz", "nothing"])
def test_other_kind_of_file_under_the_name_of_safetensors_is_never_opened(tmp_path: Path, kind: str) -> None:
    facts = record(tmp_path)
    path = tmp_path / "3-north.safetensors"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Explosive()))
    elif kind == "torch":
        torch.save(make_model(), path)
    elif kind == "npz":
        with path.open("wb") as file:
            np.savez(file, w=np.zeros(2))
    else:
        path.write_bytes(b"")
    rewrite(facts, update_sha256=hashlib.sha256(path.read_bytes()).hexdigest())

    with pytest.raises(DataError, match="expected safetensors only, found a file of another kind"):
        _ = read_records(tmp_path)[0].update


@pytest.mark.parametrize("which", ["north", "model"])
def test_any_changed_byte_of_the_tensors_is_noticed(tmp_path: Path, which: str) -> None:
    record(tmp_path)
    path = tmp_path / f"3-{which}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    (found,) = read_records(tmp_path)

    with pytest.raises(DataError, match=f"3-{which}.safetensors: expected sha256 [0-9a-f]*, found .* copy it again"):
        _ = found.update if which == "north" else found.broadcast


def test_damaged_header_that_the_metadata_vouch_for_is_an_error_of_ours(tmp_path: Path) -> None:
    facts = record(tmp_path)
    content = (8).to_bytes(8, "little") + b"{broken}"
    (tmp_path / "3-north.safetensors").write_bytes(content)
    rewrite(facts, update_sha256=hashlib.sha256(content).hexdigest())

    with pytest.raises(DataError, match=r"3-north\.safetensors: expected safetensors, found"):
        _ = read_records(tmp_path)[0].update


def test_missing_metadata_are_named(tmp_path: Path) -> None:
    record(tmp_path).unlink()

    with pytest.raises(DataError, match=r"Expected metadata .*3-north\.json, found no file"):
        read_records(tmp_path)


def test_unknown_format_is_named(tmp_path: Path) -> None:
    rewrite(record(tmp_path), format=2)

    with pytest.raises(DataError, match="of format 1, found 2"):
        read_records(tmp_path)


def test_metadata_without_an_update_are_named(tmp_path: Path) -> None:
    record(tmp_path)
    record(tmp_path, make_answer("south"))
    (tmp_path / "3-north.safetensors").unlink()

    with pytest.raises(DataError, match=r"3-north\.json: expected the update 3-north\.safetensors beside it"):
        read_records(tmp_path)


def test_missing_model_is_named(tmp_path: Path) -> None:
    record(tmp_path)
    (tmp_path / "3-model.safetensors").unlink()

    with pytest.raises(DataError, match=r"expected the model 3-model\.safetensors beside it, found none"):
        read_records(tmp_path)


def test_model_with_other_values_is_another_model_than_the_update_started_from(tmp_path: Path) -> None:
    facts = record(tmp_path)
    replace_tensors(facts, "3-model.safetensors", make_model(9), "model_sha256")

    with pytest.raises(DataError, match=f"digest {digest(make_model())}, found {digest(make_model(9))}"):
        _ = read_records(tmp_path)[0].broadcast


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda tensors: {**tensors, "more": torch.zeros(1)}, r"not known \['more'\]"),
        (lambda tensors: dict(list(tensors.items())[1:]), "missing"),
        (lambda tensors: {name: value.flatten() for name, value in tensors.items()}, "of shape"),
        (lambda tensors: {name: value.double() for name, value in tensors.items()}, "torch.float64"),
        (lambda tensors: {name: value * torch.nan for name, value in tensors.items()}, "found NaN"),
        (lambda tensors: {name: value / 0 for name, value in tensors.items()}, "infinity"),
    ],
    ids=["more", "fewer", "shape", "dtype", "nan", "infinity"],
)
@pytest.mark.parametrize(("name", "key"), [("north", "update_sha256"), ("model", "model_sha256")])
def test_tensors_that_do_not_fit_the_network_or_are_not_finite_are_refused(
    tmp_path: Path, change: Any, expected: str, name: str, key: str
) -> None:
    facts = record(tmp_path)
    replace_tensors(facts, f"3-{name}.safetensors", change(make_model()), key)
    (found,) = read_records(tmp_path)

    with pytest.raises(DataError, match=f"3-{name}.safetensors does not hold what its metadata say: .*{expected}"):
        _ = found.update if name == "north" else found.broadcast


@pytest.mark.parametrize(
    ("model", "shape"),
    [({"name": "cnn", "hidden-units": 2}, [1, 2, 2]), ({"name": "mlp", "hidden-units": 60000}, [64, 99999, 99999])],
    ids=["too-small", "too-large"],
)
def test_network_that_cannot_be_built_is_refused(tmp_path: Path, model: dict[str, Any], shape: list[int]) -> None:
    facts = record(tmp_path)
    data = json.loads(facts.read_text())["data"] | {"shape": shape}
    rewrite(facts, model=model, data=data)

    with pytest.raises(DataError, match=r"3-north\.json: expected a network that can be built"):
        _ = read_records(tmp_path)[0].update
