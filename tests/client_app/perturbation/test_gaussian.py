"""The whole update is clipped, and every coordinate gets the noise that its group's share of the budget allows."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch

from client_app.perturbation import perturb_update
from client_app.perturbation.clipping import joint_norm
from federation.config import PrivacyConfig
from federation.errors import ConfigurationError, ModelError, PrivacyError, SiteError, SiteErrorCode
from federation.parameters import Parameters
from tests.client_app.perturbation.noises import RecordedNoise

SPLIT = "output.*=0.8, *=0.2"


def make_update(scale: float = 1.0, size: int = 50) -> Parameters:
    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.randn(shape, generator=generator) * scale
        for name, shape in {"hidden.weight": (size, 4), "hidden.bias": (size,), "output.weight": (2, size)}.items()
    }


def perturb(update: Parameters, noise: RecordedNoise, *, multiplier: float = 1.0, **privacy: Any) -> Parameters:
    settings = PrivacyConfig.model_validate({"mechanism": "update-gaussian", **privacy})
    return perturb_update(update, privacy=settings, noise_multiplier=multiplier, noise=noise)


@pytest.mark.parametrize("clip_norm", [0.25, 1.0, 3.0])
def test_large_update_is_scaled_to_the_clip_norm_as_one_vector(clip_norm: float) -> None:
    update = make_update()
    flat = torch.cat([value.flatten() for value in update.values()]).numpy()

    released = perturb(update, RecordedNoise(silent=True), clip_norm=clip_norm)

    found = torch.cat([value.flatten() for value in released.values()]).numpy()
    np.testing.assert_allclose(found, flat * clip_norm / np.linalg.norm(flat), rtol=1e-5)
    assert {name: value.shape for name, value in released.items()} == {
        name: value.shape for name, value in update.items()
    }


def test_small_update_is_released_as_it_is_plus_noise() -> None:
    update = make_update(1e-3)

    released = perturb(update, RecordedNoise(5))

    again = RecordedNoise(5)
    for name, value in update.items():
        assert torch.equal(released[name], value + again.normal(value.shape, 1.0, device=value.device))


@pytest.mark.parametrize(("relation", "factor"), [("zero-out", 1.0), ("replace-one", 2.0)])
@pytest.mark.parametrize(("multiplier", "clip_norm"), [(1.0, 1.0), (0.7, 1.5), (24.22, 0.5)])
def test_noise_is_the_multiplier_times_the_sensitivity(
    relation: str, factor: float, multiplier: float, clip_norm: float
) -> None:
    noise = RecordedNoise()

    perturb(make_update(), noise, multiplier=multiplier, relation=relation, clip_norm=clip_norm)

    assert noise.stddevs == [pytest.approx(multiplier * factor * clip_norm)] * 3


def test_released_noise_has_the_promised_distribution_in_every_coordinate() -> None:
    update = make_update(1e-4, size=20_000)

    released = perturb(update, RecordedNoise(), multiplier=2.0, clip_norm=3.0)

    draws = torch.cat([(released[name] - value).flatten() for name, value in update.items()]).numpy()
    levels = np.linspace(0.01, 0.99, 99)
    expected = [NormalDist(sigma=6.0).inv_cdf(level) for level in levels]
    np.testing.assert_allclose(np.quantile(draws, levels), expected, atol=6 * 0.03)


def test_divided_update_gives_each_group_its_own_clip_norm_and_noise() -> None:
    update, noise = make_update(), RecordedNoise(silent=True)

    released = perturb(update, noise, multiplier=3.0, clip_norm=2.0, layer_shares=SPLIT)

    each = 2.0 / math.sqrt(2)
    assert joint_norm([released["output.weight"]]) == pytest.approx(each, rel=1e-5)
    assert joint_norm([released["hidden.weight"], released["hidden.bias"]]) == pytest.approx(each, rel=1e-5)
    assert noise.stddevs[0] == pytest.approx(3.0 / math.sqrt(0.8) * each)
    assert noise.stddevs[1:] == [pytest.approx(3.0 / math.sqrt(0.2) * each)] * 2
    assert list(released) == list(update)


def test_whole_divided_update_stays_within_the_clip_norm() -> None:
    released = perturb(make_update(100.0), RecordedNoise(silent=True), layer_shares="*.bias=0.1,o*=0.3,*=0.6")

    assert 0.999 < joint_norm(released.values()) <= 1.0


def test_equal_shares_cause_the_noise_of_an_undivided_update() -> None:
    divided, whole = RecordedNoise(), RecordedNoise()

    perturb(make_update(), divided, multiplier=1.3, layer_shares="output.*=0.5,*=0.5")
    perturb(make_update(), whole, multiplier=1.3)

    assert divided.stddevs == pytest.approx(whole.stddevs)


def test_given_update_is_left_alone() -> None:
    update = make_update()
    before = {name: value.clone() for name, value in update.items()}

    perturb(update, RecordedNoise())
    perturb(make_update(1e-4), RecordedNoise())

    assert all(torch.equal(update[name], before[name]) for name in update)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_update_that_is_not_finite_is_refused_before_anything_is_drawn(value: float) -> None:
    update, noise = make_update(), RecordedNoise()
    update["output.weight"][1, 3] = value
    update["counter"] = torch.tensor(3)

    with pytest.raises(SiteError) as caught:
        perturb(update, noise, multiplier=-1.0, layer_shares="nothing=1")

    assert caught.value.code is SiteErrorCode.NON_FINITE_UPDATE
    assert noise.stddevs == []


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.bool])
def test_tensor_that_cannot_be_noised_is_refused_with_the_remedy(dtype: torch.dtype) -> None:
    update = make_update() | {"norm.num_batches_tracked": torch.ones((), dtype=dtype)}

    with pytest.raises(ModelError, match=rf"found \['norm.num_batches_tracked of {dtype}'\]: use .* GroupNorm"):
        perturb(update, RecordedNoise())


def test_update_without_tensors_is_refused() -> None:
    with pytest.raises(ModelError, match="found none"):
        perturb({}, RecordedNoise())


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.nan, math.inf])
def test_impossible_noise_is_refused(multiplier: float) -> None:
    noise = RecordedNoise()

    with pytest.raises(PrivacyError, match=f"noise_multiplier={multiplier}"):
        perturb(make_update(), noise, multiplier=multiplier)

    assert noise.stddevs == []


def test_shares_that_do_not_fit_the_update_are_refused_before_anything_is_drawn() -> None:
    noise = RecordedNoise()

    with pytest.raises(ConfigurationError, match="layer-shares"):
        perturb(make_update(), noise, layer_shares="output.*=1")

    assert noise.stddevs == []
