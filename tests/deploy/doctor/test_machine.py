"""What the machine itself says; nothing here stands in for it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch

from deploy.doctor import machine
from deploy.doctor.machine import Machine


def test_file_system_of_a_mount_is_told_from_the_one_above() -> None:
    own = Machine()

    assert own.file_system(Path("/proc/self")) == "proc"
    assert own.file_system(Path("/")) not in ("", "proc")


def test_port_is_free_until_somebody_listens() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        listener.listen()
        assert not Machine().port_is_free(port)

    assert Machine().port_is_free(port)


def test_facts_of_this_machine_are_plausible(tmp_path: Path) -> None:
    own = Machine()

    assert own.memory_bytes() > 0
    assert own.processors() > 0
    assert own.free_bytes(tmp_path) > 0
    assert own.owner(tmp_path) == own.user_id
    assert own.random_is_ready()
    assert own.synchronised() in (True, False, None)
    assert own.version("flwr") == "1.42.0"
    assert own.version("no-such-thing") is None
    assert any(line.startswith("flwr") for line in own.requirements())


@pytest.mark.parametrize(
    ("built_for", "usable", "expected"), [(None, False, None), ("13.0", False, ""), ("13.0", True, "NVIDIA T4")]
)
def test_graphics_card_is_the_one_that_torch_computes_on(
    monkeypatch: pytest.MonkeyPatch, built_for: str | None, usable: bool, expected: str | None
) -> None:
    monkeypatch.setattr(torch.version, "cuda", built_for)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "NVIDIA T4")

    assert Machine().graphics_card() == expected


def test_limits_of_a_container_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 300\n")
    (tmp_path / "cpu.max").write_text("50000 100000\n")

    assert machine.available_memory_bytes() == 400
    assert machine.processors() == 0.5

    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.available_memory_bytes() > 1000
    assert machine.processors() >= 1


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"timedatectl": "yes"}, True),
        ({"timedatectl": "no"}, False),
        ({"chronyc": "Reference ID : 0\nLeap status     : Normal"}, True),
        ({"chronyc": "Leap status     : Not synchronised"}, False),
        ({"timedatectl": "Failed to connect to bus"}, None),
        ({}, None),
    ],
)
def test_who_sets_the_clock_is_read_from_what_there_is(
    monkeypatch: pytest.MonkeyPatch, output: dict[str, str], expected: bool | None
) -> None:
    monkeypatch.setattr(machine, "_run", lambda command: output.get(command[0], ""))

    assert machine.clock_is_synchronised() is expected
