"""A hospital runs the code it has installed, whatever bundle a server sends; Flower's own process is run to see it."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w
from flwr.app import Context, Message, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.supercore.fab import Fab
from flwr.supercore.run import Run
from flwr.supernode.runtime import run_clientapp

from client_app.main import app
from deploy.node import clientapp
from federation.errors import ConfigurationError, SiteErrorCode
from tests.client_app.calls import flat_configuration, make_context, make_message

ORIGINALS = {name: getattr(run_clientapp, name) for name in clientapp._REPLACED}
BUNDLE: dict[str, Any] = {
    "project": {"name": "app-of-a-server", "version": "1.0.0"},
    "tool": {
        "flwr": {
            "app": {
                "publisher": "server",
                "fab-include": ["*.py"],
                "components": {"serverapp": "code_of_a_server:app", "clientapp": "code_of_a_server:app"},
            }
        }
    },
}


def bundle(trace: Path) -> bytes:
    """Return a sound bundle whose code leaves `trace` when it is imported."""
    source = f"from pathlib import Path\nfrom flwr.clientapp import ClientApp\nPath({str(trace)!r}).touch()\n"
    files = {
        "pyproject.toml": tomli_w.dumps(BUNDLE).encode(),
        "code_of_a_server.py": f"{source}app = ClientApp()\n".encode(),
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="GitWildMatchPattern", category=DeprecationWarning)
        return build_fab_from_files(files)[0]


@dataclass
class Process:
    """Flower's ClientApp process with a SuperNode that hands it one task.

    Attributes:
        folder: where a bundle's code would leave its trace, and Flower its files.
        replies: what it answered.
        exits: how it ended.
    """

    folder: Path
    replies: list[Message] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)

    @property
    def trace(self) -> Path:
        return self.folder / "trace"

    @property
    def home(self) -> Path:
        return self.folder / "flower"

    def run(self, content: bytes, patch: pytest.MonkeyPatch, *, name: str, pinned: bool) -> None:
        run = Run.create_empty(1)
        run.fab_id, run.fab_version = name, "1.0.0"
        context = make_context(flat_configuration(self.folder))
        task = (
            make_message(RecordDict(), "query"),
            context,
            run,
            Fab(hashlib.sha256(content).hexdigest(), content, {}),
        )
        patch.setattr(run_clientapp, "pull_task_input", lambda _: task)
        patch.setattr(run_clientapp, "push_message", self.push)
        patch.setattr(run_clientapp, "flwr_exit", lambda code, **_: self.exits.append(code))
        if pinned:
            clientapp.pin_installed_code()
        run_clientapp.run_clientapp("127.0.0.1:1", "token", insecure=True)

    def push(self, _: object, reply: Message, context: Context) -> None:
        self.replies.append(reply)


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    made = Process(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLWR_HOME", str(made.home))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, original in ORIGINALS.items():
        monkeypatch.setattr(run_clientapp, name, original)
    for name in ("event", "register_signal_handlers"):
        monkeypatch.setattr(run_clientapp, name, lambda *_, **__: None)
    monkeypatch.setattr(run_clientapp, "HeartbeatSender", lambda _: SimpleNamespace(start=lambda: None))
    yield made
    sys.modules.pop("code_of_a_server", None)


@pytest.mark.parametrize("name", ["server/app-of-a-server", "/etc/../..", "no name of a bundle"])
@pytest.mark.parametrize("sound", [True, False], ids=["sound bundle", "garbage"])
def test_whatever_bundle_a_server_sends_the_installed_code_answers_and_nothing_of_it_is_run_or_kept(
    process: Process, monkeypatch: pytest.MonkeyPatch, sound: bool, name: str
) -> None:
    content = bundle(process.trace) if sound else b"garbage"

    process.run(content, monkeypatch, name=name, pinned=True)

    assert [reply.error.code for reply in process.replies] == [SiteErrorCode.PROTOCOL]
    assert process.exits == [0]
    assert not process.trace.exists()
    assert not process.home.exists()
    assert "code_of_a_server" not in sys.modules


def test_flower_as_it_comes_runs_the_code_of_the_bundle(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    process.run(bundle(process.trace), monkeypatch, name="server/app-of-a-server", pinned=False)

    assert process.trace.exists()
    assert any(process.home.rglob("code_of_a_server.py"))


def test_app_that_is_loaded_is_the_installed_one(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    clientapp.pin_installed_code()

    load = vars(run_clientapp)["get_load_client_app_fn"](default_app_ref="", app_path=None, multi_app=True)

    assert load("server/app-of-a-server", "1.0.0", "0" * 64) is app


@pytest.mark.parametrize("name", sorted(clientapp._REPLACED))
def test_every_replaced_name_is_one_that_flowers_process_looks_up(name: str) -> None:
    assert callable(ORIGINALS[name])
    assert name in run_clientapp.run_clientapp.__code__.co_names


@pytest.mark.parametrize("name", sorted(clientapp._REPLACED))
def test_flower_without_one_of_the_names_is_refused(
    process: Process, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delattr(run_clientapp, name)

    with pytest.raises(ConfigurationError, match=rf"Expected Flower 1\.42, .* uses {name};"):
        clientapp.pin_installed_code()


def test_command_runs_flowers_process_after_the_names_are_replaced(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = sys.modules["flwr.supernode.cli.flwr_clientapp"]
    seen: list[tuple[dict[str, Any], bool]] = []
    monkeypatch.setattr(sys, "argv", ["aegis-clientapp", "--insecure", "--token", "t", "--runtime-api-address", "h:1"])
    assert command.run_clientapp is run_clientapp.run_clientapp
    monkeypatch.setattr(
        command,
        "run_clientapp",
        lambda **given: seen.append((given, vars(run_clientapp)["install_from_fab"] is ORIGINALS["install_from_fab"])),
    )

    clientapp.main()

    [(given, original)] = seen
    assert not original
    assert (given["token"], given["runtime_api_address"]) == ("t", "h:1")
    assert given["runtime_dependency_install"] is False
