"""Every step is taken, on noise alone where nobody was sampled, by the optimizer of the plan and the stream given."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from federation.accounting.events import SampledGaussianRelease
from federation.config import ModelConfig
from federation.models import build_model
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.gradients import clipped_sum, gradients_of, pixels_of
from tests.client_app.dp_sgd.streams import Linear, Seeded, Silent, describe, flat, train

MODES = ["hooks", "ghost"]


@pytest.mark.parametrize("mode", MODES)
def test_empty_sample_is_a_step_on_noise_alone(mode: str) -> None:
    images = make_images(100, size=28)
    model = build_model(ModelConfig(name="mlp"), describe(images), seed=0)
    before = flat(model)

    class Nobody(Seeded):
        def uniform(self, count: int) -> Tensor:
            return torch.ones(count, dtype=torch.float64)

    plan = {"batch_size": 80}
    train(model, images, Nobody(0), plan=plan, noise_multiplier=3.0, clip_norm=0.5, grad_sample=mode)

    moved = before - flat(model)
    assert len(moved) > 50_000
    # Standard deviation 3 * 0.5 on the sum, over 80 expected units; one part in a hundred is over three sigma.
    assert float(moved.std()) == pytest.approx(3.0 * 0.5 / 80, rel=0.01)
    assert abs(float(moved.mean())) < 5 * 3.0 * 0.5 / 80 / math.sqrt(len(moved))


@pytest.mark.parametrize("mode", MODES)
def test_no_step_is_skipped_however_few_are_sampled(mode: str) -> None:
    noise = Seeded(0)

    event = train(Linear(), make_images(200), noise, plan={"batch_size": 1}, grad_sample=mode, clip_norm=2.0)

    assert event == SampledGaussianRelease(noise_multiplier=1.0, sampling_probability=1 / 200, steps=200)
    assert noise.stddevs == [2.0] * 200
    empty = sum(bool((drawn >= 1 / 200).all()) for drawn in noise.drawn)
    assert 40 < empty < 110  # 73 expected


@pytest.mark.parametrize("mode", MODES)
def test_momentum_sees_empty_steps_too(mode: str) -> None:
    model = Linear()
    before = flat(model)

    class Last(Silent):
        """Samples everybody in the first step and nobody afterwards."""

        def uniform(self, count: int) -> Tensor:
            drawn = super().uniform(count)
            self.drawn = 1.0
            return drawn

    plan = {"batch_size": 9, "local_epochs": 3, "momentum": 0.5}
    images = make_images(10)
    train(model, images, Last(), plan=plan, grad_sample=mode)

    once = clipped_sum(gradients_of(Linear(), pixels_of(images), torch.from_numpy(images.labels)), 1.0) / 9
    torch.testing.assert_close(before - flat(model), once * (1 + 0.5 + 0.25), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_plan_names_the_optimizer_that_moves_by_the_noised_gradient(optimizer: str, mode: str) -> None:
    model = Linear()
    before = flat(model)

    train(model, make_images(10), Seeded(0), plan={"optimizer": optimizer, "learning_rate": 0.01}, grad_sample=mode)

    # The first step of Adam moves everything by the rate, whatever the gradient is.
    torch.testing.assert_close((before - flat(model)).abs(), torch.full_like(before, 0.01), rtol=1e-3, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_global_generator_neither_decides_anything_nor_moves(mode: str) -> None:
    plan = {"batch_size": 4, "augmentation": "shift-flip", "local_epochs": 2}
    first, second = Linear(), Linear()
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - the generator that must not matter
    train(first, make_images(10), Seeded(0), plan=plan, grad_sample=mode)
    torch.manual_seed(2)
    before, other_before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002

    train(second, make_images(10), Seeded(0), plan=plan, grad_sample=mode)

    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == other_before  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(first.output.weight, second.output.weight)


def test_another_private_stream_gives_another_model() -> None:
    first, second = Linear(), Linear()

    for model, seed in ((first, 1), (second, 2)):
        train(model, make_images(10), Seeded(seed))

    assert not torch.equal(first.output.weight, second.output.weight)
