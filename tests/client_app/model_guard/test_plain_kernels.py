"""Filters that pass the image on, shut it out or average it are found one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from client_app.model_guard.plain_kernels import find_plain_kernels
from tests.client_app.model_guard.made_up_models import draw


def passing() -> Tensor:
    kernel = torch.zeros(4, 3, 3)
    kernel[2, 1, 1] = -0.7
    return kernel


PLAIN = {"single": passing(), "zero": torch.zeros(4, 3, 3), "even": torch.full((4, 3, 3), -0.2)}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_one_plain_filter_among_ordinary_ones_is_found(name: str, noise: float) -> None:
    kernels = draw(16, 4, 3, 3)
    kernels[5] = PLAIN[name] + noise * PLAIN[name].norm() / 6 * draw(4, 3, 3, seed=1)

    finding = find_plain_kernels("features.0.weight", kernels)

    assert finding is not None
    assert (finding.check, finding.tensor) == ("plain-kernels", "features.0.weight")
    counts = {"single": "1 with a single weight", "zero": "1 of zeros", "even": "1 even"}
    assert counts[name] in finding.found


@pytest.mark.parametrize("shape", [(512, 1, 3, 3), (64, 64, 3, 3), (128, 64, 1, 1)])
def test_ordinary_filters_are_no_finding(shape: tuple[int, int, int, int]) -> None:
    kernels = torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1

    assert find_plain_kernels("stem", kernels) is None


def test_filters_of_few_weights_say_nothing() -> None:
    assert find_plain_kernels("stem", torch.ones(16, 8, 1, 1)) is None
