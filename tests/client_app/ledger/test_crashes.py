"""Clients that are killed wherever they touch the disk: nothing leaves unrecorded, nothing is charged twice."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.experiments.cells import Result
from deploy.experiments.ledger_crashes import Toll, examine
from deploy.experiments.ledger_victim import Kill, Site, ask, let_go
from deploy.experiments.privacy_ledger import measure_crashes
from federation.accounting.events import History
from federation.errors import LedgerError
from tests.client_app.ledger.place import FIFTH, Place, request

KILL = Kill(birth=False, point="noise", hit=1)


def require_a_clean_toll(toll: Result) -> None:
    assert toll["faults"] == []
    assert (toll["unrecorded_releases"], toll["double_spends"], toll["lost_beyond_one"]) == (0, 0, 0)
    assert toll["releases"] > toll["kills"]


def test_client_killed_once_at_every_point_releases_nothing_unrecorded_and_pays_nothing_twice(place: Place) -> None:
    toll = measure_crashes({"kills": 0, "seed": 0}, place.root)

    require_a_clean_toll(toll)
    assert toll["kills"] == len(toll["points"]) >= 30
    kinds = ("genesis", "reserve", "commit", "cancel", "expire")
    assert {f"sql INSERT {kind} {when}" for kind in kinds for when in ("before", "after")} <= set(toll["points"])
    assert {"pwrite anchor torn", "fdatasync anchor before", "release torn", "sql close before"} <= set(toll["points"])


@pytest.mark.slow
def test_hundreds_of_kills_on_a_disk_release_nothing_unrecorded_and_pay_nothing_twice(tmp_path: Path) -> None:
    toll = measure_crashes({"kills": 300, "seed": 1}, tmp_path)

    require_a_clean_toll(toll)
    assert toll["kills"] == 300


def outcome(site: Site) -> tuple[int, int]:
    toll = Toll()
    examine(site, KILL, toll)
    return toll.unrecorded_releases, toll.double_spends


def test_examination_sees_a_release_without_a_row_and_a_message_released_twice(place: Place) -> None:
    site = Site(place.root)
    with site.open() as ledger:
        ledger.commit(ledger.reserve(ask("m1")))
        ledger.reserve(ask("m2"))
    let_go(site.outbox, "m1", lambda _: None)
    assert outcome(site) == (0, 0)

    let_go(site.outbox, "m2", lambda _: None)
    assert outcome(site) == (1, 0)

    let_go(site.outbox, "m1", lambda _: None)
    assert outcome(site) == (1, 1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept=st.floats(0, 1))
def test_power_cut_that_shortens_the_write_ahead_log_is_noticed_or_lost_nothing_the_anchor_saw(
    place: Place, kept: float
) -> None:
    before, after = Place(place.root / "before"), Place(place.root / "after")
    for used in (before, after):
        shutil.rmtree(used.root, ignore_errors=True)
    with before.open() as ledger:
        for number in range(3):
            ledger.commit(ledger.reserve(request(f"m{number}")))
        shutil.copytree(before.root, after.root)
    log = after.rows.with_name("north.ledger-wal")
    after.rows.with_name("north.ledger-shm").unlink()
    content = log.read_bytes()
    log.write_bytes(content[: round(kept * len(content))])

    try:
        survivor = after.open()
    except LedgerError as error:
        assert kept < 1
        assert "its last rows were lost" in str(error)  # noqa: PT017 - either outcome is right.
    else:
        with survivor as ledger:
            assert ledger.spend("scans", 1e-5).history == History.of([FIFTH] * 3)


def test_rows_survive_without_a_clean_close(place: Place) -> None:
    copy = Place(place.root / "copy")
    with place.open() as ledger:
        ledger.commit(ledger.reserve(request("m1")))
        shutil.copytree(place.folder, copy.folder)
        shutil.copytree(place.keys, copy.keys)

    with copy.open() as ledger:
        assert ledger.spend("scans", 1e-5).committed == 1
    database = sqlite3.connect(copy.rows)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
