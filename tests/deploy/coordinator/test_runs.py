"""The list of runs, and that no name leads out of their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.coordinator.run import Standing
from deploy.coordinator.runs import MOST_LISTED, Runs
from federation.errors import ConfigurationError
from tests.deploy.coordinator.made_up import event, step, write_run


def end(status: str) -> list[dict[str, object]]:
    return [event("start", 0), event("finish", 9, status=status, reason="")]


def test_runs_are_listed_newest_first_with_how_they_stand(tmp_path: Path) -> None:
    write_run(tmp_path, "a", end("completed"), age_s=300)
    write_run(tmp_path, "b", end("failed"), age_s=100)
    write_run(tmp_path, "c", end("stopped"), age_s=200)
    write_run(tmp_path, "d", [event("start", 0)], age_s=50)
    write_run(tmp_path, "e", end("blown away"), age_s=400)

    listed = Runs(tmp_path).list()

    assert [(entry.name, entry.standing) for entry in listed] == [
        ("d", Standing.IN_PROGRESS),
        ("b", Standing.FAILED),
        ("c", Standing.STOPPED),
        ("a", Standing.COMPLETED),
        ("e", Standing.FAILED),
    ]


def test_what_is_no_run_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / ".run.lock").touch()
    (tmp_path / "file").touch()
    write_run(tmp_path, "two\nlines", [event("start", 0)])

    assert Runs(tmp_path).list() == ()


def test_no_more_than_the_newest_runs_are_listed(tmp_path: Path) -> None:
    for number in range(MOST_LISTED + 2):
        write_run(tmp_path, f"run-{number}", [event("start", 0)], age_s=1000 - number)

    listed = Runs(tmp_path).list()

    assert (len(listed), listed[0].name, listed[-1].name) == (MOST_LISTED, f"run-{MOST_LISTED + 1}", "run-2")


def test_missing_folder_holds_no_runs(tmp_path: Path) -> None:
    assert Runs(tmp_path / "runs").list() == ()


@pytest.mark.parametrize("name", ["", ".", "..", "../secret", "other", "/etc", "a/b", "a\x00b", "x" * 300])
def test_name_that_is_no_run_here_is_refused(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "runs", "a", [event("start", 0)])
    write_run(tmp_path, "secret", [event("start", 0)])

    with pytest.raises(ConfigurationError, match="Expected the name of a run"):
        Runs(tmp_path / "runs").read(name)


def test_run_that_was_replaced_is_told_anew(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    write_run(tmp_path, "a", [event("start", 0), step(1, 1, x=0), step(2, 2, x=0)])
    before = runs.read("a").version

    (tmp_path / "a").rename(tmp_path / "a.1")
    write_run(tmp_path, "a", [event("start", 0), step(1, 1, x=0)])

    assert (before, runs.read("a").version, runs.read("a.1").version) == (2, 1, 2)


def test_reader_of_a_run_that_others_have_displaced_starts_anew(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    for number in range(12):
        write_run(tmp_path, f"run-{number}", [event("start", 0), step(1, 1, x=0)])
        runs.read(f"run-{number}")

    assert runs.read("run-0").updates == 1
