"""One client at a time, across processes, threads and forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from client_app.ledger.row_file import RowFile
from client_app.ledger.rows import Row
from federation.errors import LedgerError
from tests.client_app.ledger.place import Place, request

ROOT = Path(__file__).parents[3]
_HOLD = """
import sys
from pathlib import Path
from client_app.ledger import Ledger
with Ledger.open(Path(sys.argv[1]), hospital_id="north", key_folder=Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_second_client_waits_so_long_and_then_says_who_is_in_the_way(place: Place) -> None:
    with place.open() as ledger:
        ledger.reserve(request("m1"))

        with pytest.raises(LedgerError, match=r"found another one that has held the ledger for 0\.05 s"):
            place.open(wait_s=0.05)

        ledger.reserve(request("m2"))


def test_second_client_goes_on_as_soon_as_the_first_is_done(place: Place) -> None:
    first = place.open()
    closer = threading.Timer(0.05, first.close)
    closer.start()

    with place.open(wait_s=20.0) as second:
        second.reserve(request("m1"))

    closer.join()


def test_client_in_another_process_keeps_this_one_out_until_it_is_killed(place: Place) -> None:
    command = [sys.executable, "-c", _HOLD, str(place.folder), str(place.keys)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"

        with pytest.raises(LedgerError, match="another one that has held"):
            place.open()
        other.kill()
        other.wait()

    with place.open() as ledger:
        ledger.reserve(request("m1"))


def in_child(action: object) -> int:
    """Run `action` in a forked child and return its exit status; 0 when it raised the error of a forked process."""
    child = os.fork()
    if child == 0:
        try:
            action()  # type: ignore[operator]
        except LedgerError as error:
            os._exit(0 if "found a forked one" in str(error) else 2)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_is_refused_and_does_no_harm(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.open() as ledger:
        reservation = ledger.reserve(request("m1"))

        assert in_child(lambda: ledger.reserve(request("m2"))) == 0
        assert in_child(lambda: ledger.commit(reservation)) == 0
        assert in_child(lambda: ledger.spend("scans", 1e-5)) == 0
        with monkeypatch.context() as patch:
            patch.setattr(RowFile, "close", lambda _: os._exit(3))
            assert in_child(ledger.close) == 1

        ledger.commit(reservation)
        with pytest.raises(LedgerError, match="another one"):
            place.open()
    assert place.kinds() == ["genesis", "reserve", "commit"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_child_that_outlives_its_parent_does_not_keep_the_next_client_out(place: Place) -> None:
    ledger = place.open()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    ledger.close()

    place.open(wait_s=20.0).close()

    os.close(writer)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_share_one_ledger_one_after_the_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    append, writing, together = RowFile.append, threading.Lock(), threading.Barrier(4)
    overlaps: list[str] = []

    def watched(file: RowFile, row: Row) -> None:
        alone = writing.acquire(blocking=False)
        append(file, row)
        overlaps.extend([] if alone else [row.body])
        writing.release()

    def work(name: str) -> None:
        together.wait()
        for number in range(10):
            ledger.commit(ledger.reserve(request(f"{name}-{number}", cap=100.0)))

    monkeypatch.setattr(RowFile, "append", watched)
    interval = sys.getswitchinterval()
    with place.open() as ledger:
        sys.setswitchinterval(1e-6)
        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)

        assert overlaps == []
        assert ledger.spend("scans", 1e-5).committed == 40
    with place.open() as ledger:
        assert ledger.spend("scans", 1e-5).committed == 40
