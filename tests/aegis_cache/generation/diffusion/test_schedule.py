"""The noise schedule and the steps that sampling visits."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from aegis_cache.generation.diffusion.schedule import STEPS, make_solver, signal_rates, visited_steps


@pytest.mark.parametrize("steps", [10, 25, 30, 100])
def test_visited_steps_fall_from_pure_noise_to_almost_none(steps: int) -> None:
    visited = visited_steps(steps)

    assert len(visited) == steps
    assert visited[0] == STEPS - 1
    assert visited[-1] <= 2
    assert all(later < earlier for earlier, later in itertools.pairwise(visited))


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected steps=9 >= 10"):
        visited_steps(9)


def test_the_last_step_is_noise_alone_and_the_first_almost_none() -> None:
    rates = signal_rates()

    assert float(rates[-1]) == pytest.approx(0, abs=1e-4)
    assert math.sqrt(1 - float(rates[0]) ** 2) < 0.02
    assert (rates.diff() < 0).all()


def test_the_solver_recovers_an_image_from_its_exact_velocity() -> None:
    """For a single image x, the exact velocity at a noised y is (signal * y - x) / noise rate."""
    image = torch.linspace(-0.9, 0.9, 64).reshape(1, 1, 8, 8)
    rates = signal_rates()
    solver = make_solver(30)
    noised = torch.randn(image.shape, generator=torch.Generator().manual_seed(0))

    for step in solver.timesteps:
        signal = rates[int(step)]
        velocity = (signal * noised - image) / (1 - signal**2).sqrt()
        noised = solver.step(velocity, step, noised).prev_sample

    torch.testing.assert_close(noised, image, atol=0.02, rtol=0)
