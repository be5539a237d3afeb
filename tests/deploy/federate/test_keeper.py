"""One run, kept going to its end by whoever is started and started again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.federate import keeper as keeper_module
from deploy.federate.keeper import Keeper
from federation.config import flatten
from federation.errors import RunFailedError
from server_app.run_folder import RunFolder
from server_app.summary import RunStatus
from tests.deploy.federate.made_up_runs import (
    STOPPED,
    End,
    MadeUpRuns,
    completes,
    configure,
    crashes,
    leave_summary,
    leave_version,
    summary,
)

Make = Callable[..., tuple[Keeper, MadeUpRuns]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(*ends: End, attempts: int = 5, going: str | None = None, away: int = 0, **settings: Any) -> Any:
        configuration = configure(tmp_path, **settings)
        runs = MadeUpRuns(RunFolder.of(configuration.run), list(ends), going=going, away=away)
        keeper = Keeper(
            runs=runs,
            app=tmp_path / "app",
            configuration=configuration,
            attempts=attempts,
            tell=runs.tell,
            sleep=runs.sleep,
        )
        return keeper, runs

    return make


def test_run_that_completes_is_submitted_once(make: Make) -> None:
    keeper, runs = make(completes(5))

    found = keeper.keep()

    assert found == summary(version=5)
    assert runs.submitted == [flatten(keeper.configuration)]
    assert runs.resumed == [False]
    assert [event for event, _ in runs.events] == ["submitted", "ended"]


def test_run_that_crashes_is_resumed_until_it_completes(make: Make) -> None:
    keeper, runs = make(crashes(3), crashes(7), completes(9))

    found = keeper.keep()

    assert found.model_version == 9
    assert runs.resumed == [False, True, True]
    assert [fields["attempt"] for event, fields in runs.events if event == "ended"] == [0, 1, 2]


def test_run_that_crashes_before_its_first_version_begins_again(make: Make) -> None:
    keeper, runs = make(crashes(None), completes())

    keeper.keep()

    assert runs.resumed == [False, False]


def test_run_that_is_said_to_be_completed_without_a_summary_has_crashed(make: Make) -> None:
    keeper, runs = make(crashes(3, status="finished:completed"), completes())

    keeper.keep()

    assert runs.resumed == [False, True]


def test_run_that_the_keeper_before_left_broken_off_is_resumed(make: Make) -> None:
    keeper, runs = make(completes())
    leave_version(runs.folder)

    keeper.keep()

    assert runs.resumed == [True]


def test_run_is_resumed_where_the_configuration_says_so(make: Make) -> None:
    keeper, runs = make(completes(), run__resume=True)

    keeper.keep()

    assert runs.resumed == [True]


def test_failure_with_a_result_of_its_own_is_not_repeated(make: Make) -> None:
    keeper, runs = make(completes(status="finished:failed", result=RunStatus.FAILED))

    with pytest.raises(RunFailedError, match=r"Expected the run to end as finished:completed, found finished:failed: "):
        keeper.keep()

    assert len(runs.submitted) == 1


@pytest.mark.parametrize("end", [crashes(3, status=STOPPED), completes(status=STOPPED, result=RunStatus.STOPPED)])
def test_run_that_somebody_stopped_is_not_repeated(make: Make, end: End) -> None:
    keeper, runs = make(end)

    with pytest.raises(RunFailedError, match="stopped"):
        keeper.keep()

    assert len(runs.submitted) == 1


def test_superlink_that_is_away_is_waited_for(make: Make) -> None:
    keeper, runs = make(completes(), away=7)

    keeper.keep()

    assert len(runs.submitted) == 1
    # It is not asked at once again.
    assert runs.slept[:7] == [keeper_module._AGAIN_S] * 7
    assert [event for event, _ in runs.events] == ["not-taken", "submitted", "ended"]


def test_superlink_that_goes_away_during_the_run_is_waited_for(make: Make) -> None:
    keeper, runs = make(completes())
    sleep = runs.sleep

    def leave(seconds: float) -> None:
        sleep(seconds)
        if len(runs.slept) == 1:
            runs.away = 5

    keeper = replace(keeper, attempts=0, sleep=leave)
    found = keeper.keep()

    assert found.status is RunStatus.COMPLETED
    assert runs.away < 0
    assert len(runs.submitted) == 1


def test_superlink_is_asked_seldom_while_a_run_goes_on_and_at_once_when_its_result_is_there(make: Make) -> None:
    keeper, runs = make()
    asked: list[float] = []

    class Going(MadeUpRuns):
        def status(self, run_id: str, /) -> str:
            asked.append(sum(self.slept))
            return "finished:completed" if self.folder.summary.exists() else "running"

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if sum(self.slept) >= 610 and not self.folder.summary.exists():
                leave_summary(self.folder, summary())

    going = Going(runs.folder, [])
    keeper = replace(keeper, runs=going, sleep=going.sleep)
    keeper.keep()

    assert 10 <= len(asked) <= 25
    assert asked[-1] <= 610 + 6


def test_run_that_goes_on_is_followed_and_not_submitted_again(make: Make) -> None:
    keeper, runs = make(completes(4), going="77")

    found = keeper.keep()

    assert found.model_version == 4
    assert runs.submitted == []
    assert runs.events == [
        ("followed", {"run": "77"}),
        ("ended", {"run": "77", "status": "finished:completed", "attempt": 0}),
    ]


@pytest.mark.parametrize("away", range(1, 6))
def test_run_that_goes_on_is_followed_though_the_superlink_was_away_at_first(make: Make, away: int) -> None:
    keeper, runs = make(completes(4), going="77", away=away)

    keeper.keep()

    assert runs.submitted == []
    assert ("followed", {"run": "77"}) in runs.events


def test_run_that_went_on_and_crashed_is_resumed(make: Make) -> None:
    keeper, runs = make(crashes(3), completes(6), going="77")

    found = keeper.keep()

    assert found.model_version == 6
    assert runs.resumed == [True]


def test_run_of_which_nobody_heard_that_it_was_taken_is_followed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, runs = make(completes())
    submit = MadeUpRuns.submit

    def lose_the_answer(self: MadeUpRuns, app: Path, run_config: dict[str, Any], /) -> str:
        submit(self, app, run_config)
        raise RunFailedError("Expected an answer of superlink:8000 within 120 s, found none.")

    monkeypatch.setattr(MadeUpRuns, "submit", lose_the_answer)

    keeper.keep()

    assert len(runs.submitted) == 1


def test_old_summary_of_the_same_name_is_not_taken_for_this_runs(make: Make) -> None:
    keeper, runs = make(crashes(None), completes(9))
    leave_version(runs.folder, 2)
    leave_summary(runs.folder, summary(version=2))

    found = keeper.keep()

    assert found.model_version == 9
    # The folder with the old result is no run to go on with.
    assert runs.resumed == [False, False]


def test_run_that_crashes_too_often_is_given_up(make: Make) -> None:
    keeper, runs = make(*[crashes(3)] * 10, attempts=3)

    with pytest.raises(RunFailedError, match=r"ended without a result 4 times; .*lungs has its log"):
        keeper.keep()

    assert runs.resumed == [False, True, True, True]


def test_what_a_superlink_says_again_and_again_is_told_once(make: Make) -> None:
    keeper, runs = make(completes(), away=30)

    keeper.keep()

    told = [fields for event, fields in runs.events if event == "not-taken"]
    assert told == [{"reason": "Expected the SuperLink to list its runs, found nobody."}]


def test_run_that_has_ended_is_not_run_again_by_a_keeper_that_is_started_again(make: Make) -> None:
    first, _ = make(completes(5))
    first.keep()
    second, later = make(completes(9))

    found = second.keep()

    assert found == summary(version=5)
    assert later.submitted == []
    assert later.events == [("had-ended", {"status": "finished:completed"})]


def test_run_that_has_failed_is_not_run_again_either(make: Make) -> None:
    first, _ = make(completes(5, status="finished:failed", result=RunStatus.FAILED))
    second, later = make(completes(9))

    with pytest.raises(RunFailedError, match="finished:failed"):
        first.keep()
    with pytest.raises(RunFailedError, match="finished:failed"):
        second.keep()

    assert later.submitted == []


@pytest.mark.parametrize(("again", "settings"), [(True, {}), (False, {"aggregation__rounds": 6})])
def test_run_is_run_anew_where_somebody_asks_for_it_or_for_another_one(
    make: Make, again: bool, settings: dict[str, Any]
) -> None:
    first, _ = make(completes(5))
    first.keep()
    second, later = make(completes(9), **settings)

    found = second.keep(again=again)

    assert found.model_version == 9
    assert len(later.submitted) == 1


def test_run_that_came_through_is_no_failure_where_its_superlink_was_killed_right_behind_it(make: Make) -> None:
    keeper, _ = make(completes(5, status="finished:failed"))

    assert keeper.keep() == summary(version=5)


def test_run_that_was_stopped_is_not_run_again_by_a_keeper_that_is_started_again(make: Make) -> None:
    first, _ = make(crashes(3, status=STOPPED))
    second, later = make(completes(9))

    for keeper in (first, second):
        with pytest.raises(RunFailedError, match="stopped"):
            keeper.keep()

    assert later.submitted == []


def test_run_that_was_given_up_is_not_run_again_by_a_keeper_that_is_started_again(make: Make) -> None:
    first, _ = make(crashes(3), crashes(3), attempts=1)
    second, later = make(completes(9))

    with pytest.raises(RunFailedError, match="without a result 2 times"):
        first.keep()
    with pytest.raises(RunFailedError, match="given up"):
        second.keep()

    assert later.submitted == []


def test_end_that_cannot_be_noted_is_told_and_no_failure(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, runs = make(completes(5))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(keeper_module, "write_durably", refuse)

    assert keeper.keep() == summary(version=5)
    assert ("end-not-noted", {"errno": 30}) in runs.events


def test_run_whose_configuration_nobody_takes_is_given_up_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, runs = make(completes())

    def refuse(*_: object) -> str:
        raise RunFailedError("[code: 15] Invalid run configuration.")

    monkeypatch.setattr(runs, "submit", refuse)

    with pytest.raises(RunFailedError, match="Invalid run configuration"):
        keeper.keep()
