"""Matched moments: what the map does to mean and covariance, what it leaves alone, and who the generator says it is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.linalg
import torch

from aegis_cache.generation.matched import SAMPLE, MatchedGenerator, MomentMatch
from aegis_cache.store.provenance import Provenance, Source
from federation.datasets.image_set import ImageSet
from federation.errors import GenerationError
from tests.aegis_cache.made_up_images import SIDE, MadeUpGenerator, draw_real


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def draw_gaussian(count, mean, spread, *, shape=(1, 3, 4), seed=0):
    """Images around a grey, with `spread` and correlations that depend on the seed; 0 and 1 are many spreads away."""
    random = stream(seed)
    values = int(np.prod(shape))
    mixing = spread * (torch.eye(values) + 0.5 * torch.randn((values, values), generator=random) / values**0.5)
    return (mean + torch.randn((count, values), generator=random) @ mixing).view(count, *shape)


def draw_discs(count, corner, *, side=8, seed=0):
    """Bright discs; what lies around them is noise, as strong as `corner`, where a scanner's is almost black."""
    random = stream(seed)
    place = torch.arange(side) - (side - 1) / 2
    disc = (place[:, None] ** 2 + place**2 < (side / 2.6) ** 2).float()
    level = 0.5 + 0.15 * torch.randn((count, 1, 1, 1), generator=random)
    noise = torch.randn((count, 1, side, side), generator=random)
    return ((level + 0.05 * noise) * disc + corner * (1 + noise.abs()) * (1 - disc)).clamp(0, 1)


def find_discriminant(real, generated):
    """Fisher's: the inverse of the mean covariance times the difference of the means."""
    first, second = real.flatten(1).double(), generated.flatten(1).double()
    within = (first.T.cov() + second.T.cov()) / 2 + 1e-6 * torch.eye(first.shape[1], dtype=torch.float64)
    return torch.linalg.solve(within, first.mean(dim=0) - second.mean(dim=0))


def tell_apart(direction, real, generated):
    """How often a real image lies further along `direction` than a generated one: 0.5 by chance."""
    first, second = (images.flatten(1).double() @ direction for images in (real, generated))
    return float((first[:, None] > second).double().mean())


def as_set(images, labels=None):
    stored = (images * 255).round().to(torch.uint8).numpy()
    return ImageSet(images=stored, labels=np.arange(len(stored)) % 2 if labels is None else labels)


class Discs:
    """Makes discs of `draw_discs` in colour or grey, as large as is wanted, and notes the labels it was asked for."""

    def __init__(self, corner=0.03, *, side=8, channels=1):
        self._corner, self._side, self._channels = corner, side, channels
        self.identity = MadeUpGenerator().identity
        self.asked = []

    def generate(self, labels, n, generator):
        self.asked.append(labels)
        seed = int(torch.randint(2**31, (1,), generator=generator))
        drawn = draw_discs(len(labels) * n, self._corner, side=self._side, seed=seed)
        return drawn.expand(-1, self._channels, -1, -1).contiguous()


@pytest.mark.parametrize("shape", [(1, 3, 4), (3, 2, 2)], ids=["grey", "colour"])
def test_a_mapped_sample_has_the_mean_and_covariance_of_real_images(shape):
    real = draw_gaussian(4000, 0.5, 0.03, shape=shape)
    generated = draw_gaussian(4000, 0.4, 0.02, shape=shape, seed=1)

    mapped = MomentMatch.fit(real, generated, shrinkage=1e-5).apply(generated)

    torch.testing.assert_close(mapped.mean(dim=0), real.mean(dim=0), rtol=0, atol=1e-5)
    torch.testing.assert_close(mapped.flatten(1).T.cov(), real.flatten(1).T.cov(), rtol=0, atol=5e-6)


def test_the_ridge_leaves_of_the_covariance_what_the_formula_says():
    real, generated = draw_gaussian(2000, 0.5, 0.03), draw_gaussian(2000, 0.4, 0.02, seed=1)
    wanted, given = (np.cov(images.flatten(1).double().numpy().T) for images in (real, generated))
    ridge = 0.5 * np.trace(wanted) / len(wanted) * np.eye(len(wanted))
    root = scipy.linalg.sqrtm(wanted + ridge)
    expected = wanted + ridge - root @ ridge @ np.linalg.inv(given + ridge) @ root

    mapped = MomentMatch.fit(real, generated, shrinkage=0.5).apply(generated)

    np.testing.assert_allclose(np.cov(mapped.flatten(1).double().numpy().T), expected, atol=1e-6)


def test_images_that_are_alike_stay_as_they_are():
    images = draw_gaussian(500, 0.5, 0.03)

    match = MomentMatch.fit(images, images)

    torch.testing.assert_close(match.matrix, torch.eye(12), rtol=0, atol=1e-5)
    torch.testing.assert_close(match.apply(images), images, rtol=0, atol=1e-5)


