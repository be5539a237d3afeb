"""What the ledger's Guarantee sections promise, restated: the cap, durability, once per message, no silent change."""

from __future__ import annotations

import math
import os
import sqlite3
from statistics import NormalDist

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client_app.ledger.anchor import Anchor, Position
from client_app.ledger.row_file import RowFile
from federation.accounting.events import GaussianRelease, History
from federation.errors import AlreadyReleasedError, BudgetExhaustedError, LedgerError
from tests.client_app.ledger.conftest import place
from tests.client_app.ledger.place import Place, request

__all__ = ["place"]
MULTIPLIERS = st.floats(2.0, 60.0)
WISHES = st.lists(st.tuples(MULTIPLIERS, st.sampled_from(["linear", "rdp", "pld"])), min_size=1, max_size=12)


def exact_delta(events: list[GaussianRelease], epsilon: float) -> float:
    """Return delta of all `events` together: arXiv 1905.02383, corollary 3.3, and 1805.06530, theorem 8."""
    shift = math.sqrt(sum(event.noise_multiplier**-2 for event in events))
    if not shift:
        return 0.0
    norm = NormalDist()
    below = norm.cdf(-shift / 2 - epsilon / shift)
    return norm.cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * below


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wishes=WISHES, cap=st.floats(0.1, 6.0))
def test_whatever_is_asked_the_epsilon_of_everything_reserved_stays_within_the_cap(
    place: Place, wishes: list[tuple[float, str]], cap: float
) -> None:
    data_set = os.urandom(8).hex()
    granted: list[GaussianRelease] = []
    with place.open() as ledger:
        for number, (multiplier, account) in enumerate(wishes):
            event = GaussianRelease(noise_multiplier=multiplier)
            asked = request(f"{data_set}-{number}", event, cap=cap, account=account, data_set=data_set)
            before = ledger.spend(data_set, asked.delta)
            try:
                ledger.reserve(asked)
            except BudgetExhaustedError:
                assert ledger.spend(data_set, asked.delta) == before
            else:
                granted.append(event)

        assert ledger.history(data_set) == History.of(granted)
    assert exact_delta(granted, cap) <= 1e-5


def test_reservation_is_in_the_file_and_the_anchor_before_the_call_returns(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    append, write = RowFile.append, Anchor.write

    def watched_append(file: RowFile, row: object) -> None:
        append(file, row)  # type: ignore[arg-type]
        steps.append("row")

    def watched_write(anchor: Anchor, position: Position) -> None:
        write(anchor, position)
        steps.append("anchor")

    with place.open() as ledger:
        monkeypatch.setattr(RowFile, "append", watched_append)
        monkeypatch.setattr(Anchor, "write", watched_write)
        ledger.reserve(request("m1"))
        steps.append("returned")
        reader = sqlite3.connect(f"{place.rows.as_uri()}?mode=ro", uri=True)
        kinds = [kind for (kind,) in reader.execute("SELECT kind FROM rows ORDER BY seq")]
        reader.close()

    assert steps == ["row", "anchor", "returned"]
    assert kinds == ["genesis", "reserve"]


def test_message_is_charged_and_committed_at_most_once_over_any_number_of_restarts(place: Place) -> None:
    for _ in range(3):
        with place.open() as ledger:
            ledger.reserve(request("m1", cap=0.3))
    with place.open() as ledger:
        ledger.commit(ledger.reserve(request("m1", cap=0.3)))
    for _ in range(2):
        with place.open() as ledger, pytest.raises(AlreadyReleasedError):
            ledger.reserve(request("m1", cap=0.3))

    assert place.kinds() == ["genesis", "reserve", "commit"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_of_any_row_keeps_the_ledger_from_being_opened(place: Place, data: st.DataObject) -> None:
    if not place.rows.exists():
        with place.open() as ledger:
            for number in range(3):
                ledger.commit(ledger.reserve(request(f"m{number}")))
    original = place.rows.read_bytes()
    row = data.draw(st.sampled_from(place.raw_rows()))
    column = data.draw(st.sampled_from(["kind", "time", "body", "digest", "seal"]))
    value = row[column] if isinstance(row[column], bytes) else row[column].encode()
    at = data.draw(st.integers(0, len(value) - 1))
    changed = value[:at] + bytes([(value[at] + data.draw(st.integers(1, 90))) % 128]) + value[at + 1 :]
    if changed == value:
        return
    literal = f"x'{changed.hex()}'" if isinstance(row[column], bytes) else f"CAST(x'{changed.hex()}' AS TEXT)"
    place.tamper(f"UPDATE rows SET {column} = {literal} WHERE seq = {row['seq']}")

    with pytest.raises(LedgerError):
        place.open()

    place.rows.write_bytes(original)


def test_ledger_set_back_to_an_earlier_moment_is_not_opened_and_what_was_spent_not_forgotten(place: Place) -> None:
    with place.open() as ledger:
        ledger.commit(ledger.reserve(request("m1", cap=0.3)))
    backup = place.rows.read_bytes()
    with place.open() as ledger:
        ledger.commit(ledger.reserve(request("m2", cap=0.5)))
    newest = place.rows.read_bytes()
    place.rows.write_bytes(backup)

    with pytest.raises(LedgerError, match="an old copy of the ledger was restored"):
        place.open()

    place.rows.write_bytes(newest)
    with place.open() as ledger, pytest.raises(BudgetExhaustedError):
        ledger.reserve(request("m3", cap=0.5))


def test_anchor_cannot_be_moved_by_someone_without_the_key(place: Place) -> None:
    with place.open() as ledger:
        ledger.commit(ledger.reserve(request("m1")))
        ledger_id = bytes.fromhex(ledger.ledger_id)
    forged = Anchor.create(place.root / "forged", key=bytes(32), hospital_id="north", ledger_id=ledger_id)
    forged.write(Position(ledger_id=ledger_id, seq=1, digest=place.raw_rows()[0]["digest"]))
    forged.close()
    place.anchor.write_bytes((place.root / "forged").read_bytes())

    with pytest.raises(LedgerError, match="found it damaged, changed or foreign"):
        place.open()
