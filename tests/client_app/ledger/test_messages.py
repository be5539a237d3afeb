"""A message is one release: charged once, committed once, taken up after a crash, and no answer to another one."""

from __future__ import annotations

from typing import Any

import pytest

from federation.accounting.events import GaussianRelease, History, Relation, Unit
from federation.accounting.mechanism import Mechanism
from federation.errors import AlreadyReleasedError, LedgerError
from tests.client_app.ledger.place import FIFTH, Place, release, request


def test_message_that_was_released_is_neither_charged_nor_answered_again(place: Place) -> None:
    with place.open() as ledger:
        release(ledger, "m1")

        for ask in (ledger.reserve, ledger.require_room):
            with pytest.raises(AlreadyReleasedError, match="'m1' of run 'run'"):
                ask(request("m1"))
    with place.open() as ledger, pytest.raises(AlreadyReleasedError):
        ledger.reserve(request("m1"))


def test_same_message_in_another_run_is_another_message(place: Place) -> None:
    with place.open() as ledger:
        release(ledger, "m1", run_id="a")
        release(ledger, "m1", run_id="b")

        assert ledger.spend("scans", 1e-5).committed == 2


def test_message_under_way_is_not_reserved_twice_at_once(place: Place) -> None:
    with place.open() as ledger:
        ledger.reserve(request("m1"))

        with pytest.raises(LedgerError, match="one under way"):
            ledger.reserve(request("m1"))

    assert place.kinds() == ["genesis", "reserve"]


@pytest.mark.parametrize("expired", [False, True])
def test_same_message_takes_up_what_a_dead_process_reserved_without_a_second_charge(
    place: Place, expired: bool
) -> None:
    with place.open() as ledger:
        ledger.reserve(request("m1", cap=0.3))

    with place.open() as ledger:
        assert ledger.expire_stale() == 1 if expired else True
        ledger.require_room(request("m1", cap=0.3))
        reservation = ledger.reserve(request("m1", cap=0.3))
        ledger.commit(reservation)

        assert reservation.taken_up
        assert (reservation.seq, ledger.spend("scans", 1e-5).releases) == (2, 1)
    assert place.kinds() == ["genesis", "reserve", *["expire"] * expired, "commit"]


def test_reservation_that_was_taken_up_stays_spent_when_cancelled(place: Place) -> None:
    with place.open() as ledger:
        ledger.reserve(request("m1"))

    with place.open() as ledger:
        ledger.cancel(ledger.reserve(request("m1")))

        assert ledger.spend("scans", 1e-5).history == History.of([FIFTH])
        ledger.commit(ledger.reserve(request("m1")))
    assert place.kinds() == ["genesis", "reserve", "expire", "commit"]


@pytest.mark.parametrize(
    "changes",
    [
        {"event": GaussianRelease(noise_multiplier=24.0)},
        {"data_set": "other"},
        {"mechanism": Mechanism(name="update-gaussian", relation=Relation.REPLACE_ONE, unit=Unit.UPDATE, clip_norm=1)},
    ],
)
def test_reservation_is_not_taken_up_for_another_release(place: Place, changes: dict[str, Any]) -> None:
    with place.open() as ledger:
        ledger.reserve(request("m1"))

    with place.open() as ledger, pytest.raises(LedgerError, match="another release needs a message of its own"):
        ledger.reserve(request("m1", **changes))

    assert place.kinds() == ["genesis", "reserve"]


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"event": GaussianRelease(noise_multiplier=24.0)},
        {"event": GaussianRelease(noise_multiplier=1e6)},
        {"event": None, "delta": 0.0, "cap": 0.0},
        {"data_set": "other"},
        {"mechanism": Mechanism(name="update-gaussian", relation=Relation.REPLACE_ONE, unit=Unit.UPDATE, clip_norm=1)},
    ],
)
def test_released_message_is_no_answer_to_another_release(
    place: Place, changes: dict[str, Any], reopened: bool
) -> None:
    ledger = place.open()
    release(ledger, "m1")
    if reopened:
        ledger.close()
        ledger = place.open()

    with ledger:
        for ask in (ledger.reserve, ledger.require_room):
            with pytest.raises(LedgerError, match="another release needs a message of its own") as refused:
                ask(request("m1", **changes))
            assert not isinstance(refused.value, AlreadyReleasedError)
        with pytest.raises(AlreadyReleasedError):
            ledger.reserve(request("m1", delta=1e-6, cap=5.0, account="rdp"))

    assert place.kinds() == ["genesis", "reserve", "commit"]


def test_stale_reservations_are_closed_and_stay_spent(place: Place) -> None:
    with place.open() as ledger:
        ledger.reserve(request("m1"))
        ledger.reserve(request("m2"))

    with place.open() as ledger:
        ledger.reserve(request("m3"))
        assert ledger.expire_stale() == 2
        assert ledger.expire_stale() == 0
        spend = ledger.spend("scans", 1e-5)

    assert (spend.releases, spend.lost, spend.committed) == (3, 2, 0)
    assert spend.history == History.of([FIFTH] * 3)
    assert place.kinds() == ["genesis", "reserve", "reserve", "reserve", "expire", "expire"]
