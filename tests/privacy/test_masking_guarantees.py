"""What masking promises, restated: steps as its schedule states them, and no change to what a mechanism promises."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from aegis_cache.store.cache import open_cache
from client_app.dp_sgd import train_with_dp_sgd
from client_app.masking.preparation import Masking
from client_app.masking.synthetic import SyntheticImages
from client_app.masking.training import RealImages, train_masked
from federation.config import PrivacyConfig, TrainingConfig
from federation.datasets.image_set import ImageSet
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.gradients import gradients_of, pixels_of
from tests.client_app.dp_sgd.streams import CPU, Linear, Silent, describe, flat
from tests.client_app.masking.made_up_caches import make_cache

MODES: list[Any] = ["sequential", "lambda", "joint", "interleaved"]
_MEMORY = Path("/dev/shm")
_FLOAT_SLACK = 1 + 1e-5


@contextmanager
def made_up_masking(mode: Any, count: int, *, micro_batch: int = 64, seed: int = 0) -> Iterator[Masking]:
    """Give masking by `count` random images of three classes, while the block lasts."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        names = tuple(map(str, range(3)))
        make_cache(Path(folder) / "cache", images=count, class_names=names, shape=(1, 6, 6), seed=seed)
        yield Masking(
            mode=mode,
            synthetic=SyntheticImages(cache=open_cache(Path(folder) / "cache"), chosen=np.arange(count)),
            micro_batch=micro_batch,
            batch_statistics="refuse",
        )


def weights_of(mode: str, batches: list[int], count: int) -> list[tuple[int | None, range, float, float]]:
    """Return the steps of an epoch: mini-batch, synthetic images, and what each real and synthetic image weighs."""
    every, none, total = range(count), range(0), sum(batches) + count
    if mode == "joint":
        return [(number, every, 1 / (size + count), 1 / (size + count)) for number, size in enumerate(batches)]
    if mode == "interleaved":
        parts = [range(count * k // len(batches), count * (k + 1) // len(batches)) for k in range(len(batches))]
        sizes = [size + len(part) for size, part in zip(batches, parts, strict=True)]
        return [(k, part, 1 / size, 1 / size) for k, (part, size) in enumerate(zip(parts, sizes, strict=True))]
    if mode == "lambda":
        weight = len(batches) / total
        return [*((k, none, weight, 0.0) for k in range(len(batches))), (None, every, 0.0, weight)]
    return [*((k, none, 1 / size, 0.0) for k, size in enumerate(batches)), (None, every, 0.0, 1 / count)]


def descend(model: Linear, real: ImageSet, masking: Masking, *, batch_size: int, seed: int) -> None:
    """Move `model` by one epoch of descent at rate 1, each step of which weighs gradients taken image by image."""
    generator = torch.Generator().manual_seed(seed)
    batches = torch.randperm(len(real), generator=generator).split(batch_size)
    order = torch.randperm(masking.size, generator=generator).numpy()
    pixels, labels = pixels_of(real), torch.from_numpy(real.labels)
    for number, part, own, other in weights_of(masking.mode, [len(batch) for batch in batches], masking.size):
        gradient = torch.zeros(len(flat(model)), dtype=torch.float64)
        if number is not None:
            gradient += own * gradients_of(model, pixels[batches[number]], labels[batches[number]]).double().sum(0)
        if len(part):
            shown, classes = masking.synthetic.take(order[part.start : part.stop], CPU)
            gradient += other * gradients_of(model, shown, classes).double().sum(0)
        with torch.no_grad():
            moved = flat(model).double() - gradient
            model.output.weight.copy_(moved[:108].view(3, 36))
            model.output.bias.copy_(moved[108:])


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=20, deadline=None)
@example(real=8, batch_size=3, count=5, micro_batch=4, seed=0)
@given(
    real=st.integers(1, 12),
    batch_size=st.integers(1, 14),
    count=st.integers(1, 15),
    micro_batch=st.integers(1, 30),
    seed=st.integers(0, 2**20),
)
def test_every_step_is_the_weighted_sum_of_losses_that_the_mode_states_whatever_fits_into_memory(
    mode: str, real: int, batch_size: int, count: int, micro_batch: int, seed: int
) -> None:
    images = make_images(real, seed=seed)
    found, expected = Linear(), Linear()
    shown: list[int] = []

    def losses_of(pixels: Tensor, labels: Tensor) -> Tensor:
        shown.append(len(pixels))
        return functional.cross_entropy(found(pixels), labels, reduction="none")

    with made_up_masking(mode, count, micro_batch=micro_batch, seed=seed) as masking:
        train_masked(
            found,
            RealImages(
                pixels=torch.from_numpy(images.images), labels=torch.from_numpy(images.labels), augmentation="none"
            ),
            losses_of,
            torch.optim.SGD(found.parameters(), lr=1.0),
            masking,
            epochs=1,
            batch_size=batch_size,
            generator=torch.Generator().manual_seed(seed),
        )
        descend(expected, images, masking, batch_size=batch_size, seed=seed)

    assert max(shown) <= max(micro_batch, 2)  # an image alone is shown beside a copy without weight
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-4, atol=1e-5)


