"""A unit whose gradient is NaN or infinite contributes nothing, changes no other and shows in no error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from client_app.augmentation import augment
from client_app.dp_sgd.clipping import clip_factors
from federation.config import ModelConfig
from federation.datasets.image_set import ImageSet
from federation.models import build_model
from tests.client_app.calls import make_images
from tests.client_app.dp_sgd.gradients import clipped_sum, gradients_of, pixels_of
from tests.client_app.dp_sgd.networks import Exploding, Normalizing, traces
from tests.client_app.dp_sgd.streams import Linear, Seeded, Silent, describe, flat, train

MODES = ["hooks", "ghost"]
# A network, and the brightness of the images that it cannot digest.
DEVOURING: list[tuple[type[Linear], int]] = [(Normalizing, 0), (Exploding, 255)]


def spoiled(count: int, places: list[int], value: int, **options: Any) -> ImageSet:
    """Return `count` images, of which those at `places` are all of one brightness."""
    images = make_images(count, **options)
    images.images[places] = value
    return images


def without(images: ImageSet, places: list[int]) -> ImageSet:
    return images.take(np.setdiff1d(np.arange(len(images)), places))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("network", "value"), DEVOURING)
@pytest.mark.parametrize("places", [[3], [0, 5], [0, 1, 2, 4, 5]])
def test_unit_that_is_not_finite_leaves_the_sum_of_the_others_as_it_is(
    places: list[int], network: type[Linear], value: int, mode: str
) -> None:
    images = spoiled(6, places, value)
    full, fewer = network(), network()
    left = without(images, places)
    rows = gradients_of(network(), pixels_of(left), torch.from_numpy(left.labels))
    middle = float(rows.norm(dim=1).median())
    before = flat(full)

    train(full, images, Silent(), plan={"batch_size": 6}, clip_norm=middle, grad_sample=mode)
    # Rate and expected units together divide by 6 in both trainings.
    one_step = {"batch_size": len(left), "learning_rate": len(left) / 6}
    train(fewer, left, Silent(), plan=one_step, clip_norm=middle, grad_sample=mode)

    torch.testing.assert_close(flat(full), flat(fewer), rtol=0, atol=1e-7)
    torch.testing.assert_close(before - flat(full), clipped_sum(rows, middle) / 6, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("physical_batch", [1, 2, 4])
def test_part_without_a_finite_unit_leaves_the_other_parts_of_its_step_as_they_are(
    physical_batch: int, mode: str
) -> None:
    images = spoiled(8, [0, 1, 2, 3], 0)
    left = without(images, [0, 1, 2, 3])
    model = Normalizing()
    rows = gradients_of(Normalizing(), pixels_of(left), torch.from_numpy(left.labels))
    before = flat(model)

    train(model, images, Silent(), clip_norm=0.3, grad_sample=mode, physical_batch=physical_batch)

    torch.testing.assert_close(before - flat(model), clipped_sum(rows, 0.3) / 8, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("network", "value"), DEVOURING)
def test_step_whose_units_are_all_not_finite_is_a_step_on_noise_alone(
    network: type[Linear], value: int, mode: str
) -> None:
    class Nobody(Seeded):
        """Samples nobody, with noise from the same generator."""

        def uniform(self, count: int) -> Tensor:
            return torch.ones(count, dtype=torch.float64)

    images = spoiled(5, [0, 1, 2, 3, 4], value)
    everybody, nobody = network(), network()
    options: dict[str, Any] = {"noise_multiplier": 2.0, "grad_sample": mode, "clip_norm": 0.5}
    # Four are expected of five, or nobody could be missing.
    plan: dict[str, Any] = {"batch_size": 4, "local_epochs": 2}

    class Everybody(Seeded):
        def uniform(self, count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.float64)

    noise = Everybody(3)
    train(everybody, images, noise, plan=plan, **options)
    train(nobody, images, Nobody(3), plan=plan, **options)

    assert noise.stddevs == [1.0, 1.0]
    assert torch.equal(flat(everybody), flat(nobody))
    assert not torch.equal(flat(everybody), flat(network()))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["cnn", "linear", "mlp", pytest.param("resnet18", marks=pytest.mark.slow)])
def test_networks_of_the_federation_take_a_step_on_nobody_who_is_finite(
    monkeypatch: pytest.MonkeyPatch, name: Any, mode: str
) -> None:
    images = make_images(4, size=8)
    model = build_model(ModelConfig(name=name), describe(images), seed=0)
    with torch.no_grad():
        next(model.parameters()).fill_(3e38)
    before = flat(model)
    # The check before training would find such a network out, on images of noise.
    monkeypatch.setattr("client_app.dp_sgd.training.require_separable", lambda *_, **__: None)

    train(model, images, Silent(), grad_sample=mode)

    assert torch.equal(flat(model), before)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("network", "value"), DEVOURING)
def test_training_over_units_that_are_not_finite_leaves_no_trace(network: type[Linear], value: int, mode: str) -> None:
    model = network()
    before = traces(model)

    train(model, spoiled(6, [1, 4], value), Seeded(0), plan={"batch_size": 3, "local_epochs": 2}, grad_sample=mode)

    assert traces(model) == before
    assert bool(torch.isfinite(flat(model)).all())


def test_image_that_is_not_finite_takes_its_patient_along_and_nobody_else() -> None:
    pictures = spoiled(4, [1], 0)
    images = ImageSet(images=pictures.images, labels=pictures.labels, patients=np.array([7, 7, 8, 8]))
    left = without(pictures, [0, 1])
    average = gradients_of(Normalizing(), pixels_of(left), torch.from_numpy(left.labels)).mean(dim=0, keepdim=True)
    model = Normalizing()
    before = flat(model)

    train(model, images, Silent(), plan={"batch_size": 2}, clip_norm=0.3, unit="patient", images_per_patient=2)

    torch.testing.assert_close(before - flat(model), clipped_sum(average, 0.3) / 2, rtol=1e-4, atol=1e-6)


def test_image_whose_views_are_not_finite_contributes_nothing() -> None:
    images = spoiled(4, [1], 0)
    views = augment(pixels_of(images).repeat_interleave(3, dim=0), "shift-flip", torch.Generator().manual_seed(7))
    sound = [place for place in range(12) if place // 3 != 1]
    labels = torch.from_numpy(images.labels).repeat_interleave(3)
    averages = gradients_of(Normalizing(), views[sound], labels[sound]).view(3, 3, -1).mean(dim=1)
    model = Normalizing()
    before = flat(model)

    plan = {"augmentation": "shift-flip"}
    train(model, images, Silent(), plan=plan, augmentation_multiplicity=3, clip_norm=0.3, seed=7)

    torch.testing.assert_close(before - flat(model), clipped_sum(averages, 0.3) / 4, rtol=1e-4, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    places=st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True),
    devouring=st.sampled_from(DEVOURING),
    clip_norm=st.floats(0.01, 20),
    mode=st.sampled_from(MODES),
)
def test_neighbour_that_is_not_finite_moves_the_sum_by_at_most_the_clip_norm(
    seed: int, places: list[int], devouring: tuple[type[Linear], int], clip_norm: float, mode: str
) -> None:
    network, value = devouring
    images = spoiled(8, places, value, seed=seed)
    sums = []
    # One that is not finite leaves; then one that is takes its place.
    for some in (images, without(images, places[:1]), spoiled(8, places[1:], value, seed=seed)):
        model = network()
        before = flat(model).double()
        train(model, some, Silent(), plan={"batch_size": 7}, clip_norm=clip_norm, grad_sample=mode)
        sums.append((before - flat(model).double()) * 7)

    assert float((sums[0] - sums[1]).norm()) <= 1e-5
    assert float((sums[0] - sums[2]).norm()) <= clip_norm * (1 + 1e-5) + 1e-5


@given(
    norms=st.lists(st.one_of(st.floats(0, width=32), st.just(math.nan)), min_size=1, max_size=9),
    clip_norm=st.floats(1e-3, 1e3),
)
def test_factor_of_a_norm_that_is_not_finite_is_zero_and_no_other_follows_it(
    norms: list[float], clip_norm: float
) -> None:
    found = torch.tensor(norms)

    factors = clip_factors([found], clip_norm)

    for norm, factor in zip(found, factors, strict=True):
        assert float(factor) == (float(clip_factors([norm[None]], clip_norm)) if torch.isfinite(norm) else 0.0)
    assert not bool(torch.isnan(factors).any())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_parameter_that_is_not_finite_is_enough(value: float) -> None:
    sound, spoilt = torch.tensor([1.0, 1.0]), torch.tensor([1.0, value])

    assert clip_factors([sound, spoilt], 10.0).tolist() == [1.0, 0.0]
    assert clip_factors([spoilt, sound], 10.0).tolist() == [1.0, 0.0]


class Crafted(nn.Module):
    """Plays a server's network: sound for every image but a bright one, whose logits it makes NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.sound, self.trap = Linear(), Linear(pixels=1)
        with torch.no_grad():
            self.trap.output.weight.fill_(3e38)

    def forward(self, images: Tensor) -> Tensor:
        brightness = torch.relu(images.flatten(1).mean(dim=1, keepdim=True) - 0.9) * 100
        snare = self.trap(brightness)
        logits: Tensor = self.sound(images) + snare - snare
        return logits


@pytest.mark.parametrize("mode", MODES)
def test_network_crafted_against_one_image_learns_nothing_of_it_by_an_error(mode: str) -> None:
    bright, dark = spoiled(5, [2], 255), spoiled(5, [2], 0)

    for images in (bright, dark):
        model, noise = Crafted(), Seeded(0)
        event = train(model, images, noise, grad_sample=mode)

        assert bool(torch.isfinite(flat(model)).all())
        assert noise.stddevs == [1.0] * event.steps
