"""Every number of a table, worked out by hand for an attack that knows the answer."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from attacks.evaluation import evaluate as module
from attacks.evaluation.evaluate import Findings, evaluate
from attacks.evaluation.trial import Trial
from attacks.linear_leakage.robbing_the_fed import RobbingTheFed
from attacks.metrics.nulls import guess_mean
from attacks.metrics.quality import measure_psnr
from attacks.metrics.recovery import RecoveryReport
from attacks.threat_model import Needs, ThreatModel
from attacks.victim import Protection
from attacks.world import as_floats
from federation.errors import DataError
from federation.randomness import numpy_stream
from tests.attacks.evaluation.made_up_attacks import Recall, exactly, make_square_world
from tests.attacks.metrics.made_up_images import at_psnr

WORLD = make_square_world()
TRIAL = Trial(batch=5, batches=2, seeds=(0, 1))
MASKED = replace(TRIAL, synthetic=20, protection=Protection(mode="joint"))
TWO_ROUNDS = Needs(rounds=2)
Candidates = NDArray[np.float64]


def nothing(images: Candidates, _round_number: int) -> Candidates:
    return np.full_like(images, np.nan)


def at_25_db(images: Candidates, _round_number: int) -> Candidates:
    return at_psnr(images, 25.0)


def now_and_then(images: Candidates, round_number: int) -> Candidates:
    """Show every other image exactly and the rest at 25 dB; in the next round the other way round."""
    shown = at_25_db(images, 0)
    shown[round_number::2] = images[round_number::2]
    return shown


def shares_of(report: RecoveryReport) -> list[float | None]:
    """Return the share recovered at 18, 24, 30 and 40 dB."""
    return [rate.recovered.share for rate in report.rates if not rate.calibrated]


def victims_of(trial: Trial, seed: int) -> NDArray[np.int64]:
    return WORLD.draw_victims(trial.batches * trial.batch, numpy_stream(seed, "victims"))


def test_attack_that_shows_every_image_exactly_recovers_all_of_them() -> None:
    found = evaluate(Recall(world=WORLD), WORLD, TRIAL)

    assert (found.images, found.verbatim, found.alone, found.oracle.batches) == (20, 20, 20, 4)
    assert (found.oracle.unanswered, found.oracle.exact_copies) == (0, 20)
    assert [found.oracle.psnr_db, found.oracle.ssim] == pytest.approx([100.0, 1.0])
    assert shares_of(found.oracle) == [1.0] * 4
    assert found.read.tolist() == found.real.tolist()


def test_attack_that_finds_nothing_recovers_none() -> None:
    found = evaluate(Recall(world=WORLD, show=nothing), WORLD, TRIAL)

    assert (found.images, found.verbatim, found.alone, found.oracle.unanswered) == (20, 0, 20, 20)
    assert (found.oracle.psnr_db, found.oracle.ssim) == (0.0, 0.0)
    assert shares_of(found.oracle) == [0.0] * 4
    assert found.hungarian is not None
    assert found.hungarian.psnr_db == 0.0
    assert np.isnan(found.read).all()


def test_images_shown_at_25_db_count_up_to_24_db_and_not_as_verbatim() -> None:
    found = evaluate(Recall(world=WORLD, show=at_25_db), WORLD, TRIAL)

    assert found.oracle.psnr_db == pytest.approx(25.0)
    assert shares_of(found.oracle) == [1.0, 1.0, 0.0, 0.0]
    assert (found.verbatim, found.alone) == (0, 20)


@pytest.mark.parametrize(("psnr_db", "verbatim"), [(59.9, 0), (60.1, 20)])
def test_image_counts_as_verbatim_above_60_db(psnr_db: float, verbatim: int) -> None:
    found = evaluate(Recall(world=WORLD, show=lambda images, _: at_psnr(images, psnr_db)), WORLD, TRIAL)

    assert found.verbatim == verbatim


def test_oracle_takes_the_planted_place_where_hungarian_takes_the_best() -> None:
    attack = Recall(world=WORLD, show=lambda images, _: np.roll(images, 1, axis=0))

    found = evaluate(attack, WORLD, TRIAL)

    assert found.verbatim == 0
    assert found.hungarian is not None
    assert (found.oracle.pairing, found.hungarian.pairing) == ("oracle", "hungarian")
    assert found.hungarian.exact_copies == 20


@pytest.mark.parametrize(("largest", "there"), [(5 * 80, True), (5 * 80 - 1, False)])
def test_best_pairs_are_left_out_where_there_are_too_many(
    largest: int, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LARGEST_PAIRING", largest)

    found = evaluate(Recall(world=WORLD), WORLD, TRIAL)

    assert (found.hungarian is not None) is there
    assert (found.as_dict()["hungarian"] is not None) is there


def test_over_several_rounds_each_image_has_its_best_candidate() -> None:
    attack = Recall(world=WORLD, show=now_and_then, place=lambda homes, number: homes + 80 * number, needs=TWO_ROUNDS)

    found = evaluate(attack, WORLD, TRIAL)

    assert (found.images, found.verbatim, found.oracle.exact_copies) == (20, 20, 20)
    assert (found.alone, found.oracle.precision.basis) == (0, "match-at-30-db")


def test_image_without_a_place_in_one_round_is_read_in_the_other() -> None:
    attack = Recall(
        world=WORLD,
        place=lambda homes, number: np.where(homes % 2 == number, homes + 80 * number, -1),
        needs=TWO_ROUNDS,
    )

    found = evaluate(attack, WORLD, TRIAL)

    assert found.verbatim == 20


def test_image_without_a_place_in_any_round_is_unanswered() -> None:
    attack = Recall(world=WORLD, place=lambda homes, _: np.where(homes % 3 == 0, -1, homes), needs=TWO_ROUNDS)

    found = evaluate(attack, WORLD, TRIAL)

    victims = np.concatenate([victims_of(TRIAL, seed) for seed in TRIAL.seeds])
    assert found.oracle.unanswered == (victims % 3 == 0).sum()
    assert found.verbatim == (victims % 3 != 0).sum()


def test_images_of_one_place_are_counted_once_each_and_are_not_alone() -> None:
    attack = Recall(world=WORLD, place=lambda homes, _: homes % 7)

    found = evaluate(attack, WORLD, TRIAL)

    alone, verbatim = 0, 0
    for seed in TRIAL.seeds:
        for batch in victims_of(TRIAL, seed).reshape(2, 5).tolist():
            homes = [victim % 7 for victim in batch]
            alone += sum(homes.count(home) == 1 for home in homes)
            verbatim += sum(victim < 7 for victim in batch)
    assert (found.alone, found.verbatim) == (alone, verbatim)
    assert 0 < alone < 20


def test_nulls_are_measured_on_the_same_images_without_any_update() -> None:
    plain, masked = (evaluate(Recall(world=WORLD, show=nothing), WORLD, trial) for trial in (TRIAL, MASKED))

    victims = np.concatenate([victims_of(TRIAL, seed) for seed in TRIAL.seeds])
    real = as_floats(WORLD.real.take(victims))
    by_hand = measure_psnr(real, guess_mean(real, WORLD.foreign).images).capped_db.mean()
    assert set(plain.nulls) == {"mean", "scaled-mean", "best-foreign"}
    assert set(masked.nulls) == {*plain.nulls, "nearest-synthetic"}
    assert plain.nulls["mean"].psnr_db == pytest.approx(by_hand)
    assert plain.oracle.rates[0].excess["mean"] == -(plain.nulls["mean"].rates[0].recovered.share or 0)


def test_self_test_on_occupancy_is_the_binomial_of_what_shares_a_bin() -> None:
    found = evaluate(Recall(world=WORLD), WORLD, MASKED, capacity=64)

    check = found.occupancy
    assert check is not None
    probability = (1 - 1 / 64) ** (5 + 20 - 1)
    assert [check.count, check.trials, check.probability] == pytest.approx([20, 20, probability])
    assert (check.low, check.high) == tuple(binom.interval(0.99, 20, probability))
    assert found.as_dict()["occupancy"]["passed"] is (check.low <= 20 <= check.high)


def test_self_test_passes_for_bins_that_are_filled_evenly_and_fails_for_a_wrong_number_of_them() -> None:
    world, trial = make_square_world(train=600), replace(MASKED, batch=16, batches=4, synthetic=16)
    attack = RobbingTheFed(capacity=128, carrier="mlp")

    right, wrong = (evaluate(attack, world, trial, capacity=capacity).occupancy for capacity in (128, 16))

    assert right is not None
    assert wrong is not None
    assert right.passed
    assert not wrong.passed


@pytest.mark.parametrize(
    ("needs", "trial", "capacity"),
    [
        (Needs(), TRIAL, None),
        (TWO_ROUNDS, TRIAL, 64),
        (Needs(sees="aggregate"), replace(TRIAL, clients=2), 64),
    ],
    ids=["not-asked", "two-rounds", "two-hospitals"],
)
def test_self_test_is_left_out_where_it_does_not_apply(needs: Needs, trial: Trial, capacity: int | None) -> None:
    found = evaluate(Recall(world=WORLD, needs=needs), WORLD, trial, capacity=capacity)

    assert found.occupancy is None
    assert found.as_dict()["occupancy"] is None


@pytest.mark.parametrize(("show", "share"), [(exactly, 1.0), (nothing, 0.0)])
def test_real_images_are_identified_among_the_training_split_where_that_is_asked(show, share: float) -> None:
    found, unasked = (evaluate(Recall(world=WORLD, show=show), WORLD, TRIAL, identify=ask) for ask in (True, False))

    assert found.oracle.identified is not None
    assert (found.oracle.identified.count, found.oracle.identified.share) == (20, share)
    assert unasked.oracle.identified is None


def without_time(found: Findings) -> dict[str, Any]:
    return {key: value for key, value in found.as_dict().items() if key != "processor-s"}


def test_findings_repeat_for_their_seeds_and_differ_for_others() -> None:
    attack = RobbingTheFed(capacity=32, carrier="mlp", direction="random")

    first, again, other = (
        without_time(evaluate(attack, WORLD, replace(MASKED, seeds=seeds))) for seeds in ((0, 1), (0, 1), (0, 2))
    )

    assert first == again
    assert first != other


def test_numbers_are_fit_for_json_and_pictures_are_left_out() -> None:
    found = evaluate(Recall(world=WORLD), WORLD, MASKED, capacity=64, identify=True)

    content = json.loads(json.dumps(found.as_dict(), allow_nan=False))

    assert content["verbatim"] == 20
    assert content["oracle"]["raw-psnr-db"] is None
    assert {"real", "read"}.isdisjoint(content)
    assert all(key == key.lower().replace("_", "-") for key in content)
    assert content["processor-s"] > 0


def test_each_seed_has_shares_of_its_own() -> None:
    attack = Recall(world=WORLD, place=lambda homes, _: np.where(homes % 3 == 0, -1, homes))

    found = evaluate(attack, WORLD, TRIAL)

    shares = [float((victims_of(TRIAL, seed) % 3 != 0).mean()) for seed in TRIAL.seeds]
    assert found.by_seed == tuple((share,) * 5 for share in shares)
    assert shares[0] != shares[1]


def test_pictures_are_of_the_first_batch_and_at_most_eight() -> None:
    found = evaluate(Recall(world=WORLD, show=at_25_db), WORLD, replace(TRIAL, batch=10, batches=2))

    victims = victims_of(replace(TRIAL, batch=10), 0)[:8]
    assert found.real.tolist() == as_floats(WORLD.real.take(victims)).tolist()
    assert measure_psnr(found.real, found.read).raw_db == pytest.approx([25.0] * 8, abs=1e-3)


def test_progress_is_told_batch_by_batch() -> None:
    told: list[str] = []

    evaluate(Recall(world=WORLD), WORLD, TRIAL, progress=told.append)

    assert told == [f"recall, seed {seed}, batch {batch} of 2" for seed in (0, 1) for batch in (1, 2)]


def test_attack_that_the_threat_model_does_not_grant_is_refused() -> None:
    attack = RobbingTheFed(capacity=8)

    with pytest.raises(DataError, match="Expected a server with control of architecture"):
        evaluate(attack, WORLD, TRIAL, threat=ThreatModel(controls=frozenset({"parameters"})))
