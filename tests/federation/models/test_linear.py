"""The linear model: normalized inputs, no bias, no start-up randomness."""

from __future__ import annotations

import math

import torch

from federation.models.linear import Linear


def test_model_starts_at_zero_with_one_weight_per_input_and_class() -> None:
    model = Linear((24, 7, 7), 2)

    assert {name: tuple(value.shape) for name, value in model.state_dict().items()} == {"output.weight": (2, 1176)}
    assert not model(torch.rand(3, 24, 7, 7)).any()


def test_logits_are_those_of_inputs_with_mean_zero_and_norm_one() -> None:
    model = Linear((2, 3, 3), 4)
    torch.nn.init.normal_(model.output.weight, generator=torch.Generator().manual_seed(0))
    images = torch.rand(5, 2, 3, 3, generator=torch.Generator().manual_seed(1))

    rows = images.flatten(1).double()
    rows = rows - rows.mean(dim=1, keepdim=True)
    rows = rows / rows.norm(dim=1, keepdim=True)

    torch.testing.assert_close(model(images).double(), rows @ model.output.weight.double().T, rtol=1e-4, atol=1e-5)


def test_per_image_gradient_is_bounded_whatever_the_image() -> None:
    model = Linear((2, 4, 4), 2)
    for scale in (1e-2, 1.0):
        model.zero_grad()
        image = torch.rand(1, 2, 4, 4, generator=torch.Generator().manual_seed(2)) * scale
        torch.nn.functional.cross_entropy(model(image), torch.tensor([1])).backward()

        assert float(model.output.weight.grad.norm()) <= math.sqrt(2) * (1 + 1e-3)  # type: ignore[union-attr]
