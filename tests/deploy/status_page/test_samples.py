"""The page's numbers: complete, without a path, and safe whatever a data set is called."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from client_app.site_log import log_failure, log_task
from deploy.node.pause import pause
from deploy.node.state import Phase
from deploy.status_page.observer import Fault, Snapshot
from deploy.status_page.samples import sample
from deploy.status_page.spending import Spending
from deploy.web.metrics import render
from federation.errors import SiteErrorCode
from tests.client_app.ledger.place import release
from tests.deploy.status_page.made_up import NOW, Folders, snapshot, state
from tests.deploy.status_page.test_certificates import END, make_certificate

ROOT = Path(__file__).parents[3]
LINE = re.compile(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (-?[0-9.e+-]+|[+-]Inf|NaN)')


def numbers(seen: Snapshot) -> dict[str, float]:
    """Every sample by its name and labels; a line in another form, or one given twice, is an error."""
    found: dict[str, float] = {}
    for line in render(sample(seen)).splitlines():
        if not line.startswith("# "):
            matched = LINE.fullmatch(line)
            assert matched, line
            key = matched[1] + (matched[2] or "")
            assert key not in found
            found[key] = float(matched[3])
    return found


def test_node_is_up_only_while_the_server_answers_it() -> None:
    up = {phase: numbers(snapshot(node=state(phase=phase)))["aegis_node_up"] for phase in Phase}

    assert up == {phase: float(phase is Phase.CONNECTED) for phase in Phase}
    assert numbers(snapshot(node=state(written=NOW - 61)))["aegis_node_up"] == 0
    assert numbers(snapshot(node=None))["aegis_node_up"] == 0


def test_exactly_one_phase_is_set_and_unknown_is_one() -> None:
    known, unknown = numbers(snapshot()), numbers(snapshot(node=Fault(sentence="?")))

    assert [key for key, value in known.items() if "phase" in key and value] == ['aegis_node_phase{phase="connected"}']
    assert [key for key, value in unknown.items() if "phase" in key and value] == ['aegis_node_phase{phase="unknown"}']
    assert sum("phase" in key for key in known) == len(Phase) + 1


def test_contact_clock_restarts_and_versions_are_numbers() -> None:
    found = numbers(snapshot())

    assert found["aegis_last_contact_seconds"] == 12
    assert found["aegis_clock_skew_seconds"] == 0.5
    assert (found["aegis_restarts_total"], found["aegis_restarts_last_day"]) == (1, 1)
    assert found['aegis_build_info{aegis="0.1.0",flwr="1.42.0",torch="2.14.0",python="",image=""}'] == 1


def test_what_is_not_known_is_left_out_and_not_zero() -> None:
    found = numbers(
        snapshot(
            node=state(last_contact=None, clock_skew_s=None),
            log=Fault(sentence="?"),
            spending=Fault(sentence="?"),
            certificates={"ca": Fault(sentence="?")},
        )
    )

    names = {key.partition("{")[0] for key in found}
    assert names == {
        "aegis_node_up",
        "aegis_node_phase",
        "aegis_paused",
        "aegis_restarts_total",
        "aegis_restarts_last_day",
        "aegis_build_info",
        "aegis_ledger_sound",
    }
    assert found["aegis_ledger_sound"] == 0


def test_ledger_is_told_by_data_set_delta_and_account(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
        release(ledger, "m2")
        release(ledger, "m3", delta=1e-6)

    found = numbers(folders.look())

    at = 'data_set="scans",delta="1e-05"'
    assert found[f'aegis_epsilon_spent{{{at},account="linear"}}'] == pytest.approx(0.6)
    assert found[f'aegis_epsilon_left{{{at},account="linear"}}'] == pytest.approx(7.4)
    assert {f'aegis_epsilon_spent{{{at},account="{name}"}}' for name in ("linear", "rdp", "pld")} <= set(found)
    assert found[f"aegis_epsilon_claimable{{{at}}}"] == 1
    assert (found["aegis_releases_total"], found["aegis_ledger_sound"]) == (3, 1)


def test_unprotected_release_takes_the_claim_away(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1", event=None, cap=0.0, delta=0.0)

    found = numbers(folders.look())

    assert found['aegis_epsilon_claimable{data_set="scans",delta=""}'] == 0
    assert not any(key.startswith("aegis_epsilon_spent") for key in found)


def test_tasks_and_refusals_are_counted(folders: Folders) -> None:
    log_task(folders.state, "north", "update", model_version=1)
    log_failure(folders.state, "north", SiteErrorCode.POLICY_MODEL, ValueError("x"))
    log_failure(folders.state, "north", SiteErrorCode.POLICY_MODEL, ValueError("x"))

    found = numbers(folders.look())

    assert found['aegis_tasks_total{event="update"}'] == 1
    assert found['aegis_tasks_total{event="failure"}'] == 2
    assert found['aegis_tasks_total{event="discarded"}'] == 0
    assert found['aegis_refusals_total{code="policy-model"}'] == 2


def test_certificates_are_told_in_seconds_left() -> None:
    found = numbers(snapshot(certificates={"ca": NOW + 100.0, "server": NOW - 5.0}))

    assert found['aegis_certificate_expiry_seconds{which="ca"}'] == 100
    assert found['aegis_certificate_expiry_seconds{which="server"}'] == -5


def test_stop_switch_and_unsound_ledgers_are_numbers(folders: Folders) -> None:
    pause(folders.state, by="x")

    assert numbers(folders.look())["aegis_paused"] == 1
    assert numbers(snapshot())["aegis_paused"] == 0
    assert numbers(snapshot(spending=Spending(findings=1)))["aegis_ledger_sound"] == 0


def test_manual_names_every_number_and_no_other(folders: Folders) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
    log_failure(folders.state, "north", SiteErrorCode.INTERNAL, ValueError("x"))
    folders.tell(state(written=NOW))
    (folders.kit / "ca.crt").write_bytes(make_certificate(END))

    told = {key.partition("{")[0] for key in numbers(folders.look())}

    table = (ROOT / "docs/deploy/status-page.md").read_text().partition("| metric |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(aegis_[a-z_]+)", table)) == told


def test_hostile_names_stay_within_their_quotes_and_no_path_is_told(folders: Folders) -> None:
    name = 'x"} 1 <script> \\ {"'
    with folders.open_ledger() as ledger:
        release(ledger, "m1", data_set=name, run_id="<script>run</script>")
    log_failure(folders.state, "north", SiteErrorCode.INTERNAL, ValueError("/srv/images/4711.png"))
    folders.tell(state())

    seen = folders.look()
    text = render(sample(seen))

    numbers(seen)
    assert str(folders.root) not in text
    assert "4711" not in text
    assert "run</script>" not in text
