"""The attacks catch a generator that copies, tell nothing where there is nothing, and are measured as elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve
from torch import Tensor

from aegis_cache.audit.membership import _judge, audit_membership, catch_members
from aegis_cache.features.pixels import PixelFeatures
from federation.datasets.image_set import ImageSet
from federation.errors import DataError

Draw = Callable[[int, int], ImageSet]


def test_fresh_samples_tell_nothing(draw: Draw) -> None:
    (found,) = audit_membership(draw(300, 3), draw(300, 1), draw(300, 2), seed=0)

    assert found.auc == pytest.approx(0.5, abs=0.07)
    assert found.low <= 0.5 <= found.high
    assert found.null_low < found.auc < found.null_high
    assert found.p_value > 0.025


def test_copies_of_half_the_members_are_caught(draw: Draw) -> None:
    members, others = draw(400, 1), draw(400, 2)
    synthetic = members.take(np.arange(200))

    results = audit_membership(synthetic, members, others, [PixelFeatures(pool=2)], seed=0)

    for found in results:
        # Half score above everyone, the rest like anybody: 0.5 + 0.5 * 0.5.
        assert found.auc == pytest.approx(0.75, abs=0.05)
        assert found.low > 0.65
        assert found.p_value == pytest.approx(1 / 401)
        assert found.caught[0].share == pytest.approx(0.5, abs=0.03)
    assert len(results) == 2


def test_area_is_that_of_scikit_learn_and_inside_its_interval() -> None:
    stream = np.random.default_rng(0)
    is_member = np.arange(500) < 200
    scores = (stream.normal(size=500) + 0.5 * is_member).round(1).astype(np.float64)

    found = _judge("x", scores, is_member, np.random.default_rng(1))

    assert found.auc == pytest.approx(roc_auc_score(is_member, scores))
    assert found.low < found.auc < found.high
    # Hanley and McNeil (Radiology 143, 1982): standard error 0.026 here.
    assert found.high - found.low == pytest.approx(4 * 0.026, rel=0.15)
    # Mann-Whitney null: standard error sqrt((n + m + 1) / (12 n m)).
    assert found.null_high - found.null_low == pytest.approx(2 * 1.96 * np.sqrt(501 / (12 * 200 * 300)), rel=0.15)


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_members_caught_at_a_rate_are_those_of_the_curve(rate: float) -> None:
    stream = np.random.default_rng(0)
    is_member = np.arange(900) < 400
    scores = stream.normal(size=900) + 1.5 * is_member

    found = catch_members(scores, is_member, rate)

    false_positives, true_positives, _ = roc_curve(is_member, scores, drop_intermediate=False)
    assert found.share == pytest.approx(true_positives[false_positives <= rate].max())


def test_rate_below_one_image_is_not_claimed() -> None:
    assert catch_members(np.arange(100.0), np.arange(100) < 50, 0.01).share is None


def test_other_shares_of_the_classes_do_not_look_like_membership(draw: Draw) -> None:
    pool, others = draw(600, 1), draw(600, 2)
    calm, rough = (np.flatnonzero(pool.labels == label) for label in (0, 1))
    members = pool.take(np.concatenate([calm, rough[:60]]))
    non_members = others.take(np.concatenate([calm[:60], rough]))

    (found,) = audit_membership(draw(300, 3), members, non_members, seed=0)

    assert found.auc == pytest.approx(0.5, abs=0.08)


def test_small_loss_gives_members_away(draw: Draw) -> None:
    members, others = draw(150, 1), draw(150, 2)
    known = {image.tobytes() for image in members.images}

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        pixels = (images * 255).round().to(torch.uint8).numpy()
        return torch.tensor([0.1 if image.tobytes() in known else 1.0 for image in pixels]) + 0.01 * labels

    found = audit_membership(draw(50, 3), members, others, seed=0, loss_of=loss_of)[-1]

    assert found.attack == "small loss of the generator"
    assert found.auc == 1.0
    assert found.caught[0].share == 1.0


def test_same_seed_gives_the_same_result(draw: Draw) -> None:
    sets = draw(60, 3), draw(60, 1), draw(60, 2)

    first, second, other = (audit_membership(*sets, seed=seed) for seed in (1, 1, 2))

    assert first == second
    assert first != other


@pytest.mark.parametrize("shape", [(4, 2), (1,)])
def test_losses_other_than_one_an_image_are_refused(draw: Draw, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="one finite loss"):
        audit_membership(draw(4, 3), draw(4, 1), draw(4, 2), seed=0, loss_of=lambda _images, _labels: torch.ones(shape))


def test_losses_that_are_not_finite_are_refused(draw: Draw) -> None:
    with pytest.raises(DataError, match="one finite loss"):
        audit_membership(draw(4, 3), draw(4, 1), draw(4, 2), seed=0, loss_of=lambda images, _: images[:, 0, 0, 0] / 0)


def test_empty_sets_are_refused(draw: Draw) -> None:
    with pytest.raises(DataError, match="found none"):
        audit_membership(draw(4, 3), draw(0, 1), draw(4, 2), seed=0)
