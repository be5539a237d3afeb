"""An asynchronous run killed anywhere resumes to the bits, times, ages and scores of the unbroken one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Error, Message

from federation.errors import SiteErrorCode
from server_app import checkpoint as checkpoint_module
from server_app.checkpoint import CheckpointStore
from server_app.correspondence import Correspondence
from server_app.engine import Engine
from server_app.evaluation import EvaluationDesk
from server_app.intake import Intake
from server_app.simulation.timing import SiteTiming
from server_app.summary import Summary
from tests.doubles import Hospitals
from tests.server_app.killing import Point, break_off
from tests.server_app.runs import applied, events, final_digest, run

# Three that always finish together, one on a slow link, one that scores for longer than several versions take.
TIMINGS = [
    SiteTiming(train_s=10, evaluate_s=1),
    SiteTiming(train_s=10, evaluate_s=1),
    SiteTiming(train_s=10, evaluate_s=1),
    SiteTiming(train_s=7, evaluate_s=2, bytes_per_s=60.0),
    SiteTiming(train_s=31, evaluate_s=45),
]
RULES: dict[str, dict[str, Any]] = {
    "fedasync": {"aggregation__rule": "fedasync", "aggregation__rounds": 14},
    "buffered": {"aggregation__rule": "buffered", "aggregation__buffer_size": 2, "aggregation__rounds": 9},
    "semi-synchronous": {
        "aggregation__rule": "semi-synchronous", "aggregation__period_s": 15.0, "aggregation__rounds": 7,
    },
}  # fmt: skip
RELEASES, OPTIMIZERS = ("immediate", "two-phase"), ("average", "momentum")
POINTS = [
    Point(Engine, "_apply", 3, False),
    Point(Engine, "_send_training", 6, True),
    Point(Engine, "_record_application", 4, True),
    Point(Intake, "settle", 5, False),
    Point(Intake, "settle", 8, True),
    Point(Correspondence, "ask", 17, True),
    Point(checkpoint_module, "write_durably", 4, False),
    Point(CheckpointStore, "save", 3, True),
    Point(CheckpointStore, "save", 6, True),
    Point(EvaluationDesk, "settle", 3, True),
]


def settings_of(rule: str, release: str, optimizer: str, **more: Any) -> dict[str, Any]:
    return {**RULES[rule], "aggregation__release": release, "aggregation__server_optimizer": optimizer,
            "run__evaluate_every": 2, **more}  # fmt: skip


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Summary]]:
    """Give the folder and the summary of the run of some settings that nothing breaks off, made once."""

    @cache
    def make(**settings: Any) -> tuple[Path, Summary]:
        folder = tmp_path_factory.mktemp("unbroken")
        return folder, run(folder, TIMINGS, **settings)

    return make


def require_same(found: tuple[Path, Summary], expected: tuple[Path, Summary]) -> None:
    (folder, summary), (whole, one_go) = found, expected
    assert final_digest(folder) == final_digest(whole)
    own = {"resumed", "wall_s", "bytes_up", "bytes_down", "configuration"}
    assert summary.model_dump(exclude=own) == one_go.model_dump(exclude=own)
    rows, all_rows = applied(folder), applied(whole)
    assert rows == {version: all_rows[version] for version in rows}
    assert len(all_rows) - len(rows) <= 1  # A version is durable before the log tells of it.
    numbers = [(row["hospital"], row["number"]) for version in rows.values() for row in version]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize(
    ("rule", "release", "optimizer"),
    list(itertools.product(RULES, RELEASES, OPTIMIZERS)),
    ids=["-".join(names) for names in itertools.product(RULES, RELEASES, OPTIMIZERS)],
)
def test_asynchronous_run_killed_anywhere_resumes_to_the_same_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unbroken: Callable[..., tuple[Path, Summary]],
    point: Point,
    rule: str,
    release: str,
    optimizer: str,
) -> None:
    settings = settings_of(rule, release, optimizer)
    break_off(monkeypatch, point, lambda: run(tmp_path, TIMINGS, **settings))

    summary = run(tmp_path, TIMINGS, run__resume=True, **settings)

    assert summary.resumed == 1
    require_same((tmp_path, summary), unbroken(**settings))


@pytest.mark.parametrize("call", range(1, 8))
@pytest.mark.parametrize("kind", ["decide", "_settle_readiness", "_settle_update"])
def test_run_killed_between_readiness_and_release_resumes_to_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbroken: Callable[..., tuple[Path, Summary]], kind: str, call: int
) -> None:
    settings = settings_of("fedasync", "two-phase", "average", aggregation__max_staleness=2)
    break_off(monkeypatch, Point(Intake, kind, call, True), lambda: run(tmp_path, TIMINGS, **settings))

    summary = run(tmp_path, TIMINGS, run__resume=True, **settings)

    require_same((tmp_path, summary), unbroken(**settings))
    assert summary.refused["discarded"] > 0


@pytest.mark.parametrize("rule", RULES)
def test_run_killed_again_and_again_resumes_to_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbroken: Callable[..., tuple[Path, Summary]], rule: str
) -> None:
    settings = settings_of(rule, "two-phase", "momentum")
    break_off(monkeypatch, Point(Engine, "_apply", 2, True), lambda: run(tmp_path, TIMINGS, **settings))
    for call in (1, 2, 1):
        point = Point(Engine, "_apply", call, after=True)
        break_off(monkeypatch, point, lambda: run(tmp_path, TIMINGS, run__resume=True, **settings))

    summary = run(tmp_path, TIMINGS, run__resume=True, **settings)

    assert summary.resumed == 4
    require_same((tmp_path, summary), unbroken(**settings))


@pytest.mark.parametrize("point", [POINTS[0], POINTS[4], POINTS[6], POINTS[7]], ids=str)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("rule", RULES)
def test_books_of_the_hospitals_and_the_mirror_of_a_resumed_run_agree_and_are_those_of_the_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, release: str, point: Point
) -> None:
    settings = settings_of(rule, release, "average", privacy__mechanism="update-gaussian", aggregation__max_staleness=3)
    whole, hospitals = Hospitals(caps={0: 0.6}), Hospitals(caps={0: 0.6})
    unbroken = run(tmp_path / "unbroken", TIMINGS, whole, **settings)
    break_off(monkeypatch, point, lambda: run(tmp_path / "broken", TIMINGS, hospitals, **settings))

    summary = run(tmp_path / "broken", TIMINGS, hospitals, run__resume=True, **settings)

    require_same((tmp_path / "broken", summary), (tmp_path / "unbroken", unbroken))
    assert hospitals.books == whole.books
    for name, item in summary.per_hospital.items():
        booked = len(hospitals.books.get((name, "training"), {}))
        assert (item.ledger.releases if item.ledger else 0) == booked
        assert item.ledger is None or item.ledger.contradictions == 0


@pytest.mark.parametrize(
    "more",
    [
        {"aggregation__direction_scaling": True},
        {"aggregation__anomaly_threshold": 1.0, "aggregation__balance": 1.0},
        {"aggregation__sample_count": 2},
        {"aggregation__max_lead": 2},
        {"aggregation__average_last": 3},
        {"aggregation__server_optimizer": "adam"},
        {"run__hospital_evaluation": False},
    ],
    ids=lambda more: next(iter(more)),
)
def test_everything_that_weighs_or_chooses_goes_on_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbroken: Callable[..., tuple[Path, Summary]], more: dict[str, Any]
) -> None:
    settings = settings_of("buffered", "immediate", "average") | more
    break_off(monkeypatch, Point(Engine, "_apply", 6, False), lambda: run(tmp_path, TIMINGS, **settings))

    summary = run(tmp_path, TIMINGS, run__resume=True, **settings)

    require_same((tmp_path, summary), unbroken(**settings))


@pytest.mark.parametrize("instead", ["an error", "an update"])
def test_hospital_that_is_not_ready_again_costs_its_result_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    class Changed(Hospitals):
        def _train(self, message: Message, context: Context) -> Message:
            ready = super()._train(message, context)
            if self.trained != [("hospital-001", 0)]:
                return ready
            error = Error(int(SiteErrorCode.TRAINING_FAILED), "")
            return Message(error if instead == "an error" else self._form(context, self.pending["hospital-001"]),
                           reply_to=message)  # fmt: skip

    settings = settings_of("fedasync", "two-phase", "average", run__hospital_evaluation=False)
    timings = [SiteTiming(train_s=10), SiteTiming(train_s=7, bytes_per_s=40.0)]
    break_off(monkeypatch, Point(Engine, "_apply", 4, True), lambda: run(tmp_path, timings, **settings))
    sent = [(event["hospital"], event["task"]) for event in events(tmp_path, "dispatch")]

    summary = run(tmp_path, timings, Changed(), run__resume=True, **settings)

    assert sent.count(("hospital-001", "train.release")) == 1
    assert summary.model_version == 14
    reason = "site-error:training-failed" if instead == "an error" else "malformed"
    assert summary.per_hospital["hospital-001"].refused == {reason: 1}
    assert summary.per_hospital["hospital-001"].updates > 0
