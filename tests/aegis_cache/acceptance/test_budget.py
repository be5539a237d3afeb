"""The budget H: calibrated on real images, applied to synthetic ones."""

from __future__ import annotations

import numpy as np
import pytest

from aegis_cache.acceptance.budget import Budget
from aegis_cache.features.pixels import PixelFeatures
from federation.datasets.image_set import ImageSet
from federation.errors import GenerationError

CLASSES = ("dark", "bright")


def draw(per_class: int, seed: int, *, shift: float = 0.0) -> ImageSet:
    """Two classes of noise around two grey levels."""
    stream = np.random.default_rng(seed)
    labels = np.repeat(np.arange(2), per_class)
    images = stream.normal(80 + 90 * labels[:, None, None, None] + shift, 12, size=(2 * per_class, 1, 4, 4))
    return ImageSet(images=np.clip(images, 0, 255).astype(np.uint8), labels=labels)


def make(pass_rate: float = 0.9, pairing: str = "nearest") -> Budget:
    return Budget(draw(300, 1), draw(200, 2), CLASSES, PixelFeatures(), pairing=pairing, pass_rate=pass_rate)  # type: ignore[arg-type]


@pytest.mark.parametrize("pairing", ["nearest", "optimal"])
@pytest.mark.parametrize("pass_rate", [0.5, 0.9, 1.0])
def test_the_stated_share_of_the_calibration_images_passes(pass_rate: float, pairing: str) -> None:
    budget = make(pass_rate, pairing)

    accepted, _ = budget.accept(draw(200, 2))

    for label in range(2):
        passed = accepted.numpy()[draw(200, 2).labels == label]
        assert pass_rate <= passed.mean() <= pass_rate + 0.011


def test_even_few_held_out_images_let_the_stated_share_of_fresh_ones_pass_on_average() -> None:
    shares = []
    for seed in range(40):
        budget = Budget(draw(300, 1), draw(19, 100 + seed), CLASSES, PixelFeatures(), pass_rate=0.9)
        shares.append(float(budget.accept(draw(100, 3))[0].double().mean()))

    assert np.mean(shares) == pytest.approx(0.9, abs=0.03)


def test_about_that_share_of_fresh_real_images_passes_too() -> None:
    accepted, _ = make().accept(draw(400, 3))

    assert float(accepted.double().mean()) == pytest.approx(0.9, abs=0.06)


def test_images_of_another_kind_are_rejected() -> None:
    accepted, distances = make().accept(draw(50, 4, shift=60))

    assert not accepted.any()
    assert distances.isfinite().all()


def test_an_image_under_the_label_of_another_class_is_rejected() -> None:
    right = draw(50, 5)
    wrong = ImageSet(images=right.images, labels=1 - right.labels)

    accepted, _ = make().accept(wrong)

    assert not accepted.any()


def test_a_class_without_private_images_accepts_nothing() -> None:
    budget = Budget(draw(300, 1), draw(200, 2), (*CLASSES, "none"), PixelFeatures())
    stranger = ImageSet(images=draw(1, 6).images[:1], labels=np.array([2]))

    accepted, distances = budget.accept(stranger)

    assert not accepted.any()
    assert distances.isinf().all()


def test_few_held_out_images_are_replaced_by_every_second_reference() -> None:
    budget = Budget(draw(300, 1), draw(3, 2), CLASSES, PixelFeatures())

    accepted, _ = budget.accept(draw(200, 3))

    assert 0.8 < float(accepted.double().mean()) <= 1


def test_too_few_images_to_calibrate_on_name_the_class_and_the_way_out() -> None:
    with pytest.raises(GenerationError, match=r"of class 'dark' .* found 10: use --filter none"):
        Budget(draw(10, 1), draw(2, 2), CLASSES, PixelFeatures())


@pytest.mark.parametrize("pass_rate", [0.0, -1.0, 1.01])
def test_a_pass_rate_that_is_no_share_is_refused(pass_rate: float) -> None:
    with pytest.raises(GenerationError, match="pass-rate"):
        make(pass_rate)


def test_identity_names_extractor_pairing_and_pass_rate() -> None:
    identity = make().identity

    assert "nearest" in identity
    assert "0.9" in identity
    assert PixelFeatures().identity in identity
