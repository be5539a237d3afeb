"""Updates that wait on the disk outlive the server that holds them, whole or with an error that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from federation.accounting.events import GaussianRelease, Relation, Unit
from federation.errors import CheckpointError
from federation.parameters import Parameters, digest, finite_norm
from federation.records.declarations import Declaration
from server_app.aggregation.rule import Update
from server_app.update_buffer import DiskBuffer

DECLARATION = Declaration(
    mechanism="update-gaussian",
    relation=Relation.ZERO_OUT,
    unit=Unit.UPDATE,
    clip_norm=1.0,
    event=GaussianRelease(noise_multiplier=24.22),
    delta=1e-5,
    account="linear",
    spent=0.2,
    cap=8.0,
    releases=1,
)


def tensors(seed: int) -> Parameters:
    generator = torch.Generator().manual_seed(seed)
    return {"weight": torch.randn(3, 2, generator=generator), "bias": torch.randn(2, generator=generator)}


def update(number: int) -> Update:
    values = tensors(number)
    norm = finite_norm(values)
    return Update(
        number=number, hospital_id=f"h{number}", base_version=3, examples=7, norm=norm, load=lambda: values
    )  # fmt: skip


def test_update_that_is_held_is_there_for_the_next_server(tmp_path: Path) -> None:
    first = DiskBuffer(tmp_path / "buffer")
    for number in (12, 2, 9):
        first.hold(update(number), DECLARATION if number == 9 else None)

    kept = DiskBuffer(tmp_path / "buffer").restore(tensors(0), consumed=[])

    assert [item.number for item, _ in kept] == [2, 9, 12]
    assert [declaration for _, declaration in kept] == [None, DECLARATION, None]
    for found, _ in kept:
        assert found == update(found.number)
        assert digest(dict(sorted(found.load().items()))) == digest(dict(sorted(tensors(found.number).items())))


def test_what_a_durable_version_contains_is_not_given_back(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path / "buffer")
    for number in (1, 2, 3):
        buffer.hold(update(number), None)
    buffer.drop([1])

    kept = DiskBuffer(tmp_path / "buffer").restore(tensors(0), consumed=[3])

    assert [item.number for item, _ in kept] == [2]
    assert len(list((tmp_path / "buffer").iterdir())) == 1


@pytest.mark.parametrize("harm", ["truncated", "changed", "foreign"])
def test_damaged_update_is_refused_and_named(tmp_path: Path, harm: str) -> None:
    DiskBuffer(tmp_path / "buffer").hold(update(5), None)
    (path,) = (tmp_path / "buffer").iterdir()
    content = bytearray(path.read_bytes())
    if harm == "changed":
        content[-1] ^= 0x40
    path.write_bytes(bytes(content[:50] if harm == "truncated" else content))
    like = {"other": torch.zeros(2)} if harm == "foreign" else tensors(0)

    with pytest.raises(CheckpointError, match=f"{path.name} holds an update that waits, and cannot be used"):
        DiskBuffer(tmp_path / "buffer").restore(like, consumed=[])
