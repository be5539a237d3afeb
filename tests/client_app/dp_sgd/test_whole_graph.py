"""Networks that take in more than images have layers beside the way from images to loss: these are clipped too."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from client_app.dp_sgd.batches import Batch
from client_app.dp_sgd.clipping import make_clipping_optimizer
from client_app.dp_sgd.gradient_hooks import hooks_on
from client_app.dp_sgd.separability import require_separable_losses
from federation.errors import SiteError
from tests.client_app.dp_sgd.gradients import clipped_sum
from tests.client_app.dp_sgd.streams import Seeded, Silent, flat

CLIP_NORM = 0.7


class Conditioned(nn.Module):
    """Adds what a class and a scale say to what the pixels say."""

    def __init__(self) -> None:
        super().__init__()
        self.pixels = nn.Linear(9, 4)
        self.classes = nn.Embedding(3, 4)
        self.scale = nn.Linear(1, 4)

    def forward(self, batch: Batch) -> Tensor:
        scales = batch.labels[:, None].float() / 2
        found: Tensor = self.pixels(batch.images) + self.classes(batch.labels) * self.scale(scales).tanh()
        return found

    def losses(self, batch: Batch) -> Tensor:
        return self(batch).square().sum(dim=1)


def make(*, asks: bool) -> tuple[Conditioned, Batch]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        images, model = torch.randn(6, 9), Conditioned()
    return model, Batch(images=images.requires_grad_(asks), labels=torch.arange(6) % 3)


def step(model: Conditioned, *parts: Batch, mode: str = "hooks", noise: Any = None) -> Tensor:
    """Return the sum of gradients by which one step of SGD at rate 1 moved `model`."""
    before = flat(model)
    with hooks_on(model, mode) as hooks:
        optimizer = make_clipping_optimizer(
            hooks,
            torch.optim.SGD(model.parameters(), lr=1.0),
            clip_norm=CLIP_NORM,
            noise_multiplier=2.0,
            noise=noise or Silent(),
            expected_units=4,
        )
        for number, part in enumerate(parts, start=1):
            optimizer.signal_skip_step(number < len(parts))
            optimizer.add_part(part, model.losses)
    return (before - flat(model)) * 4


def rows_of(model: Conditioned, batch: Batch) -> Tensor:
    """Return each image's gradient as a row, by autograd on one image at a time."""
    rows = []
    for image, label in zip(batch.images.split(1), batch.labels.split(1), strict=True):
        loss = model.losses(Batch(images=image, labels=label)).sum()
        rows.append(torch.cat([slope.flatten() for slope in torch.autograd.grad(loss, list(model.parameters()))]))
    return torch.stack(rows)


def test_step_through_the_whole_graph_sums_the_clipped_gradients_of_all_layers_and_nothing_else() -> None:
    model, batch = make(asks=False)
    expected = clipped_sum(rows_of(model, batch), CLIP_NORM)
    parts = [Batch(images=batch.images[some], labels=batch.labels[some]) for some in (slice(4), slice(4, 6))]

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        moved = step(model, *parts)

    assert warned == []
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-5)


def test_images_of_one_unit_are_averaged_before_they_are_clipped() -> None:
    model, batch = make(asks=False)
    rows = rows_of(model, batch)
    expected = clipped_sum(torch.stack([rows[:2].mean(dim=0), rows[2:].mean(dim=0)]), CLIP_NORM)

    moved = step(model, Batch(images=batch.images, labels=batch.labels, sizes=torch.tensor([2, 4])))

    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-5)


def test_noise_falls_on_layers_beside_the_way_as_on_those_along_it() -> None:
    model, batch = make(asks=False)
    quiet = step(model, batch)
    model, _ = make(asks=False)

    loud = step(model, batch, noise=Seeded(3))

    drawn = torch.randn(len(quiet), generator=torch.Generator().manual_seed(3)) * 2.0 * CLIP_NORM
    torch.testing.assert_close(loud - quiet, drawn, rtol=1e-4, atol=1e-4)


def test_going_only_towards_the_images_is_an_error_and_no_silent_gap_where_layers_lie_beside_them() -> None:
    model, batch = make(asks=True)

    with pytest.raises((ValueError, AttributeError)):
        step(model, batch)


def test_ghost_clipping_refuses_the_whole_graph_whose_gradients_it_could_not_clip() -> None:
    model, batch = make(asks=False)

    with pytest.raises(RuntimeError, match="requires_grad=False"):
        step(model, batch, mode="ghost")


def test_trial_passes_with_the_whole_graph_and_notices_layers_that_are_left_out_without_it() -> None:
    model, batch = make(asks=False)
    require_separable_losses(model, batch, model.losses, mode="hooks")
    model, batch = make(asks=True)

    with pytest.raises(SiteError, match="every trainable parameter to take part"):
        require_separable_losses(model, batch, model.losses, mode="hooks")
