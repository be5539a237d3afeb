"""The engine over the virtual grid with scripted hospitals: closed forms, refusals, deadlines, participation."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from flwr.app import Context, Error, Message, RecordDict

from federation.config import flatten
from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import RunFailedError
from federation.models import build_model
from federation.parameters import Parameters, is_finite, read_parameters
from federation.records.answers import ModelUpdate
from server_app.engine import Engine
from server_app.main import app as server_app
from server_app.run_folder import RunFolder
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import VirtualGrid, VirtualSite
from server_app.summary import RunStatus, Summary
from tests.doubles import INFO, Hospitals, Spoiler, changed, configure
from tests.server_app.spoilers import SPOILERS


def final_parameters(folder: Path) -> Parameters:
    return safetensors.torch.load_file(folder / "run" / "model.safetensors")


def initial_parameters(folder: Path) -> Parameters:
    return read_parameters(build_model(configure(folder).model, INFO, seed=0))


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "run" / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def as_error(message: Message, error: Error) -> Message:
    """Return `message` with an error in place of its content."""
    parts: dict[str, Any] = {"error": error, "metadata": message.metadata}
    return Message(**parts)


def run(folder: Path, hospitals: Hospitals, count: int, **settings: Any) -> Summary:
    return simulate(configure(folder, **settings), hospitals.app(), [SiteTiming()] * count)


def test_fedavg_moves_every_parameter_by_the_example_weighted_mean(tmp_path: Path) -> None:
    hospitals = Hospitals(examples={0: 10, 1: 30})

    summary = run(tmp_path, hospitals, 2, aggregation__rounds=2)

    expected_move = sum((0.01 * 10 + 0.02 * 30) / 40 + version * 0.001 for version in (0, 1))
    for name, start in initial_parameters(tmp_path).items():
        torch.testing.assert_close(final_parameters(tmp_path)[name], start + expected_move)
    assert (summary.status, summary.updates_applied, summary.model_version) == (RunStatus.COMPLETED, 4, 2)


@pytest.mark.parametrize(("weighting", "weights"), [("uniform", (1, 1)), ("sqrt", (3, 5)), ("examples", (9, 25))])
def test_size_factor_decides_how_much_a_hospital_counts(
    tmp_path: Path, weighting: str, weights: tuple[int, int]
) -> None:
    hospitals = Hospitals(examples={0: 9, 1: 25})

    run(tmp_path, hospitals, 2, aggregation__rounds=1, aggregation__weighting=weighting)

    move = (0.01 * weights[0] + 0.02 * weights[1]) / sum(weights)
    for name, start in initial_parameters(tmp_path).items():
        torch.testing.assert_close(final_parameters(tmp_path)[name], start + move)
    rows = events(tmp_path, "apply")[0]["updates"]
    assert [row["weight"] for row in rows] == pytest.approx([w / sum(weights) for w in weights])


@pytest.mark.parametrize("kind", SPOILERS)
def test_bad_reply_is_refused_counted_and_costs_only_itself(tmp_path: Path, kind: str) -> None:
    spoiler, reason = SPOILERS[kind]
    hospitals = Hospitals(spoil={1: spoiler})

    summary = run(tmp_path, hospitals, 3, aggregation__rounds=2, run__allow_silent_hospitals=True)

    assert summary.refused == {reason: 2}
    assert summary.per_hospital["hospital-001"].refused == {reason: 2}
    assert summary.updates_applied == 4
    move = sum((0.01 + 0.03) / 2 + version * 0.001 for version in (0, 1))
    for name, start in initial_parameters(tmp_path).items():
        torch.testing.assert_close(final_parameters(tmp_path)[name], start + move)


def test_refusal_says_what_was_expected_and_found(tmp_path: Path) -> None:
    hospitals = Hospitals(spoil={0: SPOILERS["shape"][0]})

    run(tmp_path, hospitals, 2, aggregation__rounds=1, run__allow_silent_hospitals=True)

    (refusal,) = events(tmp_path, "refusal")
    assert refusal["detail"] == "Expected hidden.weight of shape (2, 16), found (2, 16, 1)."


def test_duplicate_reply_is_counted_and_applied_once(tmp_path: Path) -> None:
    def twice(message: Message) -> Iterable[Message]:
        return [message, message] if message.metadata.message_type == "train" else [message]

    settings = configure(tmp_path, aggregation__rounds=1)
    summary = simulate(settings, Hospitals().app(), [SiteTiming()] * 2, tamper=twice)

    assert summary.refused == {"duplicate-reply": 2}
    assert summary.updates_applied == 2


def test_reply_of_another_node_is_refused_and_the_true_answer_still_counts(tmp_path: Path) -> None:
    def forge_first(message: Message) -> Iterable[Message]:
        if message.metadata.message_type != "train":
            return [message]
        forged = Message(message.content, reply_to=message)
        forged.metadata.__dict__.update(message.metadata.__dict__ | {"_src_node_id": 99})
        return [forged, message]

    summary = simulate(
        configure(tmp_path, aggregation__rounds=1), Hospitals().app(), [SiteTiming()] * 2, tamper=forge_first
    )

    assert summary.refused == {"unknown-node": 2}
    assert summary.updates_applied == 2


def test_deadline_closes_the_round_and_the_late_reply_is_refused(tmp_path: Path) -> None:
    timings = [SiteTiming(train_s=10), SiteTiming(train_s=10), SiteTiming(train_s=45)]
    settings = configure(
        tmp_path, aggregation__rounds=5, aggregation__deadline_s=20.0, run__allow_silent_hospitals=True,
        run__hospital_evaluation=False,
    )  # fmt: skip

    summary = simulate(settings, Hospitals().app(), timings)

    assert summary.model_version == 5
    assert summary.per_hospital["hospital-002"].updates == 0
    assert summary.refused["late-reply"] >= 1
    assert summary.virtual_s is not None
    assert summary.virtual_s < 5 * 20


def test_hospital_that_contributed_nothing_fails_the_run_unless_allowed(tmp_path: Path) -> None:
    hospitals = Hospitals(spoil={1: SPOILERS["nan"][0]})

    with pytest.raises(RunFailedError, match="hospital-001"):
        run(tmp_path, hospitals, 2, aggregation__rounds=1)

    written = Summary.model_validate_json((tmp_path / "run" / "summary.json").read_text())
    assert written.status is RunStatus.FAILED
    assert written.silent_hospitals == ["hospital-001"]


def test_configured_hospital_that_never_enrols_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="charite"):
        run(tmp_path, Hospitals(), 2, aggregation__rounds=1, run__hospital_ids="hospital-000,hospital-001,charite")

    with pytest.raises(RunFailedError, match="never enrolled 1"):
        run(tmp_path, Hospitals(), 2, aggregation__rounds=1, run__hospitals=3)


def test_hospital_that_is_not_configured_is_refused(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(), 2, aggregation__rounds=1, run__hospital_ids="hospital-000")

    assert list(summary.per_hospital) == ["hospital-000"]
    assert summary.refused == {"wrong-hospital": 1}


def test_run_without_hospitals_fails_with_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"at least run.min-hospitals=1 .* found 0 enrolled on 0 connected"):
        run(tmp_path, Hospitals(), 0)


def test_too_few_hospitals_fail_after_the_bounded_wait(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"min-hospitals=3 .* run.wait-s=7, found 2 enrolled"):
        run(tmp_path, Hospitals(), 2, run__min_hospitals=3, run__hospitals=3, run__wait_s=7.0)


def test_rounds_without_enough_updates_fail_the_run_after_the_limit(tmp_path: Path) -> None:
    hospitals = Hospitals(spoil={0: SPOILERS["nan"][0], 1: SPOILERS["nan"][0]})

    with pytest.raises(RunFailedError, match=r"3 rounds in a row .*'non-finite': 6"):
        run(tmp_path, hospitals, 2, aggregation__max_empty_rounds=3)


def test_updates_of_a_round_that_is_too_small_are_not_applied_and_not_asked_for_again(tmp_path: Path) -> None:
    hospitals = Hospitals(spoil={1: SPOILERS["nan"][0]})

    with pytest.raises(RunFailedError, match="2 rounds in a row brought fewer than 2 usable updates"):
        run(tmp_path, hospitals, 2, aggregation__min_updates=2, aggregation__max_empty_rounds=2)

    written = Summary.model_validate_json((tmp_path / "run" / "summary.json").read_text())
    assert written.refused == {"non-finite": 2}
    assert written.updates_applied == 0
    assert [written.per_hospital[f"hospital-00{index}"].dispatched for index in range(2)] == [1, 2]


def test_update_of_a_round_that_is_too_small_counts_in_the_next(tmp_path: Path) -> None:
    failures = [0]

    def fail_once(answer: ModelUpdate) -> Any:
        failures[0] += 1
        return SPOILERS["nan"][0](answer) if failures[0] == 1 else answer

    hospitals = Hospitals(spoil={1: fail_once})

    summary = run(tmp_path, hospitals, 2, aggregation__rounds=2, aggregation__min_updates=2)

    assert (summary.model_version, summary.updates_applied, summary.refused) == (2, 4, {"non-finite": 1})
    assert [version for name, version in hospitals.trained if name == "hospital-000"] == [0, 1]


def test_round_whose_updates_weigh_nothing_is_an_empty_one(tmp_path: Path) -> None:
    shifts = "hospital-000=1,hospital-001=1"

    with pytest.raises(RunFailedError, match=r"2 rounds in a row .*'round-too-small': 4"):
        run(tmp_path, Hospitals(), 2, aggregation__shifts=shifts, aggregation__max_empty_rounds=2)

    assert not events(tmp_path, "apply")
    assert {event["detail"] for event in events(tmp_path, "refusal")} == {
        "Expected an update that weighs more than 0, found 2 that weigh nothing; see aggregation.shifts."
    }


def test_hospital_with_other_data_is_refused_and_the_rest_train(tmp_path: Path) -> None:
    other = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("b", "a"), channels=1, height=4, width=4)

    summary = run(tmp_path, Hospitals(info={1: other}), 3, aggregation__rounds=1, run__allow_silent_hospitals=True)

    assert summary.refused == {"data-mismatch": 1}
    assert summary.updates_applied == 2


def test_two_nodes_with_one_name_are_one_hospital_and_a_refusal(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(names={2: "hospital-000"}), 3, aggregation__rounds=1)

    assert list(summary.per_hospital) == ["hospital-000", "hospital-001"]
    assert set(summary.refused) == {"duplicate-hospital"}


def test_hospital_without_training_images_is_refused_at_enrolment(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(examples={1: 0}), 2, aggregation__rounds=1)

    assert summary.refused == {"no-examples": 1}
    assert summary.updates_applied == 1


def test_diverging_model_fails_the_run_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    huge: dict[int, Spoiler] = {0: lambda a: changed(update={k: v * 0 + 3e38 for k, v in a.update.items()})(a)}

    with pytest.raises(RunFailedError, match="Version 2 is not finite"):
        run(tmp_path, Hospitals(spoil=huge), 1, aggregation__rounds=3)

    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names[-1] == "version-00000001.safetensors"
    assert is_finite(final_parameters(tmp_path))


def test_every_update_is_logged_with_its_factors(tmp_path: Path) -> None:
    run(tmp_path, Hospitals(), 2, aggregation__rounds=1)

    (applied,) = events(tmp_path, "apply")
    ones = dict.fromkeys(("staleness", "noise", "shift", "anomaly", "direction", "balance"), 1.0)
    assert applied["updates"][0] == {
        "hospital": "hospital-000", "number": applied["updates"][0]["number"], "staleness": 0, "examples": 10,
        "factors": {"size": 10.0, **ones}, "weight": 0.5,
    }  # fmt: skip


def test_training_seeds_differ_between_hospitals_and_versions(tmp_path: Path) -> None:
    hospitals = Hospitals()

    run(tmp_path, hospitals, 3, aggregation__rounds=2)

    assert len(set(hospitals.seeds.values())) == 6


def test_learning_rate_decays_once_per_version(tmp_path: Path) -> None:
    hospitals = Hospitals()

    run(tmp_path, hospitals, 1, aggregation__rounds=3, training__learning_rate=0.1, training__learning_rate_decay=0.5)

    assert list(hospitals.rates.values()) == pytest.approx([0.1, 0.05, 0.025])


def test_evaluation_only_at_the_end_evaluates_no_other_version(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(), 2, aggregation__rounds=3, run__evaluate_every=0)

    assert [point.version for point in summary.curve] == [3]


def test_lost_message_is_given_up_and_its_hospital_asked_again(tmp_path: Path) -> None:
    lost: list[Message] = []

    def lose_one(message: Message) -> Iterable[Message]:
        if message.metadata.message_type == "train" and not lost:
            lost.append(message)
            return []
        return [message]

    settings = configure(tmp_path, aggregation__rounds=3, aggregation__give_up_s=500.0)
    summary = simulate(settings, Hospitals().app(), [SiteTiming()] * 2, tamper=lose_one)

    assert summary.refused == {"node-lost": 1}
    assert [item.updates for item in summary.per_hospital.values()] == [2, 3]
    assert summary.virtual_s is not None
    assert 500 < summary.virtual_s < 1000


def test_hospital_that_missed_the_last_deadline_is_in_the_final_test(tmp_path: Path) -> None:
    timings = [SiteTiming(train_s=10, evaluate_s=1), SiteTiming(train_s=90, evaluate_s=1)]
    settings = configure(
        tmp_path, aggregation__rounds=2, aggregation__deadline_s=20.0, run__allow_silent_hospitals=True
    )

    summary = simulate(settings, Hospitals().app(), timings)

    assert summary.per_hospital["hospital-001"].updates == 0
    assert summary.per_hospital["hospital-001"].accuracy == pytest.approx(0.51)


class Restarting(VirtualGrid):
    """A grid on which hospital 0 restarts: its new node is there at once, its old one still seems connected."""

    def get_node_ids(self) -> Iterable[int]:
        now = self.clock.now()
        gone = {2} if now >= 160 else set()
        return [node_id for node_id in (2, 3, *([4] if now >= 100 else [])) if node_id not in gone]


def test_hospital_that_restarts_on_a_new_node_takes_its_old_place(tmp_path: Path) -> None:
    hospitals = Hospitals(names={2: "hospital-000"})
    flat = flatten(configure(tmp_path, aggregation__rounds=12, run__hospitals=2))
    sites = [VirtualSite(node_config={"partition-id": index, "num-partitions": 3}) for index in range(3)]

    server_app(Restarting(hospitals.app(), sites, flat), Context(1, 1, {}, RecordDict(), flat))

    summary = Summary.model_validate_json((tmp_path / "run" / "summary.json").read_text())
    assert summary.per_hospital["hospital-000"].updates >= 8
    assert summary.refused["duplicate-hospital"] >= 1


def test_error_that_is_not_ours_leaves_a_failed_summary_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("database is locked")

    monkeypatch.setattr(Engine, "_apply", fail)
    with pytest.raises(ConnectionError):
        run(tmp_path, Hospitals(), 2)

    written = Summary.model_validate_json((tmp_path / "run" / "summary.json").read_text())
    assert written.status is RunStatus.FAILED
    assert "log" in written.reason


@pytest.mark.usefixtures("drawn")
def test_run_leaves_its_report_beside_its_summary(tmp_path: Path) -> None:
    run(tmp_path, Hospitals(), 2, aggregation__rounds=1)

    assert "hospital-001" in (tmp_path / "run" / "report.html").read_text()


def test_run_of_a_name_that_is_in_use_is_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run").held(), pytest.raises(RunFailedError, match="a run in progress"):
        run(tmp_path, Hospitals(), 2)


def test_hospitals_that_disagree_one_against_one_stop_the_run(tmp_path: Path) -> None:
    other = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("b", "a"), channels=1, height=4, width=4)

    with pytest.raises(RunFailedError, match="one kind of data"):
        run(tmp_path, Hospitals(info={1: other}, examples={1: 10**6}), 2)


def test_evaluation_happens_every_n_versions_and_at_the_end(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(), 2, aggregation__rounds=5, run__evaluate_every=2)

    assert [point.version for point in summary.curve] == [0, 2, 4, 5]
    assert summary.worst_hospital == "hospital-000"
    assert summary.per_hospital["hospital-001"].accuracy == pytest.approx(0.51)


def test_bytes_are_the_same_in_both_ways_of_handing_over(tmp_path: Path) -> None:
    settings = configure(tmp_path, aggregation__rounds=2)

    by_reference = simulate(settings, Hospitals().app(), [SiteTiming()] * 2)
    serialized = simulate(settings, Hospitals().app(), [SiteTiming()] * 2, fidelity=True)

    assert (by_reference.bytes_up, by_reference.bytes_down) == (serialized.bytes_up, serialized.bytes_down)
    assert by_reference.bytes_up > 2 * 2 * 4 * sum(v.numel() for v in initial_parameters(tmp_path).values())


def test_older_run_of_the_same_name_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    run(tmp_path, Hospitals(), 2, aggregation__rounds=1)
    run(tmp_path, Hospitals(), 2, aggregation__rounds=2)

    older = Summary.model_validate_json((tmp_path / "run.1" / "summary.json").read_text())
    newer = Summary.model_validate_json((tmp_path / "run" / "summary.json").read_text())
    assert (older.model_version, newer.model_version) == (1, 2)


def test_hospital_whose_enrolment_failed_for_now_is_asked_again(tmp_path: Path) -> None:
    lost: list[Message] = []

    def lose_first_answer(message: Message) -> Iterable[Message]:
        if message.metadata.message_type == "query" and not lost:
            lost.append(message)
            return [as_error(message, Error(5, "lost"))]
        return [message]

    settings = configure(tmp_path, aggregation__rounds=1, run__hospitals=2)
    summary = simulate(settings, Hospitals().app(), [SiteTiming()] * 2, tamper=lose_first_answer)

    assert summary.refused == {"node-lost": 1}
    assert summary.updates_applied == 2
