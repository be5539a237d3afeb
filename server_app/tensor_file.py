"""Checkpoint files: tensors in the safetensors format with 32 bytes at the end that show whether they are whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from federation.durable import Piece
from federation.tensor_file import as_pieces

SEAL = "server-checkpoint/seal"
"""Name of the last tensor of a sealed file."""

_SEAL_BYTES = 32


def sealed_pieces(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str], seal: Callable[[], bytes]
) -> Iterator[Piece]:
    """Yield the content of a safetensors file as `as_pieces` does, and at its end 32 bytes under the name `SEAL`.

    Args:
        tensors: as for `as_pieces`; none may be named `SEAL`.
        metadata: texts that the header carries.
        seal: returns the 32 bytes; asked once everything else has been taken, so it may be computed meanwhile.
    """
    *pieces, _ = as_pieces({**tensors, SEAL: torch.zeros(_SEAL_BYTES, dtype=torch.uint8)}, metadata)
    yield from pieces
    yield seal()
