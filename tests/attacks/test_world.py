"""Who has which images: no image is two things at once, and too few of them are an error in words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aegis_cache.proportions import Labels
from attacks.evaluation.trial import usual_plan
from attacks.world import World, as_floats
from federation.datasets.image_set import ImageSet
from federation.errors import DataError
from tests.attacks.made_up_worlds import make_dataset, make_images, make_info, make_world

PERFECT, GENERATED = make_world(), make_world(generated=600)
EMPTY = ImageSet(images=np.empty((0, 1, 8, 8), dtype=np.uint8), labels=np.empty(0, dtype=np.int64))


def marks(images: NDArray) -> list[bytes]:
    """Return one mark an image, of uint8 images or of the same as floats in [0, 1]."""
    pixels = images if images.dtype == np.uint8 else np.round(images * 255).astype(np.uint8)
    return [image.tobytes() for image in pixels]


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def no_image_twice(*groups: NDArray) -> bool:
    everything = [mark for group in groups for mark in marks(group)]
    return len(set(everything)) == len(everything)


@pytest.mark.parametrize("world", [PERFECT, GENERATED], ids=["perfect-generator", "generator"])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 60), synthetic=st.integers(1, 300))
def test_victims_cache_auxiliary_and_servers_generated_images_share_none(
    world: World, seed: int, count: int, synthetic: int
) -> None:
    draw = stream(seed)

    victims = world.draw_victims(count, draw)
    cache = world.draw_synthetic(synthetic, victims, draw)
    view = world.view(usual_plan(), draw)

    assert (len(victims), len(cache)) == (count, synthetic)
    assert no_image_twice(world.real.images[victims], cache.images, view.require_auxiliary(), view.require_generated())


@pytest.mark.parametrize(("labels", "even"), [("as-train", 0), ("smoothed", 8), ("balanced", 60)])
def test_cache_has_the_victims_classes_or_all_alike(labels: Labels, even: int) -> None:
    world = replace(GENERATED, labels=labels)
    victims = np.flatnonzero(world.real.labels == 1)[:5]

    counts = np.bincount(world.draw_synthetic(60, victims, stream()).labels, minlength=world.info.classes)

    expected = np.bincount(np.arange(even) % world.info.classes, minlength=world.info.classes)
    expected[1] += 60 - even
    assert counts.tolist() == expected.tolist()


def test_perfect_generators_server_images_are_half_of_the_servers_own() -> None:
    view = PERFECT.view(usual_plan(), stream())

    both = [*marks(view.require_auxiliary()), *marks(view.require_generated())]
    assert len(view.require_generated()) == len(PERFECT.auxiliary) // 2
    assert sorted(both) == sorted(marks(PERFECT.auxiliary.images))


def test_with_a_generator_all_of_the_servers_own_images_are_auxiliary() -> None:
    view = GENERATED.view(usual_plan(), stream())

    assert sorted(marks(view.require_auxiliary())) == sorted(marks(GENERATED.auxiliary.images))


@pytest.mark.parametrize(("pool", "servers"), [(600, 150), (5000, 1024)])
def test_server_has_a_quarter_of_the_generated_images_and_at_most_1024(pool: int, servers: int) -> None:
    world = replace(PERFECT, generated=make_images(pool, 5))

    view = world.view(usual_plan(), stream())

    assert len(view.require_generated()) == servers
    with pytest.raises(DataError, match=f"found {pool - servers} to draw from"):
        world.draw_synthetic(pool - servers + 1, np.arange(3), stream())


@pytest.mark.parametrize("world", [PERFECT, GENERATED], ids=["perfect-generator", "generator"])
def test_labels_stay_with_their_images(world: World) -> None:
    sources = [part for part in (world.real, world.auxiliary, world.generated) if part is not None]
    known = {mark: label for part in sources for mark, label in zip(marks(part.images), part.labels, strict=True)}

    view = world.view(usual_plan(), stream())
    cache = world.draw_synthetic(100, np.arange(20), stream())

    assert view.auxiliary_labels is not None
    assert [known[mark] for mark in marks(view.require_auxiliary())] == view.auxiliary_labels.tolist()
    assert [known[mark] for mark in marks(cache.images)] == cache.labels.tolist()


@pytest.mark.parametrize("world", [make_world(train=3000), make_world(generated=3000)], ids=["perfect", "generated"])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_synthetic_labels_come_in_the_victims_proportions(world: World, share: float) -> None:
    zeros, ones = (np.flatnonzero(world.real.labels == label) for label in (0, 1))
    victims = np.concatenate([zeros[: round(40 * share)], ones[: 40 - round(40 * share)]])

    cache = world.draw_synthetic(500, victims, stream())

    spread = math.sqrt(share * (1 - share) / 500)
    assert abs((cache.labels == 0).mean() - share) <= 4 * spread
    assert set(cache.labels) <= {0, 1}


def test_where_a_class_has_too_few_all_of_it_is_taken_and_others_make_up_for_it() -> None:
    pool = make_images(400, 5)
    labels = np.where(np.arange(400) < 12, 0, 1).astype(np.int64)
    world = replace(PERFECT, generated=ImageSet(images=pool.images, labels=labels))
    victims = np.flatnonzero(world.real.labels == 0)[:10]
    servers = set(marks(world.view(usual_plan(), stream()).require_generated()))
    of_class = {mark for mark in marks(pool.images[:12]) if mark not in servers}

    cache = world.draw_synthetic(50, victims, stream())

    assert len(set(marks(cache.images))) == 50
    assert set(marks(cache.images[cache.labels == 0])) == of_class


@pytest.mark.parametrize("count", [0, 401])
def test_as_many_victims_as_there_are_not_are_refused(count: int) -> None:
    with pytest.raises(DataError, match=f"Expected 1 <= {count} real images to attack <= 400"):
        PERFECT.draw_victims(count, stream())


def test_all_real_images_may_be_victims() -> None:
    assert sorted(PERFECT.draw_victims(400, stream())) == list(range(400))


def test_perfect_generator_has_no_more_than_the_images_that_no_victim_has() -> None:
    victims = np.arange(30)

    whole = PERFECT.draw_synthetic(370, victims, stream())

    assert sorted(marks(whole.images)) == sorted(marks(PERFECT.real.images[30:]))
    with pytest.raises(DataError, match="Expected 371 synthetic images, found 370"):
        PERFECT.draw_synthetic(371, victims, stream())


def test_world_without_images_for_the_server_is_refused() -> None:
    dataset = replace(make_dataset(), validation=EMPTY, test=EMPTY)

    with pytest.raises(DataError, match="Expected images for the server in the validation or test split, found none"):
        World.of(dataset)


def test_one_of_both_other_splits_is_enough_for_the_server() -> None:
    dataset = make_dataset()

    tested, validated = World.of(replace(dataset, validation=EMPTY)), World.of(replace(dataset, test=EMPTY))

    assert tested.auxiliary.digest == dataset.test.digest
    assert validated.auxiliary.digest == dataset.validation.digest


def test_draws_repeat_with_their_stream_and_differ_without() -> None:
    first, again, other = (PERFECT.draw_victims(50, stream(seed)) for seed in (1, 1, 2))
    cached, cached_again = (PERFECT.draw_synthetic(40, first, stream(3)) for _ in range(2))

    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()
    assert cached.digest == cached_again.digest


def test_images_for_the_nulls_are_all_of_other_people() -> None:
    assert marks(PERFECT.foreign) == marks(PERFECT.auxiliary.images)


@pytest.mark.parametrize(("train", "count"), [(400, 400), (700, 512)])
def test_threshold_is_calibrated_on_the_same_512_real_images_each_time(train: int, count: int) -> None:
    world = make_world(train=train)

    first, again = world.some_real(), world.some_real()

    assert len(set(marks(first))) == count
    assert set(marks(first)) <= set(marks(world.real.images))
    assert marks(first) == marks(again)


def test_pixels_become_floats_that_training_sees_too() -> None:
    images = ImageSet(images=np.array([[[[0, 51, 255]]]], dtype=np.uint8), labels=np.zeros(1, dtype=np.int64))

    floats = as_floats(images)

    assert floats.dtype == np.float32
    assert floats.ravel().tolist() == [0.0, np.float32(51) / np.float32(255), 1.0]


def test_several_labels_are_drawn_by_the_first() -> None:
    several = ImageSet(images=PERFECT.real.images, labels=np.eye(2, dtype=np.int64)[np.arange(400) % 2])
    world = World(info=make_info(), real=several, auxiliary=PERFECT.auxiliary)

    cache = world.draw_synthetic(100, np.flatnonzero(several.labels[:, 0] == 1)[:20], stream())

    assert cache.labels[:, 0].tolist() == [1] * 100
