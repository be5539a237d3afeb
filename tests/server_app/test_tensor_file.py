"""The seal of a checkpoint is part of its safetensors file, computed while the rest is written."""

from __future__ import annotations

import safetensors.torch
import torch

from server_app.tensor_file import SEAL, sealed_pieces


def test_seal_is_asked_for_last_and_lies_at_the_end() -> None:
    asked: list[int] = []
    tensors = {"flag": torch.ones(3, dtype=torch.bool), "w": torch.randn(5)}

    def seal() -> bytes:
        asked.append(len(taken))
        return bytes(range(32))

    taken: list[bytes] = []
    for piece in sealed_pieces(tensors, {"a": "b"}, seal):
        taken.append(bytes(piece))  # noqa: PERF401 - the seal counts what was taken before it.

    found = safetensors.torch.load(b"".join(taken))
    assert asked == [len(taken) - 1]
    assert bytes(found.pop(SEAL).numpy()) == bytes(range(32)) == taken[-1]
    assert all(torch.equal(found[name], value) for name, value in tensors.items())