def test_the_mean_is_right_after_clipping_where_most_pixels_are_black():
    real = (0.2 * torch.randn((2000, 1, 8, 8), generator=stream()) - 0.05).clamp(0, 1)
    generated = (0.3 + 0.1 * torch.randn((2000, 1, 8, 8), generator=stream(1))).clamp(0, 1)

    match = MomentMatch.fit(real, generated)

    uncorrected = dataclasses.replace(match, shift=torch.zeros_like(match.shift)).apply(generated)
    assert (real == 0).float().mean() > 0.5
    assert (uncorrected.mean(dim=0) - real.mean(dim=0)).abs().max() > 0.01
    torch.testing.assert_close(match.apply(generated).mean(dim=0), real.mean(dim=0), rtol=0, atol=1e-3)
    assert match.apply(generated).min() == 0


def test_a_pixel_that_never_varies_is_not_blown_up():
    real = draw_gaussian(500, 0.5, 0.03)
    generated = draw_gaussian(500, 0.5, 0.03, seed=1)
    generated[:, 0, 0, 0] = 0.5

    match = MomentMatch.fit(real, generated)

    assert match.matrix.abs().max() < 10
    assert match.apply(generated).isfinite().all()


def test_the_direction_that_tells_noisy_corners_from_black_ones_tells_nothing_after_the_match():
    real, generated = draw_discs(2000, 0.01), draw_discs(2000, 0.03, seed=1)
    fresh_real, fresh = draw_discs(500, 0.01, seed=2), draw_discs(500, 0.03, seed=3)

    match = MomentMatch.fit(real, generated)

    before = tell_apart(find_discriminant(real, generated), fresh_real, fresh)
    after = tell_apart(find_discriminant(real, match.apply(generated)), fresh_real, match.apply(fresh))
    assert before > 0.99
    assert abs(after - 0.5) < 0.1


@pytest.mark.parametrize(("channels", "width"), [(1, 56), (3, 8)], ids=["grey", "colour, narrow"])
def test_of_larger_images_the_fine_part_is_kept(channels, width):
    real, generated = (
        (0.3 + level * draw_discs(60, corner, side=56, seed=seed)[..., :width]).expand(-1, channels, -1, -1)
        for level, corner, seed in ((0.5, 0.01, 0), (0.4, 0.03, 1))
    )
    fine = 0.01 * torch.tensor([1.0, -1.0]).repeat(28)[:, None]  # Averages to 0 in each pixel of the grid.

    match = MomentMatch.fit(real, generated)

    assert match.shape == (channels, 28, min(width, 28))
    changed, changed_fine = match.apply(generated), match.apply(generated + fine)
    assert (changed - generated).abs().max() > 0.02
    torch.testing.assert_close(changed_fine - changed, fine.expand_as(changed), rtol=0, atol=1e-5)


def test_larger_images_come_nearer_to_the_mean_of_real_ones():
    real, generated = draw_discs(200, 0.01, side=56), draw_discs(200, 0.03, side=56, seed=1).mul(0.8).add(0.1)

    mapped = MomentMatch.fit(real, generated).apply(generated)

    gap = (generated.mean(dim=0) - real.mean(dim=0)).abs().mean()
    assert (mapped.mean(dim=0) - real.mean(dim=0)).abs().mean() < gap / 5


@pytest.mark.parametrize(
    ("real", "generated"),
    [((31, 1, 4, 4), (40, 1, 4, 4)), ((40, 1, 4, 4), (31, 1, 4, 4)), ((40, 1, 4, 4), (40, 3, 4, 4))],
)
def test_too_few_images_or_different_shapes_are_refused(real, generated):
    with pytest.raises(GenerationError, match="Expected at least 32 real and generated images of one shape"):
        MomentMatch.fit(torch.rand(real), torch.rand(generated))


@pytest.mark.parametrize("shrinkage", [0.0, -0.1, float("nan")])
def test_a_shrinkage_that_is_not_above_zero_is_refused(shrinkage):
    images = draw_gaussian(40, 0.5, 0.03)

    with pytest.raises(GenerationError, match="Expected shrinkage="):
        MomentMatch.fit(images, images, shrinkage=shrinkage)


@pytest.mark.parametrize("labels", [np.arange(31) % 2, np.zeros((40, 3), dtype=np.int64), np.zeros(0, dtype=np.int64)])
def test_few_images_or_several_labels_are_refused_before_anything_is_generated(labels):
    generator = MadeUpGenerator()
    images = ImageSet(images=np.zeros((len(labels), 1, SIDE, SIDE), dtype=np.uint8), labels=labels)

    with pytest.raises(GenerationError, match="Expected at least 32 images with one label each"):
        MatchedGenerator(generator, images)

    assert generator.calls == 0


def test_a_class_that_the_generator_cannot_make_is_refused():
    class Strict(MadeUpGenerator):
        def generate(self, labels, n, generator):
            if (labels > 1).any():
                raise GenerationError("Expected labels from 0 to 1.")
            return super().generate(labels, n, generator)

    real = draw_real(20, seed=0)

    with pytest.raises(GenerationError, match="labels from 0 to 1"):
        MatchedGenerator(Strict(), ImageSet(images=real.images, labels=real.labels + 1))


