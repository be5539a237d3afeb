"""What is asked of a generator: checked, and written out one entry per image."""

from __future__ import annotations

import torch
from torch import Tensor

from federation.errors import GenerationError


def expand_request(labels: Tensor, n: int, class_names: tuple[str, ...]) -> Tensor:
    """Return the class of every image to make: each of `labels` `n` times in a row, int64, shape (L * n,).

    Args:
        labels: int64 class indices, shape (L,), L >= 1.
        n: images per entry, at least 1.
        class_names: the classes the generator knows, in the order of the labels.

    Raises:
        GenerationError: a label names no class, nothing is asked for, or shape or type is another.
    """
    if labels.dtype != torch.int64 or labels.ndim != 1 or len(labels) == 0 or n < 1:
        raise GenerationError(
            f"Expected int64 labels of shape (L,), L >= 1, and n >= 1, found {labels.dtype} of shape "
            f"{tuple(labels.shape)} and n={n}."
        )
    strangers = sorted({int(label) for label in labels if not 0 <= label < len(class_names)})
    if strangers:
        raise GenerationError(
            f"Expected labels from 0 to {len(class_names) - 1}, the classes {list(class_names)}, found {strangers}."
        )
    return labels.repeat_interleave(n)
