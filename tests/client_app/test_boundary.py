"""Whatever happens behind the boundary, the server learns one code and its sentence, and the hospital all of it."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from client_app.boundary import code_of, guarded
from client_app.site_log import log_task
from federation.errors import (
    AegisError,
    CheckpointError,
    ConfigurationError,
    DataError,
    ModelError,
    PartitionError,
    RefusalCode,
    RefusalError,
    RunFailedError,
    SiteError,
    SiteErrorCode,
)
from tests.client_app.calls import deployed_node, flat_configuration, make_context, make_message, wire_bytes

MARKER = "patient-4711-Mustermann"


class UnprintableError(Exception):
    """An error whose text cannot even be made."""

    def __str__(self) -> str:
        raise RuntimeError(MARKER)


def reading_a_path() -> None:
    Path(f"/nowhere/{MARKER}/scan.png").read_bytes()


def chained() -> None:
    try:
        raise KeyError(MARKER)
    except KeyError as error:
        raise ValueError("outer") from error


def with_a_note() -> None:
    error = ValueError("plain")
    error.add_note(MARKER)
    raise error


def a_group() -> None:
    raise ExceptionGroup(MARKER, [ValueError(MARKER)])


def inside_torch() -> None:
    torch.load(f"/nowhere/{MARKER}")


FAILURES: dict[str, Callable[[], None]] = {
    "path": reading_a_path,
    "chain": chained,
    "note": with_a_note,
    "group": a_group,
    "torch": inside_torch,
}


def raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


FAILURES |= {
    type(error).__name__: raising(error)
    for error in (
        ValueError(MARKER),
        KeyError(MARKER),
        MemoryError(MARKER),
        SystemExit(MARKER),
        RecursionError(MARKER),
        UnicodeDecodeError(MARKER, b"x", 0, 1, MARKER),
        OSError(5, MARKER, f"/data/{MARKER}"),
        SiteError(SiteErrorCode.EMPTY_SPLIT, MARKER),
        RefusalError(RefusalCode.MALFORMED, MARKER),
        DataError(MARKER),
        StopIteration(MARKER),
    )
}


def answer(folder: Path, behaviour: Callable[[], Any], **node_config: Any) -> Message:
    """Return what a site answers when its handler does `behaviour`, a deployed hospital unless the node says more."""
    node = node_config or deployed_node(folder)
    return guarded(lambda content, context: behaviour())(
        make_message(RecordDict()), make_context(flat_configuration(folder), **node)
    )


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "state" / "north.log").read_text().splitlines()]


@pytest.mark.parametrize("kind", FAILURES)
def test_no_byte_of_the_failure_leaves_and_all_of_it_stays_in_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    with caplog.at_level(logging.DEBUG):
        reply = answer(tmp_path, FAILURES[kind])

    assert MARKER.encode() not in wire_bytes(reply)
    assert b"Traceback" not in wire_bytes(reply)
    (entry,) = log_of(tmp_path)
    assert MARKER in entry["traceback"]
    assert entry["code"] == reply.error.code
    # What a SuperNode prints may be collected by others than the hospital.
    assert MARKER not in "".join(capfd.readouterr()) + caplog.text


@pytest.mark.parametrize("kind", FAILURES)
def test_two_failures_of_one_code_cannot_be_told_apart(tmp_path: Path, kind: str) -> None:
    reply = answer(tmp_path, FAILURES[kind])

    code = SiteErrorCode(reply.error.code)
    assert vars(reply.error) == vars(Error(int(code), code.sentence))
    assert not reply.has_content()
    assert (reply.metadata.reply_to_message_id, reply.metadata.dst_node_id) == ("message-1", 1)


@pytest.mark.parametrize("returned", [None, {"arrays": 1}, ConfigRecord({"x": MARKER}), MARKER])
def test_handler_that_returns_no_records_answers_with_a_code(tmp_path: Path, returned: object) -> None:
    reply = answer(tmp_path, lambda: returned)

    assert reply.error.code == SiteErrorCode.INTERNAL
    assert MARKER.encode() not in wire_bytes(reply)


def test_exit_of_the_interpreter_becomes_an_answer(tmp_path: Path) -> None:
    reply = answer(tmp_path, lambda: sys.exit(3))

    assert reply.error.code == SiteErrorCode.INTERNAL


def test_interrupt_by_hand_is_not_swallowed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        answer(tmp_path, raising(KeyboardInterrupt()))


def test_records_of_a_good_answer_pass_as_they_are(tmp_path: Path) -> None:
    content = RecordDict({"x": ConfigRecord({"a": 1})})

    reply = answer(tmp_path, lambda: content)

    assert reply.content is content
    assert not (tmp_path / "state").exists()


def test_message_that_carries_an_error_is_answered_with_a_code(tmp_path: Path) -> None:
    strange = Message(Error(7, MARKER), reply_to=make_message(RecordDict()))

    reply = guarded(lambda message, context: message.content)(strange, make_context({}, **deployed_node(tmp_path)))

    assert reply.error.code == SiteErrorCode.INTERNAL


def test_boundary_holds_inside_a_real_client_app(tmp_path: Path) -> None:
    app = ClientApp()
    app.train()(guarded(lambda content, context: reading_a_path()))  # type: ignore[arg-type, return-value]

    context = make_context(flat_configuration(tmp_path), **deployed_node(tmp_path))
    reply = app(make_message(RecordDict()), context)

    assert reply.error.code == SiteErrorCode.INTERNAL
    assert MARKER.encode() not in wire_bytes(reply)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        *[(SiteError(code, "x"), code) for code in SiteErrorCode],
        *[
            (
                RefusalError(code, "x"),
                SiteErrorCode.PROTOCOL
                if code in (RefusalCode.MALFORMED, RefusalCode.WRONG_PROTOCOL)
                else SiteErrorCode.MODEL_MISMATCH,
            )
            for code in RefusalCode
        ],
        (ConfigurationError("x"), SiteErrorCode.CONFIGURATION),
        (DataError("x"), SiteErrorCode.DATA_UNAVAILABLE),
        (PartitionError("x"), SiteErrorCode.DATA_UNAVAILABLE),
        (ModelError("x"), SiteErrorCode.MODEL_MISMATCH),
        (CheckpointError("x"), SiteErrorCode.INTERNAL),
        (RunFailedError("x"), SiteErrorCode.INTERNAL),
        (AegisError("x"), SiteErrorCode.INTERNAL),
        (ValueError("x"), SiteErrorCode.INTERNAL),
        (SystemExit(1), SiteErrorCode.INTERNAL),
        (MemoryError(), SiteErrorCode.INTERNAL),
    ],
)
def test_every_error_has_its_code(error: BaseException, code: SiteErrorCode) -> None:
    assert code_of(error) is code


def test_every_code_has_its_own_sentence_and_lies_above_flowers() -> None:
    assert len({code.sentence for code in SiteErrorCode}) == len(SiteErrorCode)
    assert min(SiteErrorCode) >= 100


def test_error_whose_text_cannot_be_made_is_answered_all_the_same(tmp_path: Path) -> None:
    reply = answer(tmp_path, raising(UnprintableError()))

    assert reply.error.code == SiteErrorCode.INTERNAL
    assert MARKER.encode() not in wire_bytes(reply)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_log_is_readable_by_its_owner_only(tmp_path: Path, mask: int) -> None:
    previous = os.umask(mask)
    try:
        answer(tmp_path, reading_a_path)
    finally:
        os.umask(previous)

    assert stat.S_IMODE((tmp_path / "state" / "north.log").stat().st_mode) == 0o600


def test_failures_are_appended_one_line_each(tmp_path: Path) -> None:
    answer(tmp_path, raising(ValueError("first\nline")))
    answer(tmp_path, raising(DataError("second")))

    assert [(entry["event"], entry["code"], entry["error"]) for entry in log_of(tmp_path)] == [
        ("failure", SiteErrorCode.INTERNAL, "first\nline"),
        ("failure", SiteErrorCode.DATA_UNAVAILABLE, "second"),
    ]


def test_finished_task_is_logged_with_its_fields(tmp_path: Path) -> None:
    log_task(tmp_path / "state", "north", "update", model_version=3, source=Path("/data"))

    (entry,) = log_of(tmp_path)
    assert {key: entry[key] for key in ("event", "model_version", "source")} == {
        "event": "update", "model_version": 3, "source": "/data",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "deployed"),
    [
        ("a file in its place", False),
        ("a file in its place", True),
        ("null byte", False),  # A policy with such a path is refused as a whole.
        ("lone surrogate", False),  # No TOML file can hold one.
    ],
)
def test_log_that_cannot_be_written_costs_a_warning_and_not_the_reply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, deployed: bool
) -> None:
    (tmp_path / "file").write_text("")
    folder = {
        "a file in its place": str(tmp_path / "file" / "state"),
        "null byte": "/tmp/a\0b",
        "lone surrogate": "/tmp/\ud800",
    }[kind]
    simulated = {"partition_id": 0, "num_partitions": 1, "hospital_id": "north", "state_dir": folder}
    node = deployed_node(tmp_path, state_dir=folder) if deployed else simulated

    reply = answer(tmp_path, raising(ValueError(MARKER)), **node)

    assert reply.error.code == SiteErrorCode.INTERNAL
    assert "cannot be written" in caplog.text
    assert MARKER not in caplog.text


def test_full_disk_does_not_break_the_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, original = deployed_node(tmp_path), Path.open

    def fail_to_append(path: Path, mode: str = "r", **options: Any) -> Any:
        if mode == "a":
            raise OSError(28, "No space left on device")
        return original(path, mode, **options)

    monkeypatch.setattr(Path, "open", fail_to_append)

    reply = answer(tmp_path, raising(DataError(MARKER)), **node)

    assert reply.error.code == SiteErrorCode.DATA_UNAVAILABLE
    assert (tmp_path / "state" / "north.log").read_bytes() == b""


@pytest.mark.parametrize(
    ("node_config", "policy", "settings"),
    [
        ({"hospital_id": "../../etc"}, None, {}),
        ({"state_dir": "/nowhere"}, None, {}),
        ({"hospital_id": "north"}, None, {"no__such": 1}),
        ({"site_policy": "/nowhere/site.toml"}, None, {}),
        ({"hospital_id": "south"}, {}, {}),
        ({}, {"hospital_id": "../../etc"}, {}),
        ({}, {"surprise": 1}, {}),
        ({}, {"state_dir": "/tmp/a\0b"}, {}),
        ({}, {}, {"no__such": 1}),
    ],
)
def test_misconfigured_site_is_answered_and_logged_under_no_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    node_config: dict[str, Any],
    policy: dict[str, Any] | None,
    settings: dict[str, Any],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    node = node_config if policy is None else deployed_node(tmp_path, **policy) | node_config
    context = make_context(flat_configuration(tmp_path, **settings), **node)

    reply = guarded(lambda content, _: raising(ValueError(MARKER))())(  # type: ignore[arg-type, return-value]
        make_message(RecordDict()), context
    )

    assert reply.error.code == SiteErrorCode.INTERNAL
    assert MARKER.encode() not in wire_bytes(reply)
    (log,) = tmp_path.rglob("*.log")
    assert log == tmp_path / "home" / ".aegis" / "unidentified.log"
    assert MARKER in log.read_text()
