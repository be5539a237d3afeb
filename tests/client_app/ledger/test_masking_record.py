"""What the ledger says of masking: written down in words of one length, and never counted as privacy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_app.ledger import ReleaseRequest
from client_app.ledger import ledger as ledger_module
from client_app.ledger.release import NO_MASKING, describe_masking, request_as_dict, request_from_dict
from federation.accounting.events import Event
from federation.errors import AlreadyReleasedError, LedgerError
from tests.client_app.ledger.place import FIFTH, Place, request

MODES = ["none", "sequential", "lambda", "joint", "interleaved"]
DIGEST = "0123456789abcdef" * 4
MASKED = describe_masking("interleaved", 2048, DIGEST)


def write_as_before_masking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a ledger write its rows as the version did that knew nothing of masking."""

    def without_masking(wanted: ReleaseRequest) -> dict[str, Any]:
        content = request_as_dict(wanted)
        del content["masking"]
        return content

    monkeypatch.setattr(ledger_module, "request_as_dict", without_masking)


@given(mode=st.sampled_from(MODES), size=st.integers(0, 10**8 - 1), digest=st.text("0123456789abcdef", max_size=64))
def test_record_has_one_length_whatever_it_says(mode: str, size: int, digest: str) -> None:
    record = describe_masking(mode, size, digest)

    assert len(record) == len(NO_MASKING)
    assert record.split()[:2] == [mode, f"{size:08d}"]
    assert record[21:].rstrip() == digest[:16]
    assert request(masking=record).masking == record


def test_record_of_nothing_says_none() -> None:
    assert request().masking == NO_MASKING == describe_masking("none", 0, "0" * 64)


@pytest.mark.parametrize("record", ["", "none", MASKED[:-1], MASKED + " ", "ä" * len(MASKED)])
def test_record_of_another_length_or_alphabet_is_refused(record: str) -> None:
    with pytest.raises(LedgerError, match="37 ASCII characters"):
        request(masking=record)


@pytest.mark.parametrize("event", [None, FIFTH])
def test_request_is_the_same_after_it_was_a_dictionary(event: Event | None) -> None:
    wanted = request(event=event, masking=MASKED)

    content = json.loads(json.dumps(request_as_dict(wanted)))

    assert content["masking"] == MASKED
    assert request_from_dict(content) == wanted


@pytest.mark.parametrize("record", [7, None, "joint", ["joint"]])
def test_record_that_makes_no_sense_is_no_reservation(record: Any) -> None:
    content = request_as_dict(request()) | {"masking": record}

    with pytest.raises(LedgerError):
        request_from_dict(content)


def test_row_keeps_the_record_and_masked_rows_are_no_longer_than_others(place: Place) -> None:
    records = [NO_MASKING, MASKED, describe_masking("joint", 1, DIGEST)]
    with place.open() as ledger:
        for number, record in enumerate(records):
            ledger.commit(ledger.reserve(request(f"m{number}", masking=record, data_set=f"scans-{number}")))

    bodies = [row["body"] for row in place.raw_rows() if row["kind"] == "reserve"]
    assert [json.loads(body)["masking"] for body in bodies] == records
    assert len({len(body) for body in bodies}) == 1


def test_masking_changes_nothing_that_is_counted(place: Place) -> None:
    with place.open() as ledger:
        for number in range(4):
            ledger.commit(ledger.reserve(request(f"m{number}", masking=MASKED)))
            ledger.commit(ledger.reserve(request(f"plain-{number}", masking=NO_MASKING, data_set="plain")))
        masked, plain = (ledger.spend(name, 1e-5) for name in ("scans", "plain"))

    assert (masked.linear, masked.rdp, masked.pld) == (plain.linear, plain.rdp, plain.pld)
    assert (masked.history, masked.claimable) == (plain.history, True)


def test_masked_release_without_protection_ends_every_claim_like_any_other(place: Place) -> None:
    with place.open() as ledger:
        ledger.commit(ledger.reserve(request("m1", event=None, masking=MASKED)))
        spend = ledger.spend("scans", 1e-5)

    assert (spend.unprotected, spend.claimable) == (1, False)


def test_rows_from_before_masking_are_read_counted_and_followed_by_new_ones(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, place.open() as ledger:
        write_as_before_masking(patch)
        for number in range(3):
            ledger.commit(ledger.reserve(request(f"old-{number}")))

    with place.open() as ledger:
        ledger.commit(ledger.reserve(request("new", masking=MASKED)))
        spend = ledger.spend("scans", 1e-5)

    contents = [json.loads(row["body"]) for row in place.raw_rows() if row["kind"] == "reserve"]
    assert [content.get("masking") for content in contents] == [None, None, None, MASKED]
    assert (spend.releases, spend.committed) == (4, 4)
    assert spend.linear == pytest.approx(0.8, rel=1e-3)


def test_release_of_a_row_from_before_masking_is_made_no_second_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, place.open() as ledger:
        write_as_before_masking(patch)
        ledger.commit(ledger.reserve(request("m1")))

    with place.open() as ledger, pytest.raises(AlreadyReleasedError):
        ledger.reserve(request("m1", masking=MASKED))


def test_request_of_a_row_from_before_masking_is_one_without_masking() -> None:
    content = request_as_dict(request())
    del content["masking"]

    assert request_from_dict(content) == request(masking=NO_MASKING)


def test_open_reservation_that_is_taken_up_with_other_masking_is_charged_once(place: Place) -> None:
    with place.open() as ledger:
        ledger.reserve(request("m1"))

    with place.open() as ledger:
        again = ledger.reserve(request("m1", masking=MASKED))
        ledger.commit(again)
        spend = ledger.spend("scans", 1e-5)

    assert again.taken_up
    assert spend.releases == 1
    assert spend.linear == pytest.approx(0.2, rel=1e-3)
