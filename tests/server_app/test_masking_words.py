"""What a run says of masking: what was measured, what it does not protect against, and never that it is private."""

from __future__ import annotations

import re
from typing import Any

import pytest

from federation.config import MaskingConfig, PrivacyConfig, TrainingConfig, parse_configuration
from server_app.guarantees import describe_guarantees
from server_app.masking_words import describe_masking, list_effects, list_gaps, weighs_equally
from server_app.progress import Progress
from server_app.results import summarize
from server_app.summary import RunStatus

SGD = TrainingConfig(optimizer="sgd")
ADAM = TrainingConfig(optimizer="adam")
ADAMW = TrainingConfig(optimizer="adamw")
HEAVY = TrainingConfig(optimizer="sgd", momentum=0.9)
MODES = ("sequential", "lambda", "joint", "interleaved")
EVERY_REFRESH = ("none", "subset", "augment", "rotate", "subset+augment", "rotate+augment")
MECHANISMS = ("none", "dp-sgd", "update-gaussian")


def ask(mode: Any = "interleaved", **changes: Any) -> MaskingConfig:
    return MaskingConfig(mode=mode, **changes)


def effects(masking: MaskingConfig, training: TrainingConfig = ADAM, mechanism: str = "none") -> str:
    return " ".join(list_effects(masking, training, mechanism))


