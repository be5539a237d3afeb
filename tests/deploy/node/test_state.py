"""The file with the node's state: what is written is read, and nobody else may."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.node.state import NodeState, Phase, Restart, read_state, state_path, write_state
from federation.errors import DataError

STATE = NodeState(
    written=20.0,
    phase=Phase.CONNECTED,
    since=10.0,
    detail="The server answers this node.",
    server="federation.example:8443",
    last_contact=19.5,
    clock_skew_s=-0.25,
    restarts=(Restart(time=5.0, reason="It was silent."),),
    versions={"aegis": "0.1.0"},
    started=1.0,
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)

    assert read_state(tmp_path) == STATE


def test_state_before_any_was_written_is_none(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None


def test_newest_twenty_restarts_are_kept(tmp_path: Path) -> None:
    restarts = tuple(Restart(time=float(number), reason="again") for number in range(30))

    write_state(tmp_path, STATE.model_copy(update={"restarts": restarts}))

    found = read_state(tmp_path)
    assert found is not None
    assert found.restarts == restarts[10:]


def test_file_is_closed_to_others(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)

    assert state_path(tmp_path).stat().st_mode & 0o777 == 0o600
    assert state_path(tmp_path).parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"phase": "asleep"}', b'{"written": 1}'])
def test_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    write_state(tmp_path, STATE)
    state_path(tmp_path).write_bytes(content)

    with pytest.raises(DataError, match=r"Expected the node's state in .*state\.json, found"):
        read_state(tmp_path)
