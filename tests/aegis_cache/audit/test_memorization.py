"""Copies show as memorized in their share, fresh images nothing beyond chance, and a baseline stands beside each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from aegis_cache.audit.memorization import EVERYTHING, GroupResult, MemorizationReport, audit_memorization
from aegis_cache.features.pixels import PixelFeatures
from federation.datasets.image_set import ImageSet
from federation.errors import DataError

Draw = Callable[[int, int], ImageSet]
NAMES = ("calm", "rough")


def with_copies(fresh: ImageSet, train: ImageSet, count: int, *, levels: int = 0) -> ImageSet:
    """Return `fresh` with its first `count` images replaced by those of `train`, up to noise of some grey levels."""
    noise = np.random.default_rng(5).integers(-levels, levels + 1, size=train.images[:count].shape)
    images = fresh.images.copy()
    images[:count] = np.clip(train.images[:count] + noise, 0, 255)
    return ImageSet(images=images, labels=fresh.labels)


def result_of(report: MemorizationReport, group: str = EVERYTHING, space: int = 0) -> GroupResult:
    return [result for result in report.results if result.group == group][space]


@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("levels", [0, 4])
def test_memorized_share_is_the_share_of_copies(draw: Draw, share: float, levels: int) -> None:
    train, held_out, fresh = draw(400, 1), draw(400, 2), draw(400, 3)
    synthetic = with_copies(fresh, train, int(400 * share), levels=levels)

    report = audit_memorization(synthetic, train, held_out, [PixelFeatures(pool=2)], class_names=NAMES, seed=0)

    for group in (EVERYTHING, *NAMES):
        for space in (0, 1):
            found = result_of(report, group, space)
            assert found.memorized_share == pytest.approx(share, abs=0.035)
            assert found.closer.low > 0
            assert found.neighbour_ratio.excess == pytest.approx(share, abs=0.035)
            assert found.ratio_of_first_percentiles < 0.6


def test_fresh_images_show_no_excess_in_most_of_twenty_audits(draw: Draw) -> None:
    closer = ratios = 0
    for seed in range(20):
        train, held_out, synthetic = (draw(240, 100 + 3 * seed + number) for number in range(3))
        found = result_of(audit_memorization(synthetic, train, held_out, class_names=NAMES, seed=seed))
        closer += found.closer.low <= 0 <= found.closer.high
        ratios += found.neighbour_ratio.low <= 0 <= found.neighbour_ratio.high
        assert 0.95 < found.ratio_of_medians < 1.05
        assert 0.9 < found.null_ratio_of_medians < 1.1

    # 95 % intervals: fewer than 16 of 20 covering happens once in 390 times.
    assert closer >= 16
    assert ratios >= 16


def test_share_is_measured_on_images_that_did_not_draw_the_line(draw: Draw) -> None:
    train, synthetic = draw(300, 1), draw(300, 3)

    found = result_of(audit_memorization(synthetic, train, draw(300, 2), class_names=NAMES, seed=0))

    assert found.closer.held_out == 150
    assert found.closer.synthetic == 300
    assert found.memorized_share == pytest.approx(found.share_closer - found.closer.held_out_share)


def test_other_class_mix_of_synthetic_images_is_no_memorization(draw: Draw) -> None:
    train, held_out, fresh = draw(400, 1), draw(400, 2), draw(800, 3)
    calm = fresh.take(np.flatnonzero(fresh.labels == 0))

    found = result_of(audit_memorization(calm, train, held_out, class_names=NAMES, seed=0))

    assert found.closer.low <= 0 <= found.closer.high
    assert 0.95 < found.ratio_of_medians < 1.05


def test_class_is_compared_with_its_own_training_images_only(draw: Draw) -> None:
    train, held_out, fresh = draw(400, 1), draw(400, 2), draw(400, 3)
    calm, rough = (np.flatnonzero(train.labels == label) for label in (0, 1))
    images = fresh.images.copy()
    images[rough] = train.images[calm]
    mislabelled = ImageSet(images=images, labels=fresh.labels)

    report = audit_memorization(mislabelled, train, held_out, class_names=NAMES, seed=0)

    assert result_of(report, "rough").ratio_of_first_percentiles > 0.3
    assert report.duplicates.exact[rough].all()


def test_copies_are_listed_and_lead_the_worst_pairs(draw: Draw) -> None:
    train, fresh = draw(200, 1), draw(100, 3)
    images = fresh.images.copy()
    images[[10, 21]] = train.images[[44, 55]]
    synthetic = ImageSet(images=images, labels=fresh.labels)

    report = audit_memorization(synthetic, train, draw(200, 2), class_names=NAMES, seed=0)

    assert np.flatnonzero(report.duplicates.found).tolist() == [10, 21]
    assert {(pair.synthetic, pair.train) for pair in report.worst[:2]} == {(10, 44), (21, 55)}
    assert [pair.relative_distance for pair in report.worst[:2]] == [0.0, 0.0]
    assert report.worst[2].relative_distance > 0.3


def test_copies_count_even_where_held_out_images_repeat_training_images(draw: Draw) -> None:
    train, fresh = draw(400, 1), draw(400, 3)
    held_out = with_copies(draw(400, 2), train, 20)
    synthetic = with_copies(fresh, train, 160)

    found = result_of(audit_memorization(synthetic, train, held_out, class_names=NAMES, seed=0))

    assert found.share_closer == pytest.approx(0.4)
    assert found.closer.held_out_share == pytest.approx(0.05, abs=0.03)
    assert found.closer.low > 0.2


def test_same_seed_gives_the_same_audit_and_another_one_other_halves(draw: Draw) -> None:
    sets = draw(200, 1), draw(200, 2), draw(200, 3)
    state = torch.random.get_rng_state()

    first, second, other = (audit_memorization(*sets, class_names=NAMES, seed=seed).results for seed in (7, 7, 8))

    assert first == second
    assert first != other
    assert torch.equal(torch.random.get_rng_state(), state)


def test_class_with_too_few_images_is_reported_as_untested(draw: Draw) -> None:
    held_out = draw(100, 2)
    few = held_out.take(np.concatenate([np.flatnonzero(held_out.labels == 0), np.array([1, 3, 5])]))

    report = audit_memorization(draw(50, 3), draw(100, 1), few, class_names=NAMES, seed=0)

    assert report.untested == ("rough",)
    assert [result.group for result in report.results] == [EVERYTHING, "calm"]
    assert len(report.duplicates.found) == 50


def test_nothing_to_test_is_refused(draw: Draw) -> None:
    with pytest.raises(DataError, match="4 held-out images"):
        audit_memorization(draw(10, 3), draw(10, 1), draw(6, 2), class_names=NAMES, seed=0)


def test_several_labels_an_image_are_refused(draw: Draw) -> None:
    plain = draw(20, 1)
    several = ImageSet(images=plain.images, labels=np.eye(2, dtype=np.int64)[plain.labels])

    with pytest.raises(DataError, match="one label per image"):
        audit_memorization(several, plain, plain, class_names=NAMES, seed=0)


def test_unknown_label_is_refused(draw: Draw) -> None:
    with pytest.raises(DataError, match="1 classes"):
        audit_memorization(draw(20, 1), draw(20, 2), draw(20, 3), class_names=("one",), seed=0)
