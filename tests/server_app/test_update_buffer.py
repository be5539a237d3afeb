"""Updates that wait on the disk outlive the server that holds them, whole or with an error that names the file."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from federation.accounting.events import GaussianRelease, Relation, Unit
from federation.errors import CheckpointError
from federation.parameters import Parameters, digest, finite_norm
from federation.records.declarations import Declaration
from server_app.aggregation.rule import Update
from server_app.clock import WallClock
from server_app.run_folder import RunFolder
from server_app.simulation.virtual_grid import VirtualClock
from server_app.update_buffer import DiskBuffer, MemoryBuffer, make_buffer

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


def test_update_that_waits_is_read_when_it_is_needed_and_takes_no_memory_until_then(tmp_path: Path) -> None:
    box = [tensors(4)]
    given, seen = replace(update(4), load=lambda: box[0]), weakref.ref(box[0]["weight"])
    expected = digest(box[0])

    kept = DiskBuffer(tmp_path / "buffer").hold(given, None)
    box.clear()

    assert seen() is None
    assert kept == given
    assert digest({name: kept.load()[name] for name in tensors(0)}) == expected


def test_numbers_that_are_not_there_may_be_dropped(tmp_path: Path) -> None:
    buffer = DiskBuffer(tmp_path / "buffer")
    buffer.hold(update(1), None)

    buffer.drop([1, 2, 3])
    buffer.drop([1])

    assert buffer.restore(tensors(0), consumed=[7]) == []


def damaged_at(path: Path, places: Iterable[int]) -> Iterator[bytes]:
    content = path.read_bytes()
    for place, bit in itertools.product(places, (0, 3, 7)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        yield bytes(damaged)


def require_refused(path: Path, like: Parameters) -> None:
    with pytest.raises(CheckpointError, match=rf"{path.name} holds an update .* Delete it to go on without it\."):
        DiskBuffer(path.parent).restore(like, consumed=[])


def test_any_flipped_bit_is_noticed_a_sign_as_well(tmp_path: Path) -> None:
    DiskBuffer(tmp_path).hold(update(5), DECLARATION)
    (path,) = tmp_path.iterdir()
    size = path.stat().st_size

    for content in damaged_at(path, [*range(0, size, 11), *range(size - 32, size)]):
        path.write_bytes(content)
        require_refused(path, tensors(0))


@pytest.mark.parametrize("keep", [0, 7, 50, -1])
def test_shortened_update_is_refused_and_named(tmp_path: Path, keep: int) -> None:
    DiskBuffer(tmp_path).hold(update(5), None)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:keep])

    require_refused(path, tensors(0))


@pytest.mark.parametrize(
    "like",
    [
        {"other": torch.zeros(2)},
        {"weight": torch.zeros(3, 2)},
        {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)},
        {"weight": torch.zeros(3, 2).double(), "bias": torch.zeros(2)},
        {"weight": torch.zeros(3, 2), "bias": torch.zeros(2), "more": torch.zeros(1)},
    ],
    ids=["names", "fewer", "shape", "dtype", "more"],
)
def test_update_of_another_model_is_refused_and_named(tmp_path: Path, like: Parameters) -> None:
    DiskBuffer(tmp_path).hold(update(5), None)
    (path,) = tmp_path.iterdir()

    require_refused(path, like)


def test_file_of_somebody_else_is_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "update-0000000001.safetensors"
    path.write_bytes(safetensors.torch.save(tensors(1), {"format": "pt"}))

    require_refused(path, tensors(0))


def test_update_that_is_not_whole_on_the_disk_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    buffer = DiskBuffer(tmp_path)
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        buffer.hold(update(1), None)

    assert buffer.restore(tensors(0), consumed=[]) == []


def test_memory_keeps_what_it_is_given_and_nothing_for_the_next_server() -> None:
    given, buffer = update(3), MemoryBuffer()

    held = buffer.hold(given, DECLARATION)
    buffer.drop([3])

    assert held is given
    assert buffer.restore(tensors(0), consumed=[]) == []


def test_updates_wait_on_the_disk_where_hospitals_do_not_begin_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")

    in_memory = make_buffer(VirtualClock(), folder)
    made_nothing = not folder.path.exists()
    on_disk = make_buffer(WallClock(), folder)

    assert isinstance(in_memory, MemoryBuffer)
    assert made_nothing
    assert isinstance(on_disk, DiskBuffer)
    assert folder.buffer.is_dir()
