"""What the page says of a ledger, on real ledgers."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from client_app.ledger.release import GENERATOR_RUN
from deploy.status_page import spending
from deploy.status_page.spending import ledger_stamp, read_spending
from federation.accounting.events import GaussianRelease
from federation.errors import LedgerError
from tests.client_app.ledger.place import release, request
from tests.deploy.status_page.made_up import Folders


def read(folders: Folders) -> spending.Spending:
    return read_spending(folders.state, folders.keys, "north")


def digests(*folders: Path) -> dict[Path, str]:
    """Of every file but the memory that SQLite's readers and writers share."""
    files = [path for folder in folders for path in sorted(folder.iterdir()) if not path.name.endswith("-shm")]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_hospital_that_never_released_has_no_accounts(folders: Folders) -> None:
    found = read(folders)

    assert (found.accounts, found.findings, found.releases, found.anchored) == ((), 0, 0, True)


def test_ledger_is_read_with_what_is_left_and_how_often_more(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        for number in range(3):
            release(ledger, f"m{number}")

    found = read(folders)

    (account,) = found.accounts
    assert account.line.left == pytest.approx(8.0 - 3 * 0.2)
    assert account.more == 37
    assert len(account.times) == 3
    assert (found.releases, found.findings, found.anchored, found.under_way) == (3, 0, True, 0)


def test_reading_changes_nothing_beside_a_writing_client(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
        ledger.reserve(request("m2"))
        before = digests(folders.state, folders.keys)

        found = read(folders)

        assert digests(folders.state, folders.keys) == before
        assert (found.releases, found.under_way) == (2, 1)
        release(ledger, "m3")


def test_reading_a_closed_ledger_leaves_no_file_behind(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
    before = digests(folders.state, folders.keys)

    read(folders)

    assert digests(folders.state, folders.keys) == before


def test_no_forecast_where_no_epsilon_holds(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
        release(ledger, "m2", event=None, cap=0.0, delta=0.0)

    (account,) = read(folders).accounts

    assert (account.line.unprotected, account.more) == (1, None)


def test_price_is_that_of_a_run_and_not_of_a_generator(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
        release(ledger, "generator", run_id=GENERATOR_RUN, event=GaussianRelease(noise_multiplier=4.844))

    (account,) = read(folders).accounts

    assert account.more == 34
    assert len(account.times) == 1


def test_cancelled_release_costs_nothing_and_does_not_count(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
        ledger.cancel(ledger.reserve(request("m2")))

    found = read(folders)

    assert (found.releases, len(found.accounts[0].times), found.accounts[0].more) == (1, 1, 39)


def test_releases_of_a_data_set_at_two_deltas_are_counted_once(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
        release(ledger, "m2", delta=1e-6)

    found = read(folders)

    assert [account.line.latest.delta for account in found.accounts if account.line.latest] == [1e-6, 1e-5]
    assert found.releases == 2


def test_keys_that_are_not_mounted_leave_the_chain_to_be_checked(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
    folders.keys.rename(folders.root / "elsewhere")

    found = read(folders)

    assert (found.anchored, found.findings, found.releases) == (False, 0, 1)


def test_keys_closed_to_the_page_leave_the_chain_to_be_checked(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith(".key") and allowed(path, mode))

    assert read(folders).anchored is False


@pytest.mark.parametrize("lost", ["anchor", "ledger"])
def test_half_a_ledger_is_an_error_and_no_beginning(folders: Folders, lost: str) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
    (folders.ledger if lost == "ledger" else folders.keys / "north.anchor").unlink()

    with pytest.raises(LedgerError):
        read(folders)


def test_stamp_changes_with_every_row_and_not_by_itself(folders: Folders) -> None:
    stamps = [ledger_stamp(folders.state, folders.keys, "north")]
    with folders.open_ledger() as ledger:
        stamps.append(ledger_stamp(folders.state, folders.keys, "north"))
        reservation = ledger.reserve(request("m1"))
        stamps.append(ledger_stamp(folders.state, folders.keys, "north"))
        ledger.commit(reservation)
        stamps.append(ledger_stamp(folders.state, folders.keys, "north"))
        again = ledger_stamp(folders.state, folders.keys, "north")

    assert len(set(stamps)) == len(stamps)
    assert again == stamps[-1]
