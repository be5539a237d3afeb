"""Model parameters as named CPU tensors, and the checks that every set of parameters passes before it is used."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from federation.errors import RefusalCode, RefusalError

Parameters = dict[str, Tensor]


def read_parameters(model: nn.Module) -> Parameters:
    """Return a CPU copy of all parameters and buffers of `model`, in the order of its state dict."""
    return {name: value.detach().to("cpu", copy=True) for name, value in model.state_dict().items()}


def write_parameters(model: nn.Module, parameters: Mapping[str, Tensor]) -> None:
    """Copy `parameters` into `model`, which must have the same names and shapes."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(parameters[name])


def subtract(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Parameters:
    """Return `left - right` per name."""
    return {name: value - right[name] for name, value in left.items()}


def is_finite(parameters: Mapping[str, Tensor]) -> bool:
    """Return whether no value is NaN or infinite.

    NaN and infinity survive every sum, so a finite sum settles it in one fast pass without a mask. A sum in float32 may
    overflow although every value is finite; the second, slower sum in float64 cannot.
    """
    return all(_finite_sum(value, value.dtype) or _finite_sum(value, torch.float64) for value in parameters.values())


def _finite_sum(value: Tensor, dtype: torch.dtype) -> bool:
    return math.isfinite(float(value.sum(dtype=dtype)))


def require_like(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Check that `found` has the names, shapes and dtypes of `expected` and only finite values.

    Raises:
        RefusalError: naming what was expected and found; checked in the order names, shapes, dtypes, values.
    """
    require_structure(found, expected)
    if not is_finite(found):
        bad = [name for name, value in found.items() if not is_finite({name: value})]
        raise RefusalError(RefusalCode.NON_FINITE, f"Expected finite values, found NaN or infinity in {bad[:5]}.")


def finite_norm(parameters: Mapping[str, Tensor]) -> float:
    """Return the L2 norm over all tensors, after one pass that also shows that every value is finite.

    A sum of squares is finite only where every value is. Where it overflows in float32 although every value is finite,
    a second pass in float64 gives the norm.

    Raises:
        RefusalError: a value is NaN or infinite.
    """
    squares = [_square(value) for value in parameters.values()]
    if math.isfinite(total := math.fsum(squares) if all(map(math.isfinite, squares)) else math.inf):
        return math.sqrt(total)
    if bad := [name for name, value in parameters.items() if not is_finite({name: value})]:
        raise RefusalError(RefusalCode.NON_FINITE, f"Expected finite values, found NaN or infinity in {bad[:5]}.")
    return math.hypot(*(float(torch.linalg.vector_norm(value, dtype=torch.float64)) for value in parameters.values()))


def _square(value: Tensor) -> float:
    flat = value.reshape(-1)
    return float(torch.dot(flat, flat))


def inner_product(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    """Return the sum over all values of the products of `left` and `right`."""
    return math.fsum(float(torch.dot(value.reshape(-1), right[name].reshape(-1))) for name, value in left.items())


def require_structure(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Check that `found` has the names, shapes and dtypes of `expected`, in that order.

    Raises:
        RefusalError: naming what was expected and found.
    """
    if list(found) != list(expected):
        missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
        raise RefusalError(
            RefusalCode.WRONG_NAMES,
            f"Expected {len(expected)} tensors, found {len(found)}; missing {missing[:5]}, not known {extra[:5]}"
            f"{'' if missing or extra else ', order differs'}.",
        )
    for name, value in found.items():
        like = expected[name]
        if value.shape != like.shape:
            raise RefusalError(
                RefusalCode.WRONG_SHAPE, f"Expected {name} of shape {tuple(like.shape)}, found {tuple(value.shape)}."
            )
        if value.dtype != like.dtype:
            raise RefusalError(RefusalCode.WRONG_DTYPE, f"Expected {name} of {like.dtype}, found {value.dtype}.")


def digest(parameters: Mapping[str, Tensor]) -> str:
    """Return the sha256 of all values, names and shapes: equal digests mean identical parameters."""
    sha = hashlib.sha256()
    for name, value in parameters.items():
        sha.update(f"{name}|{tuple(value.shape)}|{value.dtype}|".encode())
        if value.numel():
            sha.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
