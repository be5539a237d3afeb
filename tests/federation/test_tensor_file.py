"""Files are read by the safetensors library, so what is written must be what it would have written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors import safe_open

from federation.durable import write_durably
from federation.tensor_file import as_pieces

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
]  # fmt: skip


def content(tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> bytes:
    return b"".join(as_pieces(tensors, metadata))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (5, 3, 2)], ids=str)
def test_library_reads_every_dtype_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)

    found = safetensors.torch.load(content({"w": value}))["w"]

    assert found.dtype == dtype
    assert torch.equal(found, value)


def test_numbers_of_several_sizes_lie_where_their_size_divides_the_offset(tmp_path: Path) -> None:
    tensors = {
        "odd": torch.ones(3, dtype=torch.uint8),
        "long": torch.arange(5),
        "half": torch.ones(3, dtype=torch.float16),
        "float": torch.randn(7),
    }
    write_durably(tmp_path / "w.safetensors", as_pieces(tensors))

    found = safetensors.torch.load_file(tmp_path / "w.safetensors")

    assert all(torch.equal(found[name], value) for name, value in tensors.items())
    starts = {name: entry["data_offsets"][0] for name, entry in json.loads(bytes(as_pieces(tensors)[1])).items()}
    assert all(starts[name] % value.element_size() == 0 for name, value in tensors.items())


def test_header_carries_the_metadata(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_durably(path, as_pieces({"w": torch.zeros(2)}, {"facts": '{"name": "Müller"}'}))

    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"facts": '{"name": "Müller"}'}


def test_header_ends_where_the_largest_number_may_start() -> None:
    pieces = as_pieces({"w": torch.zeros(1, dtype=torch.float64)}, {"text": "x" * 3})

    assert sum(len(piece) for piece in pieces[:-1]) % 8 == 0


def test_tensor_without_values_and_without_strides_is_written() -> None:
    value = torch.zeros(1).expand(0)

    assert safetensors.torch.load(content({"w": value}))["w"].shape == (0,)


def test_transposed_tensor_is_written_in_the_order_of_its_numbers() -> None:
    value = torch.arange(6.0).reshape(2, 3).T

    assert torch.equal(safetensors.torch.load(content({"w": value}))["w"], value)


def test_pieces_are_the_memory_of_the_tensors_and_no_copy() -> None:
    value = torch.zeros(4)
    pieces = as_pieces({"w": value})

    value[0] = 1.0

    assert safetensors.torch.load(b"".join(pieces))["w"][0] == 1.0
