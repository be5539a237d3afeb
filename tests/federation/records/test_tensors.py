"""Tensors survive the wire bit by bit, and an array that is anything but plain numbers is refused, however hostile."""

from __future__ import annotations

import io
import struct
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from federation.errors import RefusalCode, RefusalError
from federation.records.tensors import decode_parameters, encode_parameters, payload_bytes

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]
PLAIN = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays(dtype, st.one_of(st.just(()), array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=4)))
)


def saved(array: Any) -> Array:
    """Return `array` as Flower would send it: what `numpy.save` writes."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return Array(dtype=str(array.dtype), shape=array.shape, stype="numpy.ndarray", data=stream.getvalue())


def with_header(header: bytes, values: bytes = b"") -> Array:
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values
    return Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=data)


def refusal_of(array: Array, *, copy: bool = True) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        decode_parameters(ArrayRecord({"weight": array}), copy=copy)
    return caught.value


@pytest.mark.parametrize("copy", [True, False])
@given(array=PLAIN)
def test_tensor_of_any_shape_and_dtype_survives_bit_by_bit(copy: bool, array: Any) -> None:
    sent = torch.from_numpy(array.copy())

    received = decode_parameters(encode_parameters({"weight": sent}), copy=copy)["weight"]

    assert (received.dtype, received.shape) == (sent.dtype, sent.shape)
    assert received.numpy().tobytes() == sent.numpy().tobytes()


@given(PLAIN)
def test_encoding_is_what_numpy_saves(array: Any) -> None:
    encoded = encode_parameters({"weight": torch.from_numpy(array.copy())})["weight"]

    loaded = np.load(io.BytesIO(encoded.data), allow_pickle=False)

    assert (loaded.dtype, loaded.shape, encoded.dtype) == (array.dtype, array.shape, str(array.dtype))
    assert loaded.tobytes() == array.tobytes()


@given(PLAIN)
def test_what_numpy_saves_is_decoded(array: Any) -> None:
    received = decode_parameters(ArrayRecord({"weight": saved(array)}))["weight"]

    assert received.numpy().tobytes() == array.tobytes()
    assert received.shape == array.shape


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0)[::3],
        torch.arange(48.0).reshape(1, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.ones(2, 3, requires_grad=True),
    ],
)
def test_tensor_in_another_layout_or_with_a_gradient_is_sent_by_its_values(tensor: torch.Tensor) -> None:
    received = decode_parameters(encode_parameters({"weight": tensor}))["weight"]

    assert torch.equal(received, tensor.detach())
    assert not received.requires_grad


def test_names_keep_their_order() -> None:
    sent = {name: torch.zeros(1) for name in ("z", "a", "m")}

    assert list(decode_parameters(encode_parameters(sent))) == ["z", "a", "m"]


def test_decoded_copy_can_be_changed_without_changing_what_was_received() -> None:
    record = encode_parameters({"weight": torch.ones(3)})

    decode_parameters(record)["weight"].add_(1)

    assert torch.equal(decode_parameters(record)["weight"], torch.ones(3))


def test_sender_may_change_its_tensor_after_encoding() -> None:
    tensor = torch.ones(3)
    record = encode_parameters({"weight": tensor})

    tensor.zero_()

    assert torch.equal(decode_parameters(record)["weight"], torch.ones(3))


UNWANTED = {
    "pickled objects": saved(np.array([{"a": 1}], dtype=object)),
    "booleans": saved(np.array([True])),
    "texts": saved(np.array(["a"])),
    "bytes": saved(np.array([b"a"])),
    "complex": saved(np.ones(2, dtype=np.complex64)),
    "dates": saved(np.array(["2020-01-01"], dtype="datetime64[D]")),
    "records": saved(np.zeros(2, dtype=[("a", "<f4")])),
    "big endian": saved(np.ones(3, dtype=">f4")),
    "extended precision": saved(np.ones(3, dtype=np.longdouble)),
    "fortran order": saved(np.asfortranarray(np.ones((2, 3), dtype=np.float32))),
}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("kind", UNWANTED)
def test_array_that_is_not_plain_numbers_is_refused_by_name(kind: str, copy: bool) -> None:
    error = refusal_of(UNWANTED[kind], copy=copy)

    assert error.code is RefusalCode.MALFORMED
    assert "'weight'" in error.detail


def test_other_serialization_than_numpys_is_refused() -> None:
    plain = saved(np.ones(3, dtype=np.float32))

    error = refusal_of(Array(dtype=plain.dtype, shape=plain.shape, stype="torch.pickle", data=plain.data))

    assert error.code is RefusalCode.MALFORMED


HEADERS = {
    "no closing bracket": b"{'descr': (",
    "open text": b"'''",
    "deep nesting": b"-" * 9000 + b"1",
    "brackets": b"(" * 9000,
    "python 2 integer": b"{'descr': '<f4', 'fortran_order': False, 'shape': (3L,), }\n",
    "negative side": b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }\n",
    "huge side": b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }\n" % (b"9" * 5000),
    "product overflows": b"{'descr': '<f4', 'fortran_order': False, 'shape': (0, %s, %s), }\n" % (b"9" * 18, b"9" * 18),
    "many sides": b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }\n" % (b"1, " * 2000),
    "many digits without an end": b"{'descr': '<f4', 'fortran_order': False, 'shape': (%sx), }\n" % (b"1" * 9000),
    "more values than told": b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n",
    "fewer values than told": b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n",
    "unknown number": b"{'descr': '<f1', 'fortran_order': False, 'shape': (12,), }\n",
    "extra key": b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1, }\n",
    "nothing": b"",
}


@pytest.mark.parametrize("kind", HEADERS)
def test_hostile_header_is_refused_and_never_evaluated(kind: str) -> None:
    error = refusal_of(with_header(HEADERS[kind], values=b"\0" * 12))

    assert error.code is RefusalCode.MALFORMED


@pytest.mark.parametrize("data", [b"", b"\x93NUMPY", b"\x93NUMPY\x02\x00", b"\x80\x04N."])
def test_bytes_without_a_header_are_refused(data: bytes) -> None:
    assert refusal_of(Array(dtype="float32", shape=(1,), stype="numpy.ndarray", data=data)).detail.startswith(
        "Expected"
    )


@given(data=st.data())
def test_damaged_array_is_refused_or_read_but_never_raises_anything_else(data: st.DataObject) -> None:
    plain = saved(np.arange(6, dtype=np.float32).reshape(2, 3))
    damaged = bytearray(plain.data)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    record = ArrayRecord({"w": Array(plain.dtype, plain.shape, plain.stype, bytes(damaged[: cut or len(damaged)]))})

    try:
        received = decode_parameters(record)["w"]
    except RefusalError:
        return
    assert received.numel() * received.element_size() == 24


def test_payload_is_array_bytes_plus_eight_per_number_plus_texts_and_names() -> None:
    arrays_record = encode_parameters({"a": torch.zeros(5), "b": torch.zeros(2, 2, dtype=torch.float64)})
    config = ConfigRecord({"text": "four", "whole": 3, "real": 0.5, "flag": True, "raw": b"12"})

    size = payload_bytes(RecordDict({"x": arrays_record, "y": config, "z": MetricRecord({"examples": 7})}))

    headers = 2 * 128
    names = len("text") + len("whole") + len("real") + len("flag") + len("raw") + len("examples")
    assert size == headers + 5 * 4 + 4 * 8 + names + len("four") + 8 + 8 + 8 + len(b"12") + 8


def test_payload_of_no_records_is_nothing() -> None:
    assert payload_bytes(RecordDict()) == 0


def test_views_of_received_bytes_are_equal_and_warn_of_nothing() -> None:
    sent = {"w": torch.randn(3, 4), "b": torch.arange(2)}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [decode_parameters(encode_parameters(sent), copy=False) for _ in range(2)]

    assert all(torch.equal(views[name], value) for views in found for name, value in sent.items())
