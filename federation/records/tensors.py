"""Model parameters to and from Flower arrays, copying each byte once, and the size of what travels."""

from __future__ import annotations

import functools
import io
import re
import warnings
from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.lib import format as npy

from federation.errors import RefusalCode, RefusalError
from federation.parameters import Parameters

_NPY = "numpy.ndarray"
# The header that NumPy writes for an array of plain little-endian numbers in C order. NumPy's own reader evaluates the
# header as Python source and fails on hostile ones in more ways than anybody can list.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<|][fiu][1248])', 'fortran_order': False, "
    rb"'shape': \(((?:\d{1,18}, ?)*(?:\d{1,18})?)\), \} *\n",
    re.DOTALL,
)

EncodedParameters = ArrayRecord


def encode_parameters(parameters: Mapping[str, torch.Tensor]) -> EncodedParameters:
    """Return `parameters` as a record; encode a broadcast once and send the record to all."""
    return ArrayRecord({name: _encode_tensor(value) for name, value in parameters.items()})


def decode_parameters(record: EncodedParameters, *, copy: bool = True) -> Parameters:
    """Return the tensors of `record`.

    Args:
        record: what was received.
        copy: False leaves the tensors as views of the received bytes, which then must only be read.

    Raises:
        RefusalError: an array is not a plain NumPy array of numbers.
    """
    return {name: _decode_tensor(name, array, copy=copy) for name, array in record.items()}


def payload_bytes(content: RecordDict) -> int:
    """Return the size of `content` in bytes: array data plus eight bytes per number and the length of every text.

    The same in every engine, and within a percent of what Flower sends for models of any interesting size.
    """
    total = 0
    for record in content.values():
        if isinstance(record, ArrayRecord):
            total += sum(len(array.data) for array in record.values())
        else:
            total += sum(len(key) + _scalar_bytes(value) for key, value in record.items())
    return total


def _scalar_bytes(value: object) -> int:
    if isinstance(value, list | tuple):
        return sum(_scalar_bytes(item) for item in value)
    return len(value) if isinstance(value, str | bytes) else 8


def _encode_tensor(value: torch.Tensor) -> Array:
    array = value.detach().contiguous().numpy()
    data = b"".join((_header(array.dtype.str, array.shape), array.reshape(-1).view(np.uint8).data))
    return Array(dtype=str(array.dtype), shape=tuple(array.shape), stype=_NPY, data=data)


@functools.lru_cache(maxsize=4096)
def _header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return NumPy's header; making one takes longer than copying a small tensor, and shapes come again every round."""
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    return header.getvalue()


def _decode_tensor(name: str, array: Array, *, copy: bool) -> torch.Tensor:
    """Return the tensor in `array`; parsing the npy header here copies its bytes once instead of three times."""
    header = _HEADER.match(array.data) if array.stype == _NPY else None
    if header is None:
        raise RefusalError(RefusalCode.MALFORMED, f"Expected {name!r} as a plain array of numbers, found another.")
    try:
        shape = tuple(int(part) for part in header[2].split(b",") if part.strip())
        values = np.frombuffer(array.data, dtype=header[1].decode(), offset=header.end()).reshape(shape)
        return torch.from_numpy(values.copy() if copy else values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise RefusalError(RefusalCode.MALFORMED, f"Array {name!r} cannot be read: {error}.") from None


def _take_the_warning() -> None:
    """Let torch say now, unheard, what it says once per process of a tensor over bytes that must not be written.

    Filtering it at every tensor takes longer than reading a small one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(np.frombuffer(b"\0", dtype=np.uint8))


_take_the_warning()
