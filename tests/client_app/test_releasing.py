"""The one way out: paid before the noise is drawn, written down before it leaves, given back if it fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_app.ledger import Ledger, ReleaseRequest
from client_app.policy import SitePolicy
from client_app.releasing import Bill, open_ledger, read_histories, release, require_room, unprotected
from client_app.site import DeployedHospital, ReleaseKey, SimulatedSite, Site
from federation.accounting.events import GaussianRelease, History, Relation, Unit
from federation.accounting.mechanism import Mechanism
from federation.config import DataConfig
from federation.errors import AlreadyReleasedError, BudgetExhaustedError, LedgerError
from federation.records.declarations import Declaration

# 0.2 by the linear account at delta 1e-5: sqrt(2 ln(1.25 / 1e-5)) / 24.22.
FIFTH = GaussianRelease(noise_multiplier=24.22)
BILL = Bill(
    data_set="scans",
    mechanism=Mechanism(name="update-gaussian", relation=Relation.ZERO_OUT, unit=Unit.UPDATE, clip_norm=1.0),
    event=FIFTH,
    delta=1e-5,
    cap=8.0,
    budget=8.0,
    account="linear",
)


def ask_for_room(site: Site, key: ReleaseKey, bill: Bill) -> None:
    with open_ledger(site) as ledger:
        require_room(site, ledger, key, bill)


def histories_of(site: Site, key: ReleaseKey, data_set: str) -> tuple[History, History]:
    with open_ledger(site) as ledger:
        return read_histories(ledger, key, data_set)


@pytest.fixture
def hospital(volume: Path) -> DeployedHospital:
    policy = {
        "hospital-id": "north",
        "state-dir": str(volume / "state"),
        "keys-dir": str(volume / "keys"),
        "data": {"id": "scans", "name": "npz", "root": str(volume / "own.npz")},
    }
    return DeployedHospital(hospital_id="north", data=DataConfig(), policy=SitePolicy.model_validate(policy))


@pytest.fixture
def simulated(volume: Path) -> SimulatedSite:
    return SimulatedSite(
        hospital_id="north", data=DataConfig(), partition=0, partitions=1, seed=0, run="run", run_seed=0,
        seeded_noise=True, state_dir=volume / "state",
    )  # fmt: skip


def key(message: str = "m1", run: str = "run") -> ReleaseKey:
    return ReleaseKey(run=run, message=message)


def rows(site: Site) -> list[str]:
    """The kinds of all rows on the disk, as SQLite reads them beside the client."""
    with closing(sqlite3.connect(site.state_dir / f"{site.hospital_id}.ledger")) as database:
        return [kind for (kind,) in database.execute("SELECT kind FROM rows ORDER BY seq")]


def declared(site: Site, message: str = "m1", bill: Bill = BILL, run: str = "run") -> Declaration:
    declaration = release(site, key(message, run), bill, lambda declaration: declaration)
    assert declaration is not None
    return declaration


def fail(_: Declaration | None) -> str:
    raise ZeroDivisionError


def test_answer_is_formed_after_the_reservation_and_leaves_after_the_commit(
    hospital: DeployedHospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def spied(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            result = original(*arguments)
            order.append(name)
            return result

        return call

    for name in ("reserve", "commit", "cancel"):
        monkeypatch.setattr(Ledger, name, spied(name, getattr(Ledger, name)))

    def form(_: Declaration | None) -> str:
        order.append("form")
        return "answer"

    answer = release(hospital, key(), BILL, form)

    assert answer == "answer"
    assert order == ["reserve", "form", "commit"]


def test_reservation_is_on_the_disk_before_noise_is_drawn(hospital: DeployedHospital) -> None:
    seen = release(hospital, key(), BILL, lambda _: rows(hospital))

    assert seen == ["genesis", "reserve"]
    assert rows(hospital) == ["genesis", "reserve", "commit"]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_failure_while_forming_gives_the_cost_back_and_returns_nothing(
    hospital: DeployedHospital, error: type[BaseException]
) -> None:
    def stop(_: Declaration | None) -> str:
        raise error

    with pytest.raises(error):
        release(hospital, key(), BILL, stop)

    assert rows(hospital) == ["genesis", "reserve", "cancel"]
    assert declared(hospital).releases == 1


def test_answer_whose_commit_fails_does_not_leave_and_stays_spent(
    hospital: DeployedHospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise LedgerError("full")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", refuse)
        with pytest.raises(LedgerError, match="full"):
            release(hospital, key(), BILL, lambda _: "answer")

    assert rows(hospital) == ["genesis", "reserve"]
    assert declared(hospital, "m2").spent == pytest.approx(0.4, abs=1e-3)


def reserve_and_die(site: Site, message: str = "m1") -> None:
    """Leave the reservation behind that a process leaves which dies before its commit."""
    with open_ledger(site) as ledger:
        ledger.reserve(
            ReleaseRequest(
                run_id="run", message_id=message, data_set=BILL.data_set, mechanism=BILL.mechanism, event=BILL.event,
                delta=BILL.delta, cap=BILL.cap, account=BILL.account,
            )
        )  # fmt: skip


def test_crash_before_the_commit_leaves_the_reservation_spent(hospital: DeployedHospital) -> None:
    reserve_and_die(hospital)

    assert declared(hospital, "m2").spent == pytest.approx(0.4, abs=1e-3)


def test_task_asked_again_after_a_crash_is_answered_for_one_charge(hospital: DeployedHospital) -> None:
    reserve_and_die(hospital)

    declaration = declared(hospital)

    assert declaration.releases == 1
    assert declaration.spent == pytest.approx(0.2, abs=1e-3)
    assert rows(hospital) == ["genesis", "reserve", "expire", "commit"]


def test_ledger_whose_stale_reservations_cannot_be_closed_is_let_go_of(
    hospital: DeployedHospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Ledger) -> int:
        raise LedgerError("full")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "expire_stale", refuse)
        with pytest.raises(LedgerError, match="full") as kept:  # The error's frames must not keep it open either.
            open_ledger(hospital)

    with Ledger.open(hospital.state_dir, hospital_id="north", key_folder=hospital.keys_dir, wait_s=0):
        assert "full" in str(kept.value)


def test_task_that_fails_after_a_crash_stays_spent(hospital: DeployedHospital) -> None:
    reserve_and_die(hospital)

    with pytest.raises(ZeroDivisionError):
        release(hospital, key(), BILL, fail)

    assert declared(hospital, "m2").releases == 2


def test_deployed_hospital_answers_no_task_twice(hospital: DeployedHospital) -> None:
    declared(hospital)

    with pytest.raises(AlreadyReleasedError):
        ask_for_room(hospital, key(), BILL)
    with pytest.raises(AlreadyReleasedError):
        release(hospital, key(), BILL, fail)

    assert rows(hospital) == ["genesis", "reserve", "commit"]


def test_simulated_site_answers_again_as_it_did_without_a_second_cost(simulated: SimulatedSite) -> None:
    first = declared(simulated, "train-0")
    declared(simulated, "train-1")
    before = rows(simulated)

    ask_for_room(simulated, key("train-0"), BILL)
    again = declared(simulated, "train-0")

    assert again == first
    assert again.releases == 1
    assert rows(simulated) == before


def test_task_asked_again_is_planned_with_what_had_been_released_before_it(simulated: SimulatedSite) -> None:
    declared(simulated, run="earlier")
    for number in range(3):
        declared(simulated, f"train-{number}")

    assert histories_of(simulated, key("train-1"), "scans") == (History.of([FIFTH]), History.of([FIFTH]))
    assert histories_of(simulated, key("train-3"), "scans") == (History.of([FIFTH]), History.of([FIFTH] * 3))
    assert histories_of(simulated, key("train-3"), "other") == (History(), History())


def test_budget_of_the_run_binds_below_the_cap(hospital: DeployedHospital) -> None:
    bill = replace(BILL, budget=0.5)
    for number in range(2):
        declared(hospital, f"m{number}", bill)

    with pytest.raises(BudgetExhaustedError, match=r"this run's epsilon=0\.6"):
        ask_for_room(hospital, key("m2"), bill)
    with pytest.raises(BudgetExhaustedError, match="this run's epsilon"):
        release(hospital, key("m2"), bill, fail)

    assert rows(hospital).count("reserve") == 2
    assert declared(hospital, "m0", bill, run="next").releases == 3


def test_task_asked_again_needs_no_second_room(hospital: DeployedHospital) -> None:
    full = replace(BILL, budget=0.2, cap=0.2)
    reserve_and_die(hospital)

    ask_for_room(hospital, key(), full)
    assert declared(hospital, "m1", full).releases == 1
    with pytest.raises(AlreadyReleasedError):
        declared(hospital, "m1", full)


def test_simulated_site_whose_noise_is_fresh_answers_no_task_twice(simulated: SimulatedSite) -> None:
    fresh = replace(simulated, seeded_noise=False)
    declared(fresh)

    with pytest.raises(AlreadyReleasedError):
        ask_for_room(fresh, key(), BILL)
    with pytest.raises(AlreadyReleasedError):
        release(fresh, key(), BILL, fail)


def test_simulated_site_whose_budget_is_used_up_still_answers_again(simulated: SimulatedSite) -> None:
    full = replace(BILL, budget=0.2, cap=0.2)
    first = declared(simulated, "train-0", full)

    ask_for_room(simulated, key("train-0"), full)
    assert declared(simulated, "train-0", full) == first
    with pytest.raises(BudgetExhaustedError):
        declared(simulated, "train-1", full)


def test_cap_binds_over_all_runs(hospital: DeployedHospital) -> None:
    bill = replace(BILL, cap=0.5, budget=0.5)
    declared(hospital, "m0", bill, run="first")
    declared(hospital, "m0", bill, run="second")

    with pytest.raises(BudgetExhaustedError, match=r"cap=0\.5"):
        ask_for_room(hospital, key("m0", "third"), bill)
    with pytest.raises(BudgetExhaustedError, match=r"cap=0\.5"):
        release(hospital, key("m0", "third"), bill, fail)

    assert rows(hospital).count("reserve") == 2


def test_check_for_room_writes_nothing(hospital: DeployedHospital) -> None:
    ask_for_room(hospital, key(), BILL)

    assert rows(hospital) == ["genesis"]


def test_declaration_says_what_the_ledger_says(hospital: DeployedHospital) -> None:
    declared(hospital, "m1", run="earlier")

    declaration = declared(hospital, "m2")

    with open_ledger(hospital) as ledger:
        spend = ledger.spend("scans", 1e-5)
    assert (declaration.spent, declaration.releases, declaration.uncovered) == (spend.linear, spend.releases, 0)
    assert (declaration.cap, declaration.delta, declaration.account) == (8.0, 1e-5, "linear")
    assert (declaration.mechanism, declaration.relation, declaration.unit) == (
        "update-gaussian", Relation.ZERO_OUT, Unit.UPDATE,
    )  # fmt: skip
    assert (declaration.clip_norm, declaration.event) == (1.0, FIFTH)


def test_unprotected_answer_declares_nothing_and_counts_as_uncovered_ever_after(hospital: DeployedHospital) -> None:
    assert release(hospital, key("m1"), unprotected("scans"), lambda declaration: declaration) is None

    declaration = declared(hospital, "m2")

    assert (declaration.releases, declaration.uncovered) == (2, 1)


def test_epsilon_over_mixed_units_covers_nothing(hospital: DeployedHospital) -> None:
    declared(hospital, "m1")
    other = replace(
        BILL, mechanism=replace(BILL.mechanism, name="dp-sgd", relation=Relation.ADD_REMOVE, unit=Unit.RECORD)
    )

    declaration = declared(hospital, "m2", other)

    assert (declaration.releases, declaration.uncovered) == (2, 2)