def gaps(masking: MaskingConfig, training: TrainingConfig = ADAM) -> str:
    return "; ".join(list_gaps(masking, training))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_run_without_masking_says_nothing_of_it(mechanism: Any) -> None:
    sentences = describe_guarantees(PrivacyConfig(mechanism=mechanism), {}, masking=ask("none"), training=ADAM)

    assert not [sentence for sentence in sentences if re.search("mask|synthetic", sentence)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_masked_run_says_once_what_was_measured_and_once_what_is_not_protected(mechanism: Any, mode: str) -> None:
    privacy = PrivacyConfig(mechanism=mechanism)

    plain = describe_guarantees(privacy, {}, masking=ask("none"), training=ADAM)
    masked = describe_guarantees(privacy, {}, masking=ask(mode), training=ADAM)

    assert masked[:-2] == plain
    assert masked[-2].startswith("Measured, not guaranteed (masking): ")
    assert masked[-1].startswith("Not protected by masking: ")


def test_masked_run_without_a_mechanism_still_claims_no_epsilon() -> None:
    sentences = describe_guarantees(PrivacyConfig(), {}, masking=ask(), training=ADAM)

    assert "so no epsilon is claimed" in sentences[1]
    assert "No epsilon follows from masking, and the ledger counts nothing for it." in sentences[-1]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_epsilon_of_a_mechanism_is_said_to_come_from_it_alone(mechanism: str) -> None:
    (_, missing) = describe_masking(ask(), ADAM, mechanism)

    assert "No epsilon follows from masking" in missing
    assert ("comes from the mechanism alone" in missing) == (mechanism != "none")
    assert ("outside the mechanism" in missing) == (mechanism == "dp-sgd")


@pytest.mark.parametrize(
    ("mode", "training", "equal"),
    [
        ("joint", ADAM, True),
        ("joint", HEAVY, True),
        ("interleaved", ADAMW, True),
        ("interleaved", SGD, True),
        ("lambda", SGD, True),
        ("lambda", HEAVY, False),
        ("lambda", ADAM, False),
        ("lambda", ADAMW, False),
        ("sequential", SGD, False),
        ("sequential", ADAM, False),
    ],
)
def test_share_is_stated_only_where_real_and_synthetic_images_weigh_the_same(
    mode: str, training: TrainingConfig, equal: bool
) -> None:
    masking = ask(mode)

    assert weighs_equally(masking, training) == equal
    assert ("(1 - 1/k)^(n + M - 1)" in effects(masking, training)) == equal
    assert ("No share is stated" in effects(masking, training)) != equal
    assert ("weighs as much as" in effects(masking, training)) == equal
    assert ("more bins than the 1024 assumed" in gaps(masking, training)) == equal
    assert ("a layer with bins, however many" in gaps(masking, training)) != equal


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clipping_is_told_where_real_gradients_are_clipped_before_synthetic_ones_join(mechanism: str) -> None:
    assert ("before clipping" in effects(ask(), mechanism=mechanism)) == (mechanism == "dp-sgd")


def test_sequential_is_said_to_protect_hardly_at_all() -> None:
    told = effects(ask("sequential", size="2048"), TrainingConfig(batch_size=32))

    assert "weighs 32/2048 of a real one" in told
    assert "protects hardly at all" in told
    assert "weighs 64/M of a real one" in effects(ask("sequential", size="auto"))
    assert not [mode for mode in MODES[1:] if "hardly at all" in effects(ask(mode))]


@pytest.mark.parametrize(("training", "name"), [(ADAM, "Adam"), (ADAMW, "AdamW")])
def test_lambda_is_said_to_lose_its_weights_under_an_optimizer_that_rescales(
    training: TrainingConfig, name: str
) -> None:
    told = effects(ask("lambda"), training)

    assert f"lost under {name}, whose steps do not depend on the scale of the loss" in told
    assert "are lost" not in effects(ask("lambda"), SGD)
    assert not [mode for mode in ("sequential", "joint", "interleaved") if "are lost" in effects(ask(mode), training)]


def test_lambda_with_momentum_is_not_said_to_weigh_equally() -> None:
    assert "Momentum 0.9 carries steps on real images on" in effects(ask("lambda"), HEAVY)
    assert "Momentum" not in effects(ask("lambda"), SGD)
    assert "Momentum" not in effects(ask("joint"), HEAVY)


def test_numbers_asked_for_are_told() -> None:
    masking = ask(size="512", capacity=4096)

    assert "(4096 assumed)" in effects(masking)
    assert "M = 512 synthetic ones" in effects(masking)
    assert "and M synthetic ones" in effects(ask(size="auto"))
    assert "more bins than the 4096 assumed" in gaps(masking)


@pytest.mark.parametrize("refresh", EVERY_REFRESH)
def test_gap_that_refreshing_leaves_is_the_one_of_this_run(refresh: str) -> None:
    told = gaps(ask(refresh=refresh))

    assert ("stand there without synthetic ones" in told) == (refresh == "none")
    assert set(re.findall(r"\(refresh (\w+)\)", told)) == set(refresh.split("+"))


@pytest.mark.parametrize("mode", ["interleaved", "joint"])
def test_servers_that_count_fewer_images_are_gaps_of_modes_that_are_counted(mode: str) -> None:
    told = gaps(ask(mode))

    assert "makes its bins uneven" in told
    assert "only images of one class move its bins" in told
    assert ("bins die after the first optimizer step" in told) == (mode == "interleaved")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("refresh", EVERY_REFRESH)
def test_what_no_mode_protects_against_is_always_named(mode: str, refresh: str) -> None:
    told = gaps(ask(mode, refresh=refresh))

    for expected in (
        "several rounds with the same real images",
        "synthetic images that differ visibly from real ones",
        "of low resolution, or of an average image",
        "membership inference",
        "counts of labels",
    ):
        assert told.count(expected) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("training", [SGD, HEAVY, ADAM, ADAMW])
def test_masking_never_stands_beside_words_that_claim_privacy(
    mode: str, mechanism: str, training: TrainingConfig
) -> None:
    text = " ".join(describe_masking(ask(mode), training, mechanism))

    assert "not differential privacy" in text
    assert not re.search(r"(?<!not )differential privacy|differentially private", text)
    assert not re.search(r"(?<!not )\bguarantee|zero leakage|anonym|\bprivate\b|\bsafe\b|\bsecure", text)
    assert not re.search(r"epsilon \d|delta", text)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_summary_of_a_run_tells_of_the_masking_that_was_configured(optimizer: str) -> None:
    flat = {"run.hospitals": 2, "masking.mode": "lambda", "training.optimizer": optimizer}

    summary = summarize(
        parse_configuration(flat),
        Progress(),
        engine="virtual",
        status=RunStatus.COMPLETED,
        reason="",
        final_hospitals={},
    )

    assert "(mode lambda)" in summary.guarantees[-2]
    assert ("lost under Adam" in summary.guarantees[-2]) == (optimizer == "adam")
    assert summary.guarantees[-1].startswith("Not protected by masking: ")
