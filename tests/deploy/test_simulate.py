"""`aegis simulate` on the virtual clock: what people and machines see, and exit codes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.cli import main
from deploy.simulate import make_timings
from federation.errors import ConfigurationError
from server_app.simulation.timing import SiteTiming

FAST = ["model.name=mlp", "data.phantom-examples=90", "data.phantom-classes=2", "aggregation.rounds=2"]


def invoke(folder: Path, *arguments: str, settings: list[str] | None = None) -> Result:
    assigned = [f"run.root={folder}", *FAST, *(settings or [])]
    pairs = [part for text in assigned for part in ("--set", text)]
    return CliRunner().invoke(main, ["simulate", "--hospitals", "2", "--app", str(folder), *arguments, *pairs])


def test_simulation_writes_every_file_of_a_run_and_exits_with_zero(tmp_path: Path) -> None:
    result = invoke(tmp_path, "--name", "first")

    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "first").iterdir()}
    expected = {
        "config.toml",
        "events.jsonl",
        "checkpoints",
        "model.safetensors",
        "summary.json",
        "report.html",
        "sites",
    }
    assert names == expected
    assert str(tmp_path / "first" / "report.html") in result.stdout


def test_json_output_is_the_summary_and_nothing_else(tmp_path: Path) -> None:
    result = invoke(tmp_path, "--json")

    summary = json.loads(result.stdout)
    assert (summary["status"], summary["model_version"], summary["engine"]) == ("completed", 2, "virtual")
    assert sorted(summary["per_hospital"]) == ["hospital-000", "hospital-001"]


def test_process_prints_json_and_nothing_else_on_its_output(tmp_path: Path) -> None:
    settings = [part for text in [f"run.root={tmp_path}", *FAST] for part in ("--set", text)]
    command = [sys.executable, "-c", "from deploy.cli import main; main()", "simulate", "--hospitals", "2", "--json"]

    finished = subprocess.run([*command, "--app", str(tmp_path), *settings], capture_output=True, text=True, check=True)

    assert json.loads(finished.stdout)["status"] == "completed"


@pytest.mark.parametrize(
    ("arguments", "settings", "expected"),
    [
        ([], ["training.learning-rat=0.1"], "nearest known key is 'training.learning-rate'"),
        ([], ["training.batch-size=0"], "training.batch-size=0"),
        ([], ["training.batch-size=many"], "training.batch-size='many'"),
        ([], ["nonsense"], "Expected key=value, found 'nonsense'"),
        (["--engine", "warp"], [], "Expected --engine virtual or flower, found 'warp'"),
        (["--slow", "7=2"], [], "index below 2"),
        (["--slow", "x"], [], "Expected --slow INDEX=FACTOR, found 'x'"),
        (["--slow", "0=inf"], [], "a finite factor > 0, found '0=inf'"),
        (["--train-seconds", "inf"], [], "Expected --train-seconds finite and >= 0, found inf"),
        (["--train-seconds", "nan"], [], "Expected --train-seconds finite and >= 0, found nan"),
        (["--train-seconds", "-1"], [], "--train-seconds"),
    ],
)
def test_wrong_usage_exits_with_two_and_says_what_was_expected(
    tmp_path: Path, arguments: list[str], settings: list[str], expected: str
) -> None:
    result = invoke(tmp_path, *arguments, settings=settings)

    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())


@pytest.mark.parametrize("factor", ["0", "-0.0", "-1", "inf", "-inf", "1e999", "nan", "1e-999"])
def test_speed_that_is_no_speed_is_refused(factor: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Expected --slow .* a finite factor > 0, found '0={factor}'"):
        make_timings(2, 60.0, [f"0={factor}"])


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_training_time_that_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match=f"Expected --train-seconds finite and >= 0, found {seconds:g}"):
        make_timings(2, seconds, [])


@pytest.mark.parametrize("slow", [["0=1e300"], ["0=1e150", "0=1e150"]])
def test_factors_that_together_never_end_are_refused(slow: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=f"finite time for training, found '{slow[-1]}'"):
        make_timings(2, 1e9, slow)


def test_factors_slow_down_the_hospitals_they_name() -> None:
    normal = SiteTiming(train_s=60.0, evaluate_s=5.0)

    assert make_timings(3, 60.0, ["1=8", "2=0.5"]) == [normal, normal.slower(8.0), normal.slower(0.5)]


@pytest.mark.parametrize(
    ("settings", "code", "expected"),
    [
        (["data.name=pneumonia"], 2, "pneumoniamnist"),
        (["data.name=npz", "data.root=/nowhere/x.npz"], 1, "/nowhere/x.npz"),
        (["data.min-examples=1000"], 1, "1000"),
        (["aggregation.min-updates=5"], 2, "<= run.hospitals=2, found 5"),
        (["aggregation.rule=buffered"], 2, "aggregation.buffer-size=4 <= run.hospitals=2"),
        (["run.hospital-ids=a/b"], 2, "['a/b']"),
        (["training.learning-rate-decay=1e-300"], 2, "in the last round, found 1e-303"),
    ],
)
def test_impossible_run_is_refused_before_it_starts_and_says_why(
    tmp_path: Path, settings: list[str], code: int, expected: str
) -> None:
    result = invoke(tmp_path, settings=settings)

    assert result.exit_code == code
    assert expected in " ".join(result.stderr.split())
    assert not (tmp_path / "run").exists()


def test_failure_does_not_show_the_summary_of_an_older_run(tmp_path: Path) -> None:
    invoke(tmp_path)

    result = invoke(tmp_path, "--resume", "--json", settings=["training.batch-size=3"])

    assert result.exit_code == 1
    assert json.loads(result.stdout)["status"] == "failed"
    assert "training.batch-size" in json.loads(result.stdout)["reason"]


def test_resume_of_no_run_fails_and_says_so(tmp_path: Path) -> None:
    result = invoke(tmp_path, "--resume")

    assert result.exit_code == 1
    assert "found none: start without run.resume" in " ".join(result.stderr.split())


def test_slow_hospital_stretches_virtual_time_only(tmp_path: Path) -> None:
    normal = json.loads(invoke(tmp_path, "--json").stdout)
    slow = json.loads(invoke(tmp_path, "--json", "--slow", "1=8").stdout)

    assert slow["virtual_s"] > 4 * normal["virtual_s"]
    assert slow["final"] == normal["final"]


def test_configuration_file_is_read_and_set_wins_over_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[run]\nseed = 5\n[model]\nname = "cnn"\n')

    summary = json.loads(invoke(tmp_path, "--json", "--config", str(file)).stdout)

    assert summary["configuration"]["run.seed"] == 5
    assert summary["configuration"]["model.name"] == "mlp"


def test_report_command_writes_the_report_again(tmp_path: Path) -> None:
    invoke(tmp_path, "--name", "first")
    report = tmp_path / "first" / "report.html"
    content = report.read_bytes()
    report.unlink()

    result = CliRunner().invoke(main, ["report", str(tmp_path / "first")])

    assert result.exit_code == 0
    assert report.read_bytes() == content


def test_report_of_no_run_is_wrong_usage(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["report", str(tmp_path)])

    assert result.exit_code == 2
    assert "Expected a finished run" in result.stderr


def test_data_describe_counts_every_image_once(tmp_path: Path) -> None:
    arguments = ["data", "describe", "--app", str(tmp_path), "--hospitals", "3", "--json"]

    rows = json.loads(CliRunner().invoke(main, [*arguments, "--set", "data.phantom-examples=300"]).stdout)

    assert sum(row[split] for row in rows for split in ("train", "validation", "test")) == 300
    assert all(sum(row["train_per_class"].values()) == row["train"] for row in rows)
