"""Slices hold equal sensitivity, and only those that were drawn hold noise, of the deviation that was asked for."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attacks.defences.defence import Defence
from attacks.defences.grad_defense import GradDefense, compensate, cut_slices, measure_sensitivities
from federation.datasets.image_set import Task
from federation.errors import DataError
from federation.metrics import losses_of
from tests.attacks.defences.made_up_steps import SHAPE, flat, gradient_of, make_network, make_step

thorough = settings(max_examples=60, deadline=None)


@thorough
@given(
    layers=st.lists(st.tuples(st.integers(1, 5000), st.floats(0.01, 10)), min_size=1, max_size=6),
    slices=st.integers(1, 12),
)
def test_slices_hold_equal_sensitivity_but_for_one_entry(layers: list[tuple[int, float]], slices: int) -> None:
    sizes, sensitivities = zip(*layers, strict=True)
    densities = np.repeat([mass / size for size, mass in layers], sizes)

    edges = cut_slices(sizes, sensitivities, slices)

    assert (edges[0], edges[-1], len(edges)) == (0, sum(sizes), slices + 1)
    assert (np.diff(edges) >= 0).all()
    sums = [densities[start:end].sum() for start, end in pairwise(edges)]
    assert np.abs(np.array(sums) - sum(sensitivities) / slices).max() <= densities.max() * (1 + 1e-6)


def test_edges_stand_where_the_closed_form_says() -> None:
    assert cut_slices([10, 20], [1.0, 3.0], 4).tolist() == [0, 10, 17, 23, 30]


def test_slices_take_in_tensors_without_sensitivity_at_both_ends() -> None:
    assert cut_slices([5, 10, 5], [0.0, 1.0, 0.0], 2).tolist() == [0, 10, 20]


def test_without_sensitivity_slices_are_equally_long() -> None:
    assert cut_slices([10, 20], [0.0, 0.0], 3).tolist() == [0, 10, 20, 30]


def test_sensitivity_of_a_linear_layer_with_squared_error_has_a_closed_form() -> None:
    """L = mean of z^2 / 2, z = w.x + b: 1^T dL/dw = z 1^T x / R moves with x by (w 1^T x + z 1) / R, dL/db by w / R."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(9, 1))
    layer = network[1]
    assert isinstance(layer, nn.Linear)
    images = torch.rand((5, *SHAPE), generator=torch.Generator().manual_seed(1))

    def half_square(logits: Tensor, labels: Tensor, task: Task) -> Tensor:
        return logits.square().sum(dim=1) / 2

    found = measure_sensitivities(network, images, torch.zeros(5), Task.MULTICLASS, losses=half_square)

    with torch.no_grad():
        rows, reached = images.flatten(1), network(images)
        moved = (layer.weight * rows.sum(dim=1, keepdim=True) + reached) / 5
    assert found["1.weight"] == pytest.approx(float(moved.norm(dim=1).mean()), rel=1e-5)
    assert found["1.bias"] == pytest.approx(float(layer.weight.detach().norm()) / 5, rel=1e-5)


def test_parameter_that_nothing_depends_on_twice_has_no_sensitivity() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(9, 1))

    def linear(logits: Tensor, labels: Tensor, task: Task) -> Tensor:
        return logits.sum(dim=1)

    found = measure_sensitivities(network, torch.rand(2, 1, 3, 3), torch.zeros(2), Task.MULTICLASS, losses=linear)

    assert found["1.bias"] == 0
    assert found["1.weight"] == pytest.approx(3 / 2)


def test_noise_of_the_deviation_asked_for_lies_on_the_drawn_slices_only() -> None:
    network = make_network(hidden_units=4000)
    step = make_step(network)
    gradient = gradient_of(step, Defence())
    sensitivities = measure_sensitivities(network, step.images, step.labels, step.task, losses=losses_of)
    edges = cut_slices([value.numel() for value in gradient.values()], list(sensitivities.values()), 10)

    noise = flat(GradDefense(noise_stddev=0.5).protect(gradient, step)) - flat(gradient)

    noised = [noise[start:end] for start, end in pairwise(edges) if noise[start:end].any()]
    count = sum(map(len, noised))
    assert len(noised) == 5
    assert count > 1000
    assert int((noise != 0).sum()) > 0.999 * count
    drawn = torch.cat(noised)
    assert float(drawn.std()) == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(2 * count))
    assert float(drawn.mean()) == pytest.approx(0, abs=4 * 0.5 / math.sqrt(count))


