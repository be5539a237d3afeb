"""Whatever is missing or damaged, the page has a sentence for it, and what is well is still shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.node.pause import pause, pause_path, resume
from deploy.node.state import NodeState, Phase, state_path, write_state
from deploy.status_page import observer as module
from deploy.status_page.observer import Fault, PolicyWords
from deploy.status_page.site_log import SiteLog, read_log
from deploy.status_page.spending import Spending, read_spending
from tests.client_app.ledger.conftest import place
from tests.client_app.ledger.place import Place, release, request
from tests.deploy.status_page.made_up import NOW, Folders, state
from tests.deploy.status_page.test_certificates import END, make_certificate

__all__ = ["place"]


def test_sound_hospital_is_seen_as_a_whole(folders: Folders) -> None:
    folders.tell(state())
    (folders.kit / "ca.crt").write_bytes(make_certificate(END))

    seen = folders.look()

    assert (seen.hospital_id, seen.consortium, seen.pause) == ("north", "trial", None)
    assert isinstance(seen.node, NodeState)
    assert isinstance(seen.log, SiteLog)
    assert isinstance(seen.spending, Spending)
    assert isinstance(seen.policy, PolicyWords)
    assert seen.certificates == {"ca": END.timestamp()}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b'{"written": 1}', b"[" * 100_000, b'{"written": NaN}']
)
def test_damaged_state_is_a_sentence(folders: Folders, content: bytes) -> None:
    folders.tell(state())
    state_path(folders.state).write_bytes(content)

    seen = folders.look()

    assert seen.node == Fault(sentence="The node's state file is damaged or closed to this page.")
    assert isinstance(seen.spending, Spending)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folders: folders.ledger.write_bytes(b""),
        lambda folders: folders.ledger.write_bytes(b"no database" * 1000),
        lambda folders: folders.ledger.unlink(),
        lambda folders: folders.ledger.unlink() or folders.ledger.mkdir(),
        lambda folders: (folders.keys / "north.anchor").write_bytes(b"x"),
        lambda folders: (folders.keys / "north.key").unlink(),
    ],
    ids=["empty", "foreign", "gone", "a folder", "anchor damaged", "key gone"],
)
def test_ledger_that_cannot_be_read_is_a_sentence(folders: Folders, damage) -> None:
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
    damage(folders)

    seen = folders.look()

    assert seen.spending == Fault(sentence="The privacy ledger cannot be used: `aegis ledger verify` says why.")


def test_row_that_no_parser_can_follow_is_a_sentence(place: Place) -> None:
    with place.open() as ledger:
        release(ledger, "m1")
    place.tamper(f"UPDATE rows SET body = '{'[' * 100_000}' WHERE seq = 2")
    folders = Folders(place.root).make()
    place.folder.rename(folders.root / "moved")
    folders.make(**{"state-dir": str(folders.root / "moved")})

    seen = folders.look()

    assert seen.spending == Fault(sentence="The privacy ledger cannot be used: `aegis ledger verify` says why.")


def test_log_that_cannot_be_read_is_a_sentence(folders: Folders) -> None:
    folders.log.mkdir()

    assert folders.look().log == Fault(sentence="The hospital's log cannot be read by this page.")


def test_policy_that_breaks_later_leaves_the_rest_where_it_was(folders: Folders) -> None:
    folders.tell(state())
    looking = folders.observer()
    looking.look(NOW)
    folders.policy.write_text("hospital-id = [broken")

    seen = looking.look(NOW)

    assert seen.policy == Fault(
        sentence="The site policy cannot be used, so nothing leaves: `aegis policy check` says why."
    )
    assert seen.hospital_id == "north"
    assert isinstance(seen.node, NodeState)
    assert isinstance(seen.spending, Spending)


@pytest.mark.parametrize("content", [None, b"hospital-id = [", b"\xff", b'hospital-id = "north"\nunknown = 1'])
def test_policy_that_was_never_usable_leaves_what_the_kit_says(
    folders: Folders, content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_default_state_dir", lambda: tmp_path)
    write_state(tmp_path, state(phase=Phase.MISCONFIGURED, detail="unknown key"))
    if content is None:
        folders.policy.unlink()
    else:
        folders.policy.write_bytes(content)

    seen = folders.look()

    assert (seen.hospital_id, seen.pause) == ("north", None)
    assert isinstance(seen.node, NodeState)
    assert seen.node.phase is Phase.MISCONFIGURED
    assert isinstance(seen.policy, Fault)
    assert isinstance(seen.log, Fault)
    assert isinstance(seen.spending, Fault)


def test_machine_without_a_home_folder_is_no_error(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(module, "_default_state_dir", refuse)
    folders.policy.unlink()

    assert isinstance(folders.look().node, Fault)


def test_default_folder_is_the_one_where_a_misconfigured_node_says_so() -> None:
    from client_app.site import default_state_dir

    assert module._default_state_dir() == default_state_dir()


def test_kit_that_cannot_be_used_leaves_the_policy_and_the_usual_certificate(folders: Folders) -> None:
    (folders.kit / "kit.toml").write_text("format = 'x'")
    (folders.kit / "ca.crt").write_bytes(make_certificate(END))

    seen = folders.look()

    assert (seen.hospital_id, seen.consortium) == ("north", "")
    assert seen.certificates == {"ca": END.timestamp()}


def test_certificates_that_cannot_be_read_are_sentences(folders: Folders) -> None:
    folders.tell(state())
    (folders.state / "node" / "server.crt").write_text("x")

    seen = folders.look()

    assert seen.certificates == {
        "ca": Fault(sentence="The certificate of the consortium's authority cannot be read."),
        "server": Fault(sentence="The copy of the server's certificate cannot be read."),
    }


def test_servers_certificate_is_told_where_a_copy_lies(folders: Folders) -> None:
    folders.tell(state())
    (folders.state / "node" / "server.crt").write_bytes(make_certificate(END))

    assert folders.look().certificates["server"] == END.timestamp()


def test_stop_switch_is_seen_with_who_and_when(folders: Folders) -> None:
    pause(folders.state, by="somebody")
    on = folders.look().pause
    resume(folders.state)

    assert on is not None
    assert (on.by, on.since is not None) == ("somebody", True)
    assert folders.look().pause is None


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", json.dumps({"since": "x", "by": 7}).encode(), b"[" * 100_000])
def test_stop_switch_counts_whatever_its_file_says(folders: Folders, content: bytes) -> None:
    pause(folders.state, by="x")
    pause_path(folders.state).write_bytes(content)

    seen = folders.look().pause

    assert seen is not None
    assert (seen.since, seen.by) == (None, "")


def test_stop_switch_that_cannot_be_looked_at_counts_as_on(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(state_dir: Path) -> bool:
        raise PermissionError(13, "closed")

    monkeypatch.setattr(module, "is_paused", refuse)

    assert folders.look().pause is not None


def test_doubt_that_quotes_an_error_is_cut_to_its_subject(folders: Folders) -> None:
    folders.make(masking={"required": True, "cache": "/nowhere/at/all/4711"})

    seen = folders.look().policy

    assert isinstance(seen, PolicyWords)
    assert "masking.cache cannot be used: `aegis policy check` says why." in seen.doubts
    assert not any("4711" in sentence for sentence in seen.doubts)


def test_policy_is_told_in_the_words_of_policy_check(folders: Folders) -> None:
    seen = folders.look().policy

    assert isinstance(seen, PolicyWords)
    assert any("at most epsilon 8 at delta 1e-05" in sentence for sentence in seen.allows)


def test_doubts_that_cannot_be_looked_into_are_a_doubt(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(policy: object) -> list[str]:
        raise PermissionError(13, "closed")

    monkeypatch.setattr(module, "find_doubts", refuse)

    seen = folders.look().policy

    assert isinstance(seen, PolicyWords)
    assert seen.doubts == ("Not everything that the policy names can be looked at.",)


def test_ledger_is_reckoned_again_only_when_it_changed(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def read(*given: Any) -> Spending:
        calls.append(given)
        return read_spending(*given)

    monkeypatch.setattr(module, "read_spending", read)
    with folders.open_ledger() as ledger:
        release(ledger, "m1")
        looking = folders.observer()

        first, second = looking.look(NOW), looking.look(NOW)
        ledger.reserve(request("m2"))
        third = looking.look(NOW)

    assert first.spending is second.spending
    assert len(calls) == 2
    assert isinstance(third.spending, Spending)
    assert third.spending.releases == 2


def test_failure_is_not_remembered(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = folders.observer()

    def refuse(*given: object) -> SiteLog:
        raise OSError(5, "once")

    monkeypatch.setattr(module, "read_log", refuse)
    first = looking.look(NOW)
    monkeypatch.setattr(module, "read_log", read_log)

    assert isinstance(first.log, Fault)
    assert isinstance(looking.look(NOW).log, SiteLog)