def step_privately(images: ImageSet, masking: Masking | None, *, scale: float, **privacy: Any) -> tuple[Tensor, float]:
    """Return how one step that samples everybody moves a model, by how much noise was asked for beside it."""
    model, noise = Linear(), Silent()
    with torch.no_grad():
        model.output.weight.mul_(scale)
    before = flat(model).double()
    event = train_with_dp_sgd(
        model,
        images,
        describe(images),
        TrainingConfig(optimizer="sgd", learning_rate=1.0, batch_size=6),
        PrivacyConfig(mechanism="dp-sgd", **privacy),
        noise_multiplier=1.5,
        noise=noise,
        generator=torch.Generator().manual_seed(0),
        device=CPU,
        masking=masking,
    )
    assert event.steps == 1
    (stddev,) = noise.stddevs
    return before - flat(model).double(), stddev


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(["joint", "interleaved"]),
    seed=st.integers(0, 2**20),
    removed=st.integers(0, 7),
    bright=st.booleans(),
    clip_norm=st.floats(0.01, 20),
    scale=st.sampled_from([0.0, 1.0, 30.0]),
    grad_sample=st.sampled_from(["hooks", "ghost"]),
    count=st.integers(1, 12),
)
def test_one_image_more_moves_a_masked_step_by_its_share_of_what_it_moves_without_masking(
    mode: str, seed: int, removed: int, bright: bool, clip_norm: float, scale: float, grad_sample: str, count: int
) -> None:
    """Six images are expected, whoever is there: the share is 6 / (6 + M), and the noise is multiplied by it, too."""
    images = make_images(8, seed=seed)
    if bright:
        images.images[removed] = 255
    neighbours = (images, images.take(np.delete(np.arange(8), removed)))
    privacy: dict[str, Any] = {"clip_norm": clip_norm, "grad_sample": grad_sample, "scale": scale}

    plain = [step_privately(some, None, **privacy) for some in neighbours]
    with made_up_masking(mode, count, micro_batch=5, seed=seed) as masking:
        masked = [step_privately(some, masking, **privacy) for some in neighbours]

    share, resolution = 6 / (6 + count), 4e-6 * max(scale, 1.0)  # parameters are float32
    moved, moved_without = (found[0][0] - found[1][0] for found in (masked, plain))
    torch.testing.assert_close(moved, share * moved_without, rtol=1e-4, atol=resolution)
    assert float(moved.norm()) <= share * clip_norm / 6 * _FLOAT_SLACK + 12 * resolution
    assert {stddev for _, stddev in masked} == {1.5 * clip_norm}


@pytest.mark.parametrize("grad_sample", ["hooks", "ghost"])
@pytest.mark.parametrize("mode", ["sequential", "lambda"])
def test_step_on_synthetic_images_alone_looks_at_no_private_one(mode: str, grad_sample: str) -> None:
    """What it adds is computed from parameters that were paid for: from equal ones the same, whatever the images."""
    privacy: dict[str, Any] = {"clip_norm": 1e-9, "grad_sample": grad_sample, "scale": 1.0}

    with made_up_masking(mode, 9) as masking:
        moved = [step_privately(make_images(8, seed=seed), masking, **privacy)[0] for seed in (1, 2)]

    torch.testing.assert_close(moved[1], moved[0], rtol=0, atol=1e-6)
    assert float(moved[0].norm()) > 0.05
