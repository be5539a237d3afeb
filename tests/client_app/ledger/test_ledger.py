"""Reserve, commit, cancel, expire: what is charged, what is given back, what is refused before anything is spent."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from federation.accounting.events import GaussianRelease, History, Relation, SampledGaussianRelease, Unit
from federation.accounting.mechanism import Mechanism
from federation.errors import BudgetExhaustedError, LedgerError, PrivacyError
from tests.client_app.ledger.place import FIFTH, MECHANISM, Place, release, request

DP_SGD = Mechanism(name="dp-sgd", relation=Relation.ADD_REMOVE, unit=Unit.RECORD, clip_norm=1.0)


def test_linear_account_stops_at_forty_releases_of_a_fifth_each_under_a_cap_of_eight(place: Place) -> None:
    with place.open() as ledger:
        for number in range(40):
            release(ledger, f"m{number}")

        with pytest.raises(BudgetExhaustedError, match=r"spent=8 \+ asked=0\.2 <= cap=8 .*'scans'.*linear.*1e-05"):
            ledger.reserve(request("m40"))

        assert ledger.spend("scans", 1e-5).linear == pytest.approx(40 * 0.2, rel=1e-3)
    assert place.kinds() == ["genesis", *["reserve", "commit"] * 40]


def test_decision_beforehand_agrees_with_the_reservation_and_writes_nothing(place: Place) -> None:
    with place.open() as ledger:
        ledger.reserve(request(cap=0.3))

        ledger.require_room(request("m2", cap=0.4001))
        with pytest.raises(BudgetExhaustedError):
            ledger.require_room(request("m2", cap=0.39))

    assert place.kinds() == ["genesis", "reserve"]


def test_binding_account_is_the_one_that_the_request_names(place: Place) -> None:
    with place.open() as ledger:
        for number in range(40):
            ledger.reserve(request(f"m{number}"))

        with pytest.raises(BudgetExhaustedError, match="linear"):
            ledger.require_room(request("more"))
        ledger.require_room(request("more", account="rdp"))
        ledger.require_room(request("more", account="pld"))


def test_budget_outlives_process_and_run(place: Place) -> None:
    with place.open() as ledger:
        release(ledger, "m1", run_id="first", cap=0.3)

    with place.open() as ledger:
        assert ledger.spend("scans", 1e-5).history == History.of([FIFTH])
        with pytest.raises(BudgetExhaustedError):
            ledger.reserve(request("m1", run_id="second", cap=0.3))


def test_each_data_set_has_a_budget_of_its_own(place: Place) -> None:
    with place.open() as ledger:
        release(ledger, "m1", cap=0.3)

        release(ledger, "m2", data_set="other", cap=0.3)

        assert ledger.spend("scans", 1e-5).releases == ledger.spend("other", 1e-5).releases == 1
        assert ledger.spend("third", 1e-5).linear == 0


def test_cap_binds_at_the_delta_of_each_request_over_all_releases(place: Place) -> None:
    at_smaller_delta = math.sqrt(2 * math.log(1.25 / 1e-9)) / 24.22
    with place.open() as ledger:
        release(ledger, "m1")

        assert ledger.spend("scans", 1e-9).linear == pytest.approx(at_smaller_delta, rel=1e-3)
        with pytest.raises(BudgetExhaustedError):
            ledger.require_room(request("m2", delta=1e-9, cap=1.9 * at_smaller_delta))
        ledger.require_room(request("m2", delta=1e-9, cap=2.1 * at_smaller_delta))


def test_history_can_be_asked_for_one_run_and_without_it(place: Place) -> None:
    other = GaussianRelease(noise_multiplier=50.0)
    with place.open() as ledger:
        release(ledger, "m1", run_id="a")
        release(ledger, "m2", run_id="a")
        release(ledger, "m1", run_id="b", event=other)
        ledger.cancel(ledger.reserve(request("m3", run_id="a")))

        assert ledger.history("scans") == History.of([FIFTH, FIFTH, other])
        assert ledger.history("scans", run_id="a") == History.of([FIFTH, FIFTH])
        assert ledger.history("scans", other_than="a") == History.of([other])
        assert ledger.history("scans", other_than="c") == ledger.history("scans")
        assert ledger.history("unknown", run_id="a") == History()


def test_open_reservation_counts_as_spent(place: Place) -> None:
    with place.open() as ledger:
        ledger.reserve(request("m1", cap=0.3))

        with pytest.raises(BudgetExhaustedError):
            ledger.reserve(request("m2", cap=0.3))


def test_cancelled_reservation_gives_its_cost_back_and_keeps_its_row(place: Place) -> None:
    with place.open() as ledger:
        ledger.cancel(ledger.reserve(request("m1", cap=0.3)))

        assert ledger.spend("scans", 1e-5).history == History()
        assert not ledger.knows("run", "m1")
        release(ledger, "m1", cap=0.3)
        assert ledger.knows("run", "m1")

    assert place.kinds() == ["genesis", "reserve", "cancel", "reserve", "commit"]


def test_committed_reservation_cannot_be_cancelled_and_cancelled_one_not_committed(place: Place) -> None:
    with place.open() as ledger:
        committed, cancelled = ledger.reserve(request("m1")), ledger.reserve(request("m2"))
        ledger.commit(committed)
        ledger.cancel(cancelled)

        for refused in (ledger.cancel, ledger.commit):
            for reservation in (committed, cancelled):
                with pytest.raises(LedgerError, match="Expected a reservation that this ledger holds"):
                    refused(reservation)

    assert place.kinds() == ["genesis", "reserve", "reserve", "commit", "cancel"]


def test_cap_below_what_is_spent_refuses_and_loses_nothing(place: Place) -> None:
    with place.open() as ledger:
        release(ledger, "m1")
        ledger.reserve(request("m2"))
    before = place.raw_rows()

    with place.open() as ledger:
        for message in ("m2", "m3"):
            with pytest.raises(BudgetExhaustedError, match=r"spent=0\.4.* <= cap=0\.1"):
                ledger.reserve(request(message, cap=0.1))
        ledger.require_room(request("m3"))

    assert place.raw_rows() == before


def test_unprotected_release_is_booked_and_ends_every_claim(place: Place) -> None:
    with place.open() as ledger:
        release(ledger, "m1")
        assert ledger.spend("scans", 1e-5).claimable

        release(ledger, "m2", event=None, delta=0.0, cap=0.0)
        release(ledger, "m3")

        spend = ledger.spend("scans", 1e-5)
        assert (spend.claimable, spend.unprotected, spend.releases) == (False, 1, 3)
        assert spend.history == History.of([FIFTH, FIFTH])
    after = [json.loads(row["body"])["after"] for row in place.raw_rows() if row["kind"] == "reserve"]
    assert [entry["linear"] is None for entry in after] == [False, True, True]


def test_mixed_units_in_one_data_set_end_the_claim(place: Place) -> None:
    event = SampledGaussianRelease(noise_multiplier=4.0, sampling_probability=0.01, steps=10)
    with place.open() as ledger:
        release(ledger, "m1", event=event, mechanism=DP_SGD)
        assert ledger.spend("scans", 1e-5).claimable
        release(ledger, "m2")

        spend = ledger.spend("scans", 1e-5)
        assert spend.protections == ((Relation.ADD_REMOVE, Unit.RECORD), (Relation.ZERO_OUT, Unit.UPDATE))
        assert not spend.claimable
        assert spend.epsilon("pld") <= spend.epsilon("rdp")


def test_reservation_row_carries_everything_that_it_was_decided_on(place: Place) -> None:
    with place.open() as ledger:
        release(ledger, "m1")
        ledger.reserve(request("m2", run_id="r7", account="pld", cap=3.5))
        spend = ledger.spend("scans", 1e-5)

    body = json.loads(place.raw_rows()[-1]["body"])

    assert body == {
        "run": "r7",
        "message": "m2",
        "data-set": "scans",
        "mechanism": {"name": "update-gaussian", "relation": "zero-out", "unit": "update", "clip-norm": 1.0},
        "event": {"kind": "gaussian", "noise-multiplier": 24.22},
        "delta": 1e-5,
        "cap": 3.5,
        "account": "pld",
        "masking": "none        00000000 0000000000000000",
        "after": {"linear": spend.linear, "rdp": spend.rdp, "pld": spend.pld},
        "unprotected": 0,
    }
    assert spend.linear == pytest.approx(0.4, rel=1e-3)
    assert spend.linear >= spend.rdp >= spend.pld > 0


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"cap": 0.0}, PrivacyError, "cap=0.0 > 0"),
        ({"cap": -1.0}, PrivacyError, "cap=-1.0 >= 0"),
        ({"cap": math.nan}, PrivacyError, "finite cap=nan"),
        ({"cap": math.inf}, PrivacyError, "finite cap=inf"),
        ({"delta": 0.0}, PrivacyError, "delta=0.0 > 0"),
        ({"delta": 1.0}, PrivacyError, "delta=1.0 < 1"),
        ({"delta": math.nan}, PrivacyError, "delta=nan"),
        ({"account": "renyi"}, PrivacyError, "'renyi'"),
        ({"run_id": ""}, LedgerError, "run_id=''"),
        ({"message_id": "a\nb"}, LedgerError, "message_id"),
        ({"data_set": "x" * 201}, LedgerError, "data_set"),
        ({"event": None, "mechanism": MECHANISM}, LedgerError, "Expected an event exactly where"),
    ],
)
def test_impossible_request_is_refused_at_once(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        request(**changes)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_spend_needs_a_possible_delta(place: Place, delta: float) -> None:
    with place.open() as ledger, pytest.raises(PrivacyError, match="delta"):
        ledger.spend("scans", delta)


def test_closed_ledger_refuses_everything(place: Place) -> None:
    ledger = place.open()
    reservation = ledger.reserve(request())
    ledger.close()
    ledger.close()

    for call in (
        lambda: ledger.reserve(request("m2")),
        lambda: ledger.require_room(request("m2")),
        lambda: ledger.commit(reservation),
        lambda: ledger.cancel(reservation),
        lambda: ledger.spend("scans", 1e-5),
        ledger.expire_stale,
    ):
        with pytest.raises(LedgerError, match="Expected an open ledger"):
            call()


def test_reservation_of_an_earlier_opening_can_neither_be_committed_nor_cancelled(place: Place) -> None:
    with place.open() as ledger:
        reservation = ledger.reserve(request())

    with place.open() as ledger:
        for refused in (ledger.commit, ledger.cancel):
            with pytest.raises(LedgerError, match="made before the ledger was opened"):
                refused(reservation)


def test_ledger_keeps_its_id_for_life(place: Place) -> None:
    with place.open() as ledger:
        born = ledger.ledger_id

    with place.open() as ledger:
        assert ledger.ledger_id == born
    assert len(bytes.fromhex(born)) == 16
