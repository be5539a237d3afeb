"""`aegis ledger`: what is shown is what the rows say, faults end with 1, and nothing is ever created or changed."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import main
from tests.client_app.ledger.conftest import place
from tests.client_app.ledger.place import Place, request

__all__ = ["place"]


def invoke(place: Place, command: str, *options: str, keys: bool = True) -> Any:
    folders = ["--state-dir", str(place.folder), "--hospital-id", "north"]
    folders += ["--keys-dir", str(place.keys)] if keys else []
    return CliRunner().invoke(main, ["ledger", command, *folders, *options], env={"COLUMNS": "250"})


@pytest.fixture
def filled(place: Place) -> Place:
    """Two releases and a lost reservation of `scans`, one unprotected release of `other`."""
    with place.open() as opened:
        for message in ("m1", "m2"):
            opened.commit(opened.reserve(request(message)))
        opened.reserve(request("m3", cap=3.0))
        opened.commit(opened.reserve(request("m4", None, data_set="other", delta=0.0, cap=0.0)))
    return place


def snapshot(place: Place) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in place.root.rglob("*") if path.is_file()}


def test_show_says_what_was_spent_and_is_left_of_the_newest_cap(filled: Place) -> None:
    result = invoke(filled, "show", "--json")

    shown = json.loads(result.stdout)
    other, scans = shown["data-sets"]
    assert result.exit_code == 0
    assert (scans["data-set"], scans["cap"], scans["account"], scans["delta"]) == ("scans", 3.0, "linear", 1e-5)
    assert scans["spent"]["linear"] == pytest.approx(0.6, rel=1e-3)
    assert scans["left"] == pytest.approx(2.4, rel=1e-3)
    assert (scans["releases"], scans["committed"], scans["open"], scans["claimable"]) == (3, 2, 1, True)
    assert (other["data-set"], other["unprotected"], other["claimable"], other["spent"]["rdp"]) == (
        "other", 1, False, None,
    )  # fmt: skip
    assert (shown["sound"], shown["anchored"], shown["row-count"]) == (True, True, 8)


def test_show_draws_a_table_and_on_request_the_rows(filled: Place) -> None:
    plain, rows = invoke(filled, "show"), invoke(filled, "show", "--rows")

    assert plain.exit_code == rows.exit_code == 0
    lines = plain.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "scans" in line)
    rdp, pld = rows_value(filled, "rdp"), rows_value(filled, "pld")
    assert lines[at].split()[:7] == ["scans", "0.600", "3", "2.400", "0.600", rdp, pld]
    assert "linear at 1e-05" in lines[at + 1]
    assert max(map(len, lines)) <= 80
    assert "no epsilon holds" in plain.stdout
    assert "genesis" not in plain.stdout
    assert [kind in rows.stdout for kind in ("genesis", "reserve", "commit")] == [True] * 3


def rows_value(place: Place, account: str) -> str:
    bodies = [json.loads(row["body"]) for row in place.raw_rows() if row["kind"] == "reserve"]
    return f"{math.ceil(bodies[2]['after'][account] * 1000) / 1000:.3f}"


def test_verify_accepts_a_sound_ledger(filled: Place) -> None:
    result = invoke(filled, "verify")

    assert result.exit_code == 0
    assert "north: 8 rows, sound" in result.stdout


@pytest.mark.parametrize(
    ("statement", "seq"),
    [("UPDATE rows SET body = replace(body, '24.22', '99') WHERE seq = 4", 4), ("DELETE FROM rows WHERE seq = 3", 4)],
)
def test_verify_names_the_row_of_a_fault_and_ends_with_1(filled: Place, statement: str, seq: int) -> None:
    filled.tamper(statement)

    told, result = invoke(filled, "verify", "--json"), invoke(filled, "verify")

    assert told.exit_code == result.exit_code == 1
    assert seq in {finding["seq"] for finding in json.loads(told.stdout)["findings"]}
    assert f"row {seq}: Expected" in result.stdout


def test_every_command_survives_a_row_that_cannot_be_read_and_ends_with_1(filled: Place) -> None:
    filled.tamper("UPDATE rows SET body = '[broken' WHERE seq = 3", "UPDATE rows SET body = '[]' WHERE seq = 4")

    for arguments in (("show", "--rows"), ("show", "--rows", "--json"), ("verify",), ("export",), ("export", "--json")):
        result = invoke(filled, *arguments)
        assert (result.exit_code, result.exception and type(result.exception)) == (1, SystemExit), arguments


def test_verify_without_keys_says_what_it_cannot_know(filled: Place) -> None:
    told, result = invoke(filled, "verify", "--json", keys=False), invoke(filled, "verify", keys=False)

    assert told.exit_code == result.exit_code == 0
    assert json.loads(told.stdout)["anchored"] is False
    assert "Not checked without --keys-dir" in result.stdout


def test_keys_below_the_state_folder_are_found_without_being_named(filled: Place) -> None:
    filled.keys.rename(filled.folder / "keys")

    assert json.loads(invoke(filled, "verify", "--json", keys=False).stdout)["anchored"] is True


def test_export_writes_rows_whose_chain_anyone_can_check(filled: Place) -> None:
    exported = json.loads(invoke(filled, "export", "--json").stdout)["rows"]

    previous = bytes(32)
    for row in exported:
        body = json.dumps(row["body"], sort_keys=True, separators=(",", ":"))
        text = json.dumps([row["seq"], row["kind"], row["time"], body])
        previous = hashlib.sha256(previous + text.encode()).digest()
        assert previous.hex() == row["digest"]


def test_export_as_csv_holds_every_row_with_its_costs(filled: Place, tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"

    result = invoke(filled, "export", "--output", str(output))

    rows = list(csv.DictReader(output.read_text().splitlines()))
    assert (result.exit_code, result.stdout) == (0, "")
    assert [row["kind"] for row in rows] == filled.kinds()
    assert [row["noise-multiplier"] for row in rows if row["kind"] == "reserve"] == ["24.22"] * 3 + [""]
    assert float(rows[3]["linear-after"]) == pytest.approx(0.4, rel=1e-3)
    assert [row["reserve"] for row in rows if row["kind"] == "commit"] == ["2", "4", "7"]


def test_export_gives_a_spreadsheet_no_formula_that_a_server_chose(place: Place) -> None:
    with place.open() as opened:
        opened.reserve(request("=HYPERLINK(1)", run_id="@run"))

    (_, row) = csv.DictReader(invoke(place, "export").stdout.splitlines())

    assert (row["message"], row["run"]) == ("'=HYPERLINK(1)", "'@run")


@pytest.mark.parametrize("command", ["show", "verify", "export"])
def test_nothing_is_created_or_changed(filled: Place, command: str) -> None:
    before = snapshot(filled)

    result = invoke(filled, command)

    assert result.exit_code == 0
    assert snapshot(filled) == before


@pytest.mark.parametrize("command", ["show", "verify", "export"])
@pytest.mark.parametrize("shared_memory", [False, True])
def test_rows_of_a_client_that_crashed_are_seen_and_left_where_they_are(
    filled: Place, tmp_path: Path, command: str, shared_memory: bool
) -> None:
    with filled.open() as opened:
        opened.reserve(request("m9"))
        crashed = Place(Path(shutil.copytree(filled.root, tmp_path / "crashed")))
    memory = crashed.rows.with_name("north.ledger-shm")
    memory.unlink() if not shared_memory else None
    before = snapshot(crashed)

    result = invoke(crashed, command, "--json")

    after = snapshot(crashed)
    assert json.loads(result.stdout)["row-count"] == 9
    assert after.keys() == before.keys()
    assert {path for path in after if after[path] != before[path]} <= {memory}


def test_running_client_is_neither_disturbed_nor_waited_for(filled: Place) -> None:
    with filled.open() as opened:
        opened.reserve(request("m5"))
        files = sorted(path.name for path in filled.folder.iterdir())

        results = [invoke(filled, command, "--json") for command in ("show", "verify", "export")]

        assert [result.exit_code for result in results] == [0, 0, 0]
        assert json.loads(results[1].stdout)["row-count"] == 9
        assert sorted(path.name for path in filled.folder.iterdir()) == files
        opened.reserve(request("m6"))


def test_missing_ledger_ends_with_1_and_is_not_created(place: Place) -> None:
    place.open().close()
    place.rows.unlink()

    result = invoke(place, "show")

    assert result.exit_code == 1
    assert "expected a privacy ledger, found no file" in " ".join(result.stderr.split())
    assert not place.rows.exists()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (["--hospital-id", "../north"], "--hospital-id='../north'"),
        (["--state-dir", "/absent"], "--state-dir=/absent"),
        (["--keys-dir", "/absent"], "--keys-dir=/absent"),
    ],
)
def test_wrong_usage_ends_with_2(filled: Place, changes: list[str], text: str) -> None:
    result = invoke(filled, "show", *changes)

    assert result.exit_code == 2
    assert text in " ".join(result.stderr.split())


def test_export_to_a_place_that_cannot_be_written_ends_with_2(filled: Place) -> None:
    result = invoke(filled, "export", "--output", "/absent/rows.csv")

    assert result.exit_code == 2
    assert "--output=/absent/rows.csv" in " ".join(result.stderr.split())
