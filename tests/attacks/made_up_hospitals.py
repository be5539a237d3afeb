"""A small network, a hospital with made-up images, and caches, for tests of what leaves a hospital under attack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attacks.victim import Hospital, Protection, publish_cache
from client_app.masking.synthetic import SyntheticImages
from federation.config import ModelConfig, PrivacyConfig, TrainingConfig
from federation.datasets.image_set import ImageSet
from federation.models import build_model
from federation.parameters import Parameters
from tests.attacks.made_up_worlds import make_images, make_info

INFO = make_info()


def make_network(seed: int = 0, hidden_units: int = 6) -> nn.Module:
    """Return a network with one hidden layer."""
    return build_model(ModelConfig(name="mlp", hidden_units=hidden_units), INFO, seed=seed)


def make_plan(**changes: object) -> TrainingConfig:
    """Return one step of SGD at 0.1 on all images at once, but for `changes` by the names of fields."""
    usual = TrainingConfig(optimizer="sgd", learning_rate=0.1, batch_size=1000)
    return usual.model_copy(update=changes)


def make_synthetic(
    folder: Path, count: int = 9, *, seed: int = 50, chosen: list[int] | None = None, varied: bool = False
) -> SyntheticImages:
    """Return `count` images of a fresh cache, or those at `chosen`."""
    cache = publish_cache(folder, make_images(count, seed), INFO)
    places = np.arange(count) if chosen is None else np.array(chosen)
    return SyntheticImages(cache=cache, chosen=places, varied=varied)


def make_hospital(
    *,
    images: ImageSet | None = None,
    plan: TrainingConfig | None = None,
    protection: Protection | None = None,
    synthetic: SyntheticImages | None = None,
) -> Hospital:
    """Return a hospital, by default of seven images and without protection."""
    return Hospital(
        images=make_images(7, 1) if images is None else images,
        info=INFO,
        plan=plan or make_plan(),
        protection=protection or Protection(),
        synthetic=synthetic,
    )


def make_privacy(mechanism: str, **changes: object) -> PrivacyConfig:
    """Return the table of a mechanism with a clip norm of 1."""
    return PrivacyConfig.model_validate({"mechanism": mechanism, "clip-norm": 1.0, **changes})


def tensors_of(images: ImageSet) -> tuple[Tensor, Tensor]:
    """Return pixels in [0, 1] and labels."""
    return torch.from_numpy(images.images).float() / 255, torch.from_numpy(images.labels)


def gradient_of(network: nn.Module, parts: list[tuple[float, ImageSet]]) -> Parameters:
    """Return the gradient of the sum over `parts` of weight times the sum of their images' losses."""
    total = torch.zeros(())
    for weight, images in parts:
        pixels, labels = tensors_of(images)
        total = total + weight * functional.cross_entropy(network(pixels), labels, reduction="sum")
    named = dict(network.named_parameters())
    return dict(zip(named, torch.autograd.grad(total, list(named.values())), strict=True))


def assert_close(found: Parameters, expected: Parameters, *, scale: float = 1.0, relative: float = 1e-4) -> None:
    """Check that `found` is `scale` times `expected`, up to `relative` of the largest entry of each tensor."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        wanted = scale * value
        torch.testing.assert_close(found[name], wanted, rtol=0, atol=relative * float(wanted.abs().max()) + 1e-12)


def norm_of(parameters: Parameters) -> float:
    """Return the L2 norm over all tensors."""
    return float(torch.cat([value.double().flatten() for value in parameters.values()]).norm())
