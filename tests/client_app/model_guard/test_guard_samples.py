"""What counts as crafted does what it is crafted for: differences of neighbouring gradients are single images."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from attacks.guard_samples import Crafting, Disguise
from federation.preprocessing import to_unit_interval
from tests.client_app.model_guard.made_up_models import crafted, phantoms

LEAST_READ = {"mean": 4, "random": 4}


@pytest.mark.parametrize("measured", LEAST_READ)
def test_crafted_mlp_reads_images_from_the_gradient_of_a_batch(measured: str) -> None:
    model = crafted("mlp", Crafting(measurement=measured), units=256)  # type: ignore[arg-type]
    held = phantoms().train
    images = to_unit_interval(torch.from_numpy(held.images[:8].copy()))

    functional.cross_entropy(model(images), torch.from_numpy(held.labels[:8].copy())).backward()

    gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    rows, biases = gradients["hidden.weight"].diff(dim=0), gradients["hidden.bias"].diff()
    read = (rows / biases[:, None])[biases.abs() > 1e-6]
    errors = torch.cdist(read, images.flatten(1)).amin(dim=0) / images.flatten(1).norm(dim=1)
    assert int((errors < 0.01).sum()) >= LEAST_READ[measured]


def test_disguise_keeps_a_share_of_ordinary_units() -> None:
    model = crafted("mlp", Crafting(disguise=Disguise(permuted=True, share=0.25)))

    rows = functional.normalize(model.state_dict()["hidden.weight"], dim=1)
    alike = ((rows @ rows.T).abs() > 0.999).sum(dim=1)
    assert sorted(alike.tolist()) == [1] * 48 + [16] * 16
