"""A broken, dead, wedged or lying hospital costs its own updates and nobody else's, under every asynchronous rule."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Error, Message

from federation.errors import RunFailedError, SiteErrorCode
from federation.records.answers import ModelUpdate
from federation.records.fields import Records
from server_app import correspondence
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import VirtualGrid
from server_app.summary import RunStatus
from tests.doubles import Hospitals, Spoiler, configure
from tests.server_app.runs import (
    ASYNCHRONOUS,
    applied,
    away,
    dropping,
    events,
    final_digest,
    read_summary,
    run,
    run_on,
    seconds,
)
from tests.server_app.spoilers import SPOILERS

A, B, C = (f"hospital-{index:03d}" for index in range(3))
NO_SCORES: dict[str, Any] = {"run__hospital_evaluation": False}
TWO_PHASE = {"aggregation__release": "two-phase"}
RULES = [*ASYNCHRONOUS.values(), ASYNCHRONOUS["fedasync"] | TWO_PHASE]
RULE_NAMES = [*ASYNCHRONOUS, "fedasync in two phases"]
by_rule = pytest.mark.parametrize("rule", RULES, ids=RULE_NAMES)


def contributors(folder: Path) -> set[str]:
    return {row["hospital"] for rows in applied(folder).values() for row in rows}


def broken(_: ModelUpdate) -> Error:
    return Error(int(SiteErrorCode.TRAINING_FAILED), "x")


@by_rule
@pytest.mark.parametrize("kind", SPOILERS)
def test_bad_reply_is_refused_counted_and_never_applied(tmp_path: Path, rule: dict[str, Any], kind: str) -> None:
    spoiler, reason = SPOILERS[kind]

    summary = run(
        tmp_path, seconds(10, 12, 27), Hospitals(spoil={1: spoiler}), aggregation__rounds=4, **rule, **NO_SCORES
    )

    assert summary.model_version == 4
    assert contributors(tmp_path) == {A, C} or (contributors(tmp_path) == {A} and rule is not RULES[1])
    assert set(summary.per_hospital[B].refused) == {reason}
    assert summary.refused == summary.per_hospital[B].refused
    assert 1 <= summary.refused[reason] <= summary.per_hospital[B].dispatched


@by_rule
def test_broken_hospital_neither_spins_nor_holds_up_others(tmp_path: Path, rule: dict[str, Any]) -> None:
    timings = [SiteTiming(train_s=0.0), *seconds(10, 12, 27)]

    summary = run(tmp_path, timings, Hospitals(spoil={0: broken}), aggregation__rounds=8, **rule, **NO_SCORES)

    assert summary.model_version == 8
    assert summary.per_hospital[A].dispatched <= 8
    assert summary.refused == {"site-error:training-failed": summary.per_hospital[A].dispatched}
    run(tmp_path / "without", seconds(10, 12, 27), aggregation__rounds=8, **rule, **NO_SCORES)
    assert summary.virtual_s == read_summary(tmp_path / "without").virtual_s


@by_rule
def test_run_in_which_every_hospital_is_broken_ends_after_so_many_rounds(tmp_path: Path, rule: dict[str, Any]) -> None:
    hospitals = Hospitals(spoil=dict.fromkeys(range(3), broken))

    with pytest.raises(RunFailedError, match=r"3 rounds in a row .*'site-error:training-failed': 9"):
        run(tmp_path, seconds(10, 12, 27), hospitals, aggregation__rounds=8, **rule, **NO_SCORES)

    assert len(hospitals.trained) == 9


@by_rule
def test_hospitals_that_recover_before_the_limit_make_their_versions(tmp_path: Path, rule: dict[str, Any]) -> None:
    failures = [0]

    def fail_four_times(answer: ModelUpdate) -> ModelUpdate | Error:
        failures[0] += 1
        return broken(answer) if failures[0] <= 4 else answer

    hospitals = Hospitals(spoil=dict.fromkeys(range(2), fail_four_times))

    summary = run(tmp_path, seconds(10, 12), hospitals, aggregation__rounds=3, **rule, **NO_SCORES)

    assert (summary.status, summary.model_version) == (RunStatus.COMPLETED, 3)
    assert summary.refused == {"site-error:training-failed": 4}


@by_rule
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_wedged_node_costs_its_own_answers_only(tmp_path: Path, rule: dict[str, Any], kind: str) -> None:
    settings: dict[str, Any] = {"aggregation__rounds": 12, "run__evaluate_every": 4, "run__wait_s": 40.0, **rule}

    summary = run(tmp_path, seconds(10, 12, 14, 27), tamper=dropping(kind, 2), **settings)

    assert summary.model_version == 12
    assert set(summary.refused) <= {"late-reply", "discarded"}
    assert [item.updates > 0 for item in summary.per_hospital.values()] == [False, True, True, True]
    assert [point.version for point in summary.curve] == [0, 4, 8, 12]
    assert [item.accuracy is None for item in summary.per_hospital.values()] == [True, False, False, False]
    assert summary.virtual_s is not None
    assert summary.virtual_s < 12 * 27 + 3 * 60


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_wedged_node_does_not_keep_a_buffer_that_needs_everybody_waiting(tmp_path: Path, kind: str) -> None:
    settings: dict[str, Any] = {
        "aggregation__rule": "buffered",
        "aggregation__buffer_size": 3,
        "aggregation__rounds": 6,
        "run__evaluate_every": 2,
        "run__wait_s": 40.0,
    }

    summary = run(tmp_path, seconds(10, 12, 14), tamper=dropping(kind, 2), **settings)

    assert summary.model_version == 6
    assert [item.updates for item in summary.per_hospital.values()] == [0, 6, 6]
    assert summary.virtual_s is not None
    assert summary.virtual_s < 40 + 6 * 15 + 3 * 60


@by_rule
def test_wedged_nodes_do_not_keep_all_the_places_at_which_hospitals_may_work(
    tmp_path: Path, rule: dict[str, Any]
) -> None:
    settings: dict[str, Any] = {"aggregation__rounds": 12, "aggregation__sample_count": 2, "run__wait_s": 40.0, **rule}

    summary = run(tmp_path, seconds(10, 12, 14, 16), tamper=dropping("train", 2, 3), **settings, **NO_SCORES)

    assert summary.model_version == 12
    assert [item.updates > 0 for item in summary.per_hospital.values()] == [False, False, True, True]
    assert summary.virtual_s is not None
    assert summary.virtual_s < 12 * 25 + 2 * 40


@by_rule
def test_dead_node_costs_its_own_update_only(tmp_path: Path, rule: dict[str, Any]) -> None:
    rounds = 40 if rule["aggregation__rule"] == "fedasync" else 16
    settings = {**rule, **NO_SCORES, "aggregation__rounds": rounds, "run__allow_silent_hospitals": True}

    died, returned = 27.0, 130.0
    dying = away(4, begins=15, ends=returned)
    summary = run_on(configure(tmp_path, **settings), seconds(10, 12, 27), Hospitals(), make=dying)

    assert (summary.status, summary.model_version) == (RunStatus.COMPLETED, rounds)
    assert summary.refused["node-lost"] == summary.per_hospital[C].refused["node-lost"] == 1
    assert set(summary.refused) <= {"node-lost", "late-reply", "discarded"}
    asked = [event["elapsed_s"] for event in events(tmp_path, "dispatch") if event["hospital"] == C]
    assert asked[0] == 0
    assert returned <= asked[1] < returned + 15 + 27
    assert summary.per_hospital[C].updates > 0
    made = [event["elapsed_s"] for event in events(tmp_path, "apply") if died < event["elapsed_s"] < returned]
    assert len(made) >= 3
    assert max(later - earlier for earlier, later in itertools.pairwise(made)) <= 27


@pytest.mark.parametrize("decision", ["train.release", "train.discard"])
def test_hospital_wedged_at_a_decision_costs_its_own_updates_only(tmp_path: Path, decision: str) -> None:
    settings: dict[str, Any] = {
        **ASYNCHRONOUS["fedasync"],
        **TWO_PHASE,
        "aggregation__rounds": 12,
        "aggregation__max_staleness": 1,
    }

    summary = run(tmp_path, seconds(10, 12, 47), tamper=dropping(decision, 4), **settings, **NO_SCORES)

    assert summary.model_version == 12
    assert summary.per_hospital[C].updates == 0


@by_rule
def test_lost_message_is_given_up_and_its_hospital_asked_again(tmp_path: Path, rule: dict[str, Any]) -> None:
    lost: list[Message] = []

    def lose_one(message: Message) -> Iterable[Message]:
        if message.metadata.message_type == "train" and message.metadata.src_node_id == 2 and not lost:
            lost.append(message)
            return []
        return [message]

    settings: dict[str, Any] = {"aggregation__rounds": 15, "aggregation__give_up_s": 70.0, **rule, **NO_SCORES}
    summary = run(tmp_path, seconds(10, 12, 27), tamper=lose_one, **settings)

    assert summary.refused["node-lost"] == 1
    assert set(summary.refused) <= {"node-lost", "late-reply"}
    asked = [event["elapsed_s"] for event in events(tmp_path, "dispatch") if event["hospital"] == A]
    assert asked[0] == 0.0
    assert 70.0 <= asked[1] < 70.0 + 27
    assert summary.per_hospital[A].updates > 0


@by_rule
def test_reply_that_comes_twice_or_again_later_is_applied_once(tmp_path: Path, rule: dict[str, Any]) -> None:
    old: list[Message] = []

    def replay(message: Message) -> Iterable[Message]:
        if not message.metadata.message_type.startswith("train"):
            return [message]
        old.append(message)
        return [message, message, old[0]]

    summary = run(tmp_path / "replayed", seconds(10, 12, 27), tamper=replay, aggregation__rounds=6, **rule, **NO_SCORES)
    run(tmp_path / "clean", seconds(10, 12, 27), aggregation__rounds=6, **rule, **NO_SCORES)

    assert set(summary.refused) == {"duplicate-reply"}
    assert applied(tmp_path / "replayed") == applied(tmp_path / "clean")
    assert final_digest(tmp_path / "replayed") == final_digest(tmp_path / "clean")


@by_rule
def test_old_update_sent_for_a_new_task_is_refused(tmp_path: Path, rule: dict[str, Any]) -> None:
    first: list[ModelUpdate] = []

    def repeat(answer: ModelUpdate) -> ModelUpdate:
        first.append(answer)
        return first[0]

    summary = run(
        tmp_path, seconds(10, 12, 27), Hospitals(spoil={0: repeat}), aggregation__rounds=6, **rule, **NO_SCORES
    )

    assert set(summary.refused) == {"wrong-version"}
    assert summary.per_hospital[A].updates == 1


def test_reply_larger_than_the_model_allows_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    decode = correspondence._DECODERS["train"]

    def watch(content: Records) -> Any:
        sizes.append(sum(len(array.data) for record in content.array_records.values() for array in record.values()))
        return decode(content)

    monkeypatch.setitem(correspondence._DECODERS, "train", watch)
    spoiler: Spoiler = SPOILERS["size"][0]
    run(tmp_path, seconds(10, 12), Hospitals(spoil={1: spoiler}), aggregation__rounds=2, **NO_SCORES)

    assert len(sizes) == 2
    assert max(sizes) < 1000
    (detail,) = {event["detail"] for event in events(tmp_path, "refusal")}
    assert detail.startswith("Expected at most 66")
    assert "found 40" in detail


@pytest.mark.parametrize(("kind", "reason"), [("evaluate", "evaluation:too-large"), ("query", "too-large")])
def test_small_talk_that_is_as_large_as_a_model_is_refused_unread(tmp_path: Path, kind: str, reason: str) -> None:
    def swell(message: Message) -> Iterable[Message]:
        if message.metadata.message_type == kind and message.metadata.src_node_id == 3:
            message.content.config_records["config"]["more"] = b"x" * 70_000
        return [message]

    summary = run(tmp_path, seconds(10, 12), tamper=swell, aggregation__rounds=1)

    assert set(summary.refused) == {reason}
    assert (B in summary.per_hospital) is (kind == "evaluate")
    assert summary.per_hospital[A].accuracy is not None


@pytest.mark.parametrize(
    ("lie", "reason"),
    [({"model_version": 7}, "wrong-version"), ({"hospital_id": A}, "wrong-hospital")],
    ids=["version", "hospital"],
)
@pytest.mark.parametrize("phase", ["ready", "discarded"])
def test_forged_word_about_a_result_is_refused(tmp_path: Path, phase: str, lie: dict[str, Any], reason: str) -> None:
    def forge(message: Message) -> Iterable[Message]:
        config: Any = message.content.config_records.get("config", {}) if message.has_content() else {}
        if config.get("phase") == phase and message.metadata.src_node_id == 3:
            config.update({key.replace("_", "-"): value for key, value in lie.items()})
        return [message]

    settings: dict[str, Any] = {
        **ASYNCHRONOUS["fedasync"],
        **TWO_PHASE,
        "aggregation__max_staleness": 1,
        "aggregation__rounds": 6,
    }
    summary = run(tmp_path, seconds(10, 35), tamper=forge, **settings, **NO_SCORES)

    assert set(summary.refused) == {reason}
    assert summary.per_hospital[B].updates == 0


def test_result_that_is_said_to_be_ready_without_having_been_asked_for_is_malformed(tmp_path: Path) -> None:
    flat = configure(tmp_path, aggregation__rounds=2, run__allow_silent_hospitals=True, **NO_SCORES)

    def deceived(app: Any, sites: Any, run_config: dict[str, Any]) -> VirtualGrid:
        return VirtualGrid(app, sites, run_config | {"aggregation.release": "two-phase"})

    with pytest.raises(RunFailedError, match="'malformed': 3"):
        run_on(flat, seconds(10), Hospitals(), make=deceived)
