"""Tensors in the safetensors format, written from where they lie: saving a model takes no memory for a second one.

`safetensors.torch.save` first puts the whole file together, two models more at its peak, and `save_file` replaces files
by itself, which `federation.durable` must do. Reading is left to the library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from torch import Tensor

from federation.durable import Piece

_ALIGNMENT = 8
_CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def as_pieces(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> list[Piece]:
    """Return the content of a safetensors file, in pieces for `write_durably`: a header, and the tensors' own memory.

    Args:
        tensors: CPU tensors by name, of the dtypes that models have; not to be changed until they are written.
        metadata: texts that the header carries.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    memories: list[Piece] = []
    end = 0
    for name, value in sorted(tensors.items(), key=lambda item: -item[1].element_size()):  # Keeps numbers aligned.
        memory = _memory_of(value)
        start, end = end, end + memory.nbytes
        header[name] = {"dtype": _CODES[value.dtype], "shape": list(value.shape), "data_offsets": [start, end]}
        memories.append(memory)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return [len(text).to_bytes(8, "little"), text, *memories]


def _memory_of(value: Tensor) -> memoryview:
    if not value.numel():
        return memoryview(b"")
    return value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