def test_every_slice_is_drawn_in_some_step_and_equal_seeds_draw_equal_noise() -> None:
    step, again = make_step(make_network()), make_step(make_network())
    gradient = gradient_of(step, Defence())
    defence = GradDefense()

    steps = [flat(defence.protect(gradient, step)) - flat(gradient) for _ in range(20)]
    other = flat(defence.protect(gradient, again)) - flat(gradient)

    assert (torch.stack(steps) != 0).any(dim=0).all()
    assert torch.equal(steps[0], other)
    assert not torch.equal(steps[0] != 0, steps[1] != 0)


def test_root_set_that_is_given_decides_on_the_slices() -> None:
    network = make_network()
    step, root = make_step(network), make_step(network, seed=9, count=3)
    gradient = gradient_of(step, Defence())
    measured = measure_sensitivities(network, root.images, root.labels, root.task, losses=losses_of)
    edges = cut_slices([value.numel() for value in gradient.values()], list(measured.values()), 10)
    defence = GradDefense(root_images=root.images, root_labels=root.labels, perturbed=1)
    own = GradDefense(perturbed=1)

    spans = set()
    for _ in range(60):
        noised = (flat(defence.protect(gradient, step)) != flat(gradient)).nonzero().flatten()
        spans.add((int(noised[0]), int(noised[-1]) + 1))
    own_spans = set()
    for _ in range(60):
        noised = (flat(own.protect(gradient, step)) != flat(gradient)).nonzero().flatten()
        own_spans.add((int(noised[0]), int(noised[-1]) + 1))

    assert spans == set(pairwise(edges.tolist()))
    assert spans != own_spans


def test_clipped_slice_is_the_mean_of_clipped_gradients_of_single_images() -> None:
    network = make_network()
    step = make_step(network)
    gradient = gradient_of(step, Defence())
    norm = 0.05
    expected = torch.zeros_like(flat(gradient))
    for index in range(len(step.images)):
        loss = losses_of(network(step.images[index : index + 1]), step.labels[index : index + 1], step.task).sum()
        own = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(network.parameters()))])
        assert own.norm() > norm
        expected += own * norm / own.norm() / len(step.images)
    state = step.stream.get_state()

    protected = GradDefense(slices=1, perturbed=1, noise_stddev=norm, clipping=True).protect(gradient, step)

    step.stream.set_state(state)
    torch.randperm(1, generator=step.stream)
    noise = norm * torch.randn(len(expected), generator=step.stream)
    assert torch.allclose(flat(protected) - noise, expected, atol=1e-6)


def test_clipping_leaves_slices_that_are_not_drawn() -> None:
    step = make_step(make_network())
    gradient = gradient_of(step, Defence())

    protected = GradDefense(perturbed=0, clipping=True, noise_stddev=1e-9).protect(gradient, step)

    assert torch.equal(flat(protected), flat(gradient))


def test_gradient_is_not_changed_in_place() -> None:
    step = make_step(make_network())
    gradient = gradient_of(step, Defence())
    before = flat(gradient).clone()

    GradDefense(perturbed=10).protect(gradient, step)

    assert torch.equal(flat(gradient), before)


def test_compensation_takes_noise_away_and_leaves_a_strong_direction() -> None:
    stream = torch.Generator().manual_seed(3)
    height, width = 600, 100
    signal = torch.outer(torch.randn(height, generator=stream), torch.randn(width, generator=stream))
    noisy = signal + 0.1 * torch.randn((height, width), generator=stream)
    gradient = {"a": noisy[:50].reshape(25, 200), "b": noisy[50:].reshape(-1)}

    found = compensate(gradient, noise_stddev=0.1, ratio=6)

    assert [found[name].shape for name in gradient] == [gradient[name].shape for name in gradient]
    left = flat(found).view(height, width) - signal
    assert float(left.norm()) < 0.2 * float((noisy - signal).norm())


def test_compensation_of_noise_alone_leaves_next_to_nothing() -> None:
    noise = torch.randn(60_007, generator=torch.Generator().manual_seed(4))

    assert float(compensate({"a": noise}, noise_stddev=1.0)["a"].norm()) < 0.3 * float(noise.norm())


@pytest.mark.parametrize("noise_stddev", [1e-3, 1e3])
def test_compensation_keeps_what_lies_on_either_side_of_the_band(noise_stddev: float) -> None:
    values = torch.randn(6_000, generator=torch.Generator().manual_seed(5))

    assert torch.allclose(compensate({"a": values}, noise_stddev=noise_stddev)["a"], values, atol=1e-5)


def test_more_perturbed_slices_than_slices_are_refused() -> None:
    with pytest.raises(DataError, match="found 11"):
        GradDefense(perturbed=11)


def test_half_a_root_set_is_refused() -> None:
    with pytest.raises(DataError, match="one of them"):
        GradDefense(root_images=torch.zeros(1, 1, 3, 3))