def test_the_sample_has_the_labels_of_the_images_and_is_drawn_in_small_batches():
    generator = Discs()

    MatchedGenerator(generator, as_set(draw_discs(40, 0.01), labels=np.repeat([0, 1], [30, 10])))

    asked = torch.cat(generator.asked)
    assert len(asked) == SAMPLE
    assert max(map(len, generator.asked)) <= 256
    assert abs(asked.double().mean() - 0.25) < 0.05


@pytest.mark.parametrize(("side", "channels"), [(8, 3), (16, 1)], ids=["colour", "larger than the task's"])
def test_generated_images_have_the_size_and_moments_of_the_task(side, channels):
    real = as_set(draw_discs(600, 0.01).expand(-1, 3, -1, -1).contiguous())
    generator = Discs(0.06, side=side, channels=channels)

    made = MatchedGenerator(generator, real).generate(torch.arange(600) % 2, 1, stream(1))

    wanted = torch.from_numpy(real.images).float().div(255).mean(dim=0)
    assert made.shape == (600, 3, 8, 8)
    assert made.dtype == torch.float32
    assert 0 <= made.min() <= made.max() <= 1
    assert (made.mean(dim=0) - wanted).abs().max() < 0.03
    assert (made.mean(dim=0) - wanted)[:, 0, 0].abs().max() < 0.01  # Corners were 0.1 off.


def test_moments_are_those_of_all_images_however_many():
    real = draw_real(300, seed=0)  # The first half is dark.

    made = MatchedGenerator(MadeUpGenerator(shift=20), real).generate(torch.arange(600) % 2, 1, stream())

    assert abs(float(made.mean()) - real.images.mean() / 255) < 0.02


def test_each_label_gets_its_images_in_order():
    made = MatchedGenerator(MadeUpGenerator(), draw_real(100, seed=0)).generate(torch.tensor([1, 0]), 40, stream())

    assert made.shape == (80, 1, SIDE, SIDE)
    assert made[:40].mean() > made[40:].mean() + 0.2


def test_the_same_seeds_give_the_same_images_and_digest():
    real = draw_real(40, seed=0)

    first, second = (MatchedGenerator(MadeUpGenerator(), real, seed=3) for _ in range(2))

    assert first.identity == second.identity
    labels = torch.tensor([0, 1])
    assert torch.equal(first.generate(labels, 3, stream()), second.generate(labels, 3, stream()))


def test_the_digest_depends_on_images_generator_and_seed():
    class Other(MadeUpGenerator):
        @property
        def identity(self):
            return super().identity.model_copy(update={"digest": "1" * 64})

    real = draw_real(40, seed=0)
    plain = MadeUpGenerator()
    found = [
        MatchedGenerator(plain, real),
        MatchedGenerator(plain, real, seed=1),
        MatchedGenerator(plain, draw_real(40, seed=1)),
        MatchedGenerator(Other(), real),
    ]

    digests = {matched.identity.digest for matched in found}

    assert len(digests | {plain.identity.digest}) == 5
    assert all(len(digest) == 64 for digest in digests)


def test_the_digest_does_not_depend_on_the_last_bits_that_a_machine_computes():
    class Rounded(MadeUpGenerator):
        def generate(self, labels, n, generator):
            return super().generate(labels, n, generator) * (1 - 1e-3)

    real = draw_real(40, seed=0)

    assert MatchedGenerator(Rounded(), real).identity == MatchedGenerator(MadeUpGenerator(), real).identity


def test_it_says_that_it_is_matched_and_of_which_generator():
    plain = MadeUpGenerator().identity

    found = MatchedGenerator(MadeUpGenerator(), draw_real(40, seed=0)).identity

    assert (found.kind, found.name) == (plain.kind, plain.name)
    assert found.settings == {**plain.settings, "matched": True}


@pytest.mark.parametrize(
    ("inner", "used", "source", "uses"),
    [
        (Provenance.public(), None, Source.PRIVATE_ADAPTED, ("Mean and covariance",)),
        (Provenance.public(), Provenance.public(), Source.PUBLIC, ()),
        (
            Provenance(source=Source.PRIVATE_FILTERED, uses=("some were chosen",)),
            None,
            Source.PRIVATE_ADAPTED,
            ("some were chosen", "Mean and covariance"),
        ),
        (
            Provenance(source=Source.PRIVATE_ADAPTED, uses=("it learned",)),
            Provenance.public(),
            Source.PRIVATE_ADAPTED,
            ("it learned",),
        ),
    ],
)
def test_private_images_count_as_learned_from_beside_what_the_generator_used(inner, used, source, uses):
    generator = MadeUpGenerator(provenance=inner)

    found = MatchedGenerator(generator, draw_real(40, seed=0), provenance=used).identity.provenance

    assert found.source is source
    assert len(found.uses) == len(uses)
    assert all(said.startswith(wanted) for said, wanted in zip(found.uses, uses, strict=True))
