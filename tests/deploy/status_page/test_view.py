"""What the page says of a snapshot."""

from __future__ import annotations

from deploy.node.state import Phase, Restart
from deploy.status_page.observer import Fault, Pause, PolicyWords
from deploy.status_page.site_log import Entry, SiteLog
from deploy.status_page.spending import Spending
from deploy.status_page.view import View, build_view
from federation.errors import SiteErrorCode
from tests.client_app.ledger.place import release, request
from tests.deploy.status_page.made_up import NOW, Folders, snapshot, state

DAY = 86_400.0
POLICY = PolicyWords(allows=("Models trained: cnn.",), doubts=("Think about it.",))


def view(**changes) -> View:
    return build_view(snapshot(**{"policy": POLICY, **changes}))


def test_facts_of_the_connection_are_ages_and_counts() -> None:
    facts = {fact.label: fact.value for fact in view().facts}

    assert facts == {
        "Server": "fl.example.org:443",
        "Last contact": "12 s ago",
        "Clocks": "less than a second apart",
        "Restarts in the last day": "1",
        "State": "connected for 2 h",
        "Supervisor started": "2 h ago",
    }


def test_what_is_not_known_of_the_connection_is_said() -> None:
    facts = {fact.label: fact.value for fact in view(node=state(last_contact=None, clock_skew_s=None, server="")).facts}

    assert (facts["Server"], facts["Last contact"], facts["Clocks"]) == (
        "not known",
        "never since the start",
        "not known",
    )


def test_restarts_of_the_last_day_are_shown_newest_first_with_reasons() -> None:
    restarts = tuple(Restart(time=NOW - age, reason=f"reason {age:.0f}") for age in (DAY + 1, DAY, 60.0, -60.0))

    found = view(node=state(restarts=restarts))

    assert [(item.ago, item.words) for item in found.restarts] == [
        ("1 min ago", "reason 60"),
        ("1 day ago", "reason 86400"),
    ]


def test_last_ten_tasks_are_shown_newest_first() -> None:
    log = SiteLog(entries=tuple(Entry(time=NOW - 100 + n, event="update", model_version=n) for n in range(15)))

    found = view(log=log).tasks

    assert len(found) == 10
    assert found[0].words == "Released an update (model version 14)."
    assert (found[0].ago, found[0].time) == ("1 min ago", "2027-01-15 07:58:34 UTC")


def test_refusals_are_shown_with_their_age() -> None:
    log = SiteLog(entries=(Entry(time=NOW - 7200, event="failure", code=SiteErrorCode.POLICY_MODEL),))

    (found,) = view(log=log).refusals

    assert (found.name, found.count, found.latest) == ("policy-model", 1, "2 h ago")


def test_unfinished_releases_and_damaged_lines_are_said() -> None:
    found = view(log=SiteLog(damaged=2), spending=Spending(under_way=1))

    assert found.task_notes == (
        "1 release paid for in the ledger and not finished: under way, or broken off.",
        "2 lines of the log cannot be read.",
    )


def test_faults_stand_where_the_thing_itself_would() -> None:
    found = view(
        log=Fault(sentence="no log"),
        spending=Fault(sentence="no ledger"),
        policy=Fault(sentence="no policy"),
        certificates={"ca": Fault(sentence="no certificate")},
    )

    assert found.task_notes == ("no log",)
    assert found.account_notes == ("no ledger",)
    assert (found.allows, found.doubts) == ((), ("no policy",))
    assert [(item.until, item.warning) for item in found.certificates] == [("not known", "no certificate")]


def test_unsound_and_unchecked_ledgers_are_said() -> None:
    found = view(spending=Spending(findings=2, anchored=False))

    assert found.account_notes == (
        "The ledger is not sound (2 faults), so nothing is released: `aegis ledger verify` names them.",
        "Seals and anchor are not checked: this page may not look at the keys.",
    )


def test_account_shows_no_less_spent_and_no_more_left_than_there_is(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        for number in range(3):
            release(ledger, f"m{number}", cap=0.8)

    (found,) = build_view(folders.look(NOW)).accounts

    assert (found.data_set, found.counted) == ("scans", "linear account at delta 1e-05")
    assert (found.spent, found.left, found.cap, found.releases) == ("0.600", "0.200", "0.8", "3")
    assert found.share == 0.6 / 0.8
    assert found.by_account.startswith("linear 0.600, RDP 0.2")
    assert found.forecast.startswith("At the price of the last release 1 more release will fit")
    assert found.warning == ""


def test_account_without_protection_says_that_no_epsilon_holds(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1", event=None, cap=0.0, delta=0.0)
        ledger.reserve(request("m2", event=None, cap=0.0, delta=0.0))

    (found,) = build_view(folders.look(NOW)).accounts

    assert found.warning == "No epsilon holds: 2 updates left without protection."
    assert (found.spent, found.share, found.forecast, found.releases) == ("-", None, "", "2, of them 1 open")


def test_certificates_say_when_they_end_and_warn_in_time() -> None:
    ends = {"ca": NOW + 31 * DAY, "server": NOW + 29 * DAY}

    ca, server = view(certificates=ends).certificates

    assert (ca.until, ca.warning) == ("2027-02-15, in 31 days", "")
    assert (server.until, server.warning) == (
        "2027-02-13, in 29 days",
        "ends soon: ask the coordinator for the next one",
    )
    assert view(certificates={"ca": NOW - 2 * DAY}).certificates[0].warning == "expired"


def test_page_is_well_only_if_nobody_need_do_anything() -> None:
    assert view().well
    assert view(node=state(phase=Phase.PAUSED), pause=Pause()).well
    assert not view(node=state(phase=Phase.REFUSED)).well
    assert not view(node=None).well
    assert not view(spending=Spending(findings=1)).well
    assert not view(spending=Fault(sentence="?")).well
    assert not view(policy=Fault(sentence="?")).well


def test_masking_is_called_what_it_is() -> None:
    assert "an empirical defence, no differential privacy" in view().masking
