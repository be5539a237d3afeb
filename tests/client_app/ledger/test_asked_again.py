"""What a data set had cost when a message was booked can still be told after later releases."""

from __future__ import annotations

import pytest

from federation.accounting.events import GaussianRelease, History
from tests.client_app.ledger.place import FIFTH, Place, request

OTHER = GaussianRelease(noise_multiplier=48.44)


def fill(place: Place) -> None:
    """Book one release of another run, three of this one, one of them cancelled, and one of other data."""
    with place.open() as ledger:
        for message, event, changes in [
            ("m1", FIFTH, {"run_id": "earlier"}),
            ("m1", FIFTH, {}),
            ("gone", FIFTH, {}),
            ("m2", OTHER, {}),
            ("elsewhere", FIFTH, {"data_set": "other"}),
            ("m3", FIFTH, {}),
        ]:
            reservation = ledger.reserve(request(message, event, **changes))
            (ledger.cancel if message == "gone" else ledger.commit)(reservation)


@pytest.mark.parametrize(
    ("message", "during"),
    [
        ("m1", []),
        ("m2", [FIFTH]),
        ("m3", [FIFTH, OTHER]),
        ("new", [FIFTH, OTHER, FIFTH]),
        ("gone", [FIFTH, OTHER, FIFTH]),
    ],
)
def test_history_before_a_message_leaves_out_it_and_all_that_came_later(
    place: Place, message: str, during: list[GaussianRelease]
) -> None:
    fill(place)

    with place.open() as ledger:
        assert ledger.history("scans", run_id="run", before=("run", message)) == History.of(during)
        assert ledger.history("scans", other_than="run", before=("run", message)) == History.of([FIFTH])


@pytest.mark.parametrize(("message", "spent"), [("m1", 0.4), ("m2", 0.5), ("m3", 0.7), ("new", 0.7)])
def test_spend_until_a_message_is_what_was_declared_with_it(place: Place, message: str, spent: float) -> None:
    fill(place)

    with place.open() as ledger:
        spend = ledger.spend("scans", 1e-5, until=("run", message))

    assert spend.linear == pytest.approx(spent, abs=1e-3)
    assert spend.releases == spend.history.releases == spend.committed


def test_message_of_other_data_counts_nothing_of_these(place: Place) -> None:
    fill(place)

    with place.open() as ledger:
        assert ledger.spend("scans", 1e-5, until=("run", "elsewhere")).releases == 3
        assert ledger.spend("other", 1e-5, until=("run", "elsewhere")).releases == 1
        assert ledger.spend("other", 1e-5, until=("run", "m2")).releases == 0
