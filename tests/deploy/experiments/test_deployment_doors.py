"""A refusal must be seen to count: words of programs, ends of SuperNodes, ways out, marks in files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.experiments import deployment_doors, deployment_marks, deployment_watch
from deploy.experiments.deployment_doors import judge_node, listening_outside, read_word, try_doors
from deploy.experiments.deployment_marks import cut_short, find_files, require_mark_at, site_errors
from deploy.experiments.deployment_stage import Stage
from federation.errors import RunFailedError
from tests.deploy.node.made_up_server import Answers, make_authority, serving

REFUSAL = "Exit Code: 301\nFailed to initialize the connection to the SuperLink.\n[code: 2004] Node activation failed."


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(folder=tmp_path, ports={})


def test_refusal_is_empty_and_getting_through_is_not() -> None:
    assert read_word("a warning\nREFUSED [Errno 111]\n") == ""
    assert read_word("GOT THROUGH 200\n") == "GOT THROUGH 200"


@pytest.mark.parametrize("said", ["", "Error: No such container", "UNCLEAR 500", "REFUSED\nTraceback"])
def test_program_that_says_neither_word_is_an_error(said: str) -> None:
    with pytest.raises(RunFailedError, match="Expected REFUSED or GOT THROUGH"):
        read_word(said)


def test_supernode_is_refused_by_the_superlinks_own_words_only() -> None:
    assert read_word(judge_node(1, REFUSAL)) == ""
    assert read_word(judge_node(124, "SuperNode ID: 17")) != ""


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (124, ""),
        (124, REFUSAL),
        (125, "docker: Error response from daemon: no such image"),
        (1, "Failed to initialize the connection to the SuperLink.\nname resolution failed"),
        (1, "[code: 2004]"),
        (0, REFUSAL),
    ],
)
def test_supernode_that_ends_otherwise_is_an_error(status: int, said: str) -> None:
    with pytest.raises(RunFailedError, match="refused or accepted"):
        judge_node(status, said)


@pytest.fixture
def bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default bridge of a made-up engine, whose containers have this machine's own way out."""
    monkeypatch.setattr(deployment_doors, "docker", lambda *_: "127.0.0.1\n")
    monkeypatch.setattr(Stage, "execute", lambda _, __, *command: in_python(command[-1]).stdout)
    monkeypatch.setattr(deployment_doors, "attempt", lambda command: in_python(command[-1]))


def in_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("bridge")
def test_doors_are_tried_behind_controls_that_get_through(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_doors, "_ways_out", lambda *_: ({}, {"out": lambda _: "REFUSED"}))
    monkeypatch.setattr(deployment_doors, "_CONTROLS", {"a control": lambda _: "GOT THROUGH"})
    monkeypatch.setattr(deployment_doors, "_ATTEMPTS", {"shut": lambda _: "REFUSED", "open": lambda _: "GOT THROUGH"})

    assert try_doors(stage) == {"shut": "", "open": "GOT THROUGH", "out": ""}


@pytest.mark.usefixtures("bridge")
def test_control_that_is_refused_fails_the_cell(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_doors, "_CONTROLS", {"a control": lambda _: "REFUSED"})

    with pytest.raises(RunFailedError, match="control 'a control'"):
        try_doors(stage)


WAYS = ("the way out of a hospital's network", "the way out of the server's network")


@pytest.mark.usefixtures("bridge")
def test_network_with_a_way_out_is_found_open_and_the_listener_goes_when_it_is_done(stage: Stage) -> None:
    with listening_outside() as place:
        controls, attempts = deployment_doors._ways_out(*place)

        assert [read_word(attempts[name](stage)) for name in WAYS] == ["GOT THROUGH"] * 2
        assert read_word(controls["the way out of the edge's outer network"](stage)) == "GOT THROUGH"

    assert [read_word(attempts[name](stage)) for name in WAYS] == ["", ""]


@pytest.mark.usefixtures("bridge")
def test_ways_out_that_their_own_control_does_not_find_fail_the_cell(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment_doors, "_CONTROLS", {})
    done = subprocess.CompletedProcess[str]([], 0, "REFUSED timed out\n", "a warning")
    monkeypatch.setattr(deployment_doors, "attempt", lambda _: done)

    with pytest.raises(RunFailedError, match="edge's outer network"):
        try_doors(stage)


def test_bridge_that_is_not_on_this_machine_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_doors, "docker", lambda *_: "203.0.113.1\n")

    with pytest.raises(RunFailedError, match=r"'203\.0\.113\.1' to be this machine's"), listening_outside():
        pass


def test_container_of_its_own_is_taken_down_when_it_does_not_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def attempt(command: list[str]) -> None:
        commands.append(command)
        if command[1] == "run":
            raise RunFailedError("too long")

    monkeypatch.setattr(deployment_doors, "attempt", attempt)

    with pytest.raises(RunFailedError, match="too long"):
        deployment_doors._connect_anew(stage, network="outside", host="127.0.0.1", port=1)
    assert f"{stage.project}_outside" in commands[0]
    assert commands[1:] == [["docker", "rm", "-f", f"{stage.project}-control"]]


def test_program_that_connects_says_a_word_where_it_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stage, "execute", lambda _, __, *command: in_python(command[-1]).stdout)

    assert read_word(deployment_doors._connect(stage, service="any", host="127.0.0.1", port=1)) == ""


@pytest.mark.parametrize("host", ["superlink", "hospital-b"])
def test_container_is_aimed_at_by_its_address(stage: Stage, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    found = {"NetworkSettings": {"Networks": {"one": {"IPAddress": "172.30.0.9"}}}}
    monkeypatch.setattr(Stage, "inspect", lambda *_: found)
    monkeypatch.setattr(Stage, "execute", lambda *command: command[-1])

    assert "'172.30.0.9', 1" in deployment_doors._connect(stage, service="any", host=host, port=1)


def test_program_that_asks_is_python(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stage, "execute", lambda *command: command[-1])

    for secret in ("", "wrong"):
        program = deployment_doors._ask(stage, service="any", url="https://x/", refusals=(404,), secret=secret)
        compile(program, "program", "exec")
        assert "status in (404,)" in program


def test_edge_is_asked_to_be_a_proxy(stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority, beyond = make_authority(tmp_path), "http://172.17.0.1:9/"
    answers = Answers(statuses={beyond: 404})
    monkeypatch.setattr(
        Stage,
        "execute",
        lambda _, __, *command: in_python(command[-1].replace("/etc/aegis/ca.crt", str(authority.ca))).stdout,
    )

    with serving(answers, authority) as port:
        monkeypatch.setattr(deployment_doors, "_EDGE", f"https://127.0.0.1:{port}")
        controls, attempts = deployment_doors._ways_out("172.17.0.1", 9)

        assert read_word(attempts["the way out with the edge for a proxy"](stage)) == ""
        assert read_word(controls["the health check with the edge for a proxy"](stage)) == "GOT THROUGH 200"
    assert answers.asked == [beyond, "http://federation.example/health"]


def refusal(hospital: str | None, reason: str) -> dict[str, Any]:
    return {"event": "refusal", "hospital": hospital, "reason": reason}


def test_site_errors_are_those_of_the_hospital_alone() -> None:
    seen = [
        refusal("hospital-a", "site-error:ledger-unavailable"),
        refusal("hospital-b", "site-error:internal"),
        refusal("hospital-a", "node-lost"),
        refusal(None, "site-error:internal"),
        {"event": "start"},
    ]

    assert site_errors(seen, "hospital-a") == ["site-error:ledger-unavailable"]


def in_shell(*command: str) -> str:
    done = subprocess.run(command[2:], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailedError(done.stderr)
    return done.stdout


def test_search_finds_the_mark_and_takes_what_cannot_be_read_for_an_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(deployment_watch, "_AGAIN_S", 0.0)
    monkeypatch.setattr(deployment_marks, "docker", in_shell)
    (tmp_path / "log").write_text("a zzmark here")

    assert find_files(stage, "any", str(tmp_path), "zzmark") == [str(tmp_path / "log")]
    assert find_files(stage, "any", str(tmp_path), "other") == []
    with pytest.raises(RunFailedError, match="No such file"):
        find_files(stage, "any", f"{tmp_path} {tmp_path}/missing", "zzmark")


def test_search_without_its_control_fails(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    log = "/var/lib/aegis/hospital-b.log"
    monkeypatch.setattr(deployment_marks, "docker", lambda *_: f"{log}\n")
    require_mark_at(stage, "hospital-b", "zzmark")
    monkeypatch.setattr(deployment_marks, "docker", lambda *_: "")

    with pytest.raises(RunFailedError, match="the search shows nothing"):
        require_mark_at(stage, "hospital-b", "zzmark")


def test_image_that_is_cut_short_fails_with_its_name_in_the_text(tmp_path: Path) -> None:
    from PIL import Image

    from federation.config import DataConfig
    from federation.datasets.sites import load_own_folder
    from federation.errors import DataError

    for split in ("train", "val", "test"):
        for name in ("normal", "pneumonia"):
            (tmp_path / split / name).mkdir(parents=True)
            Image.new("L", (8, 8)).save(tmp_path / split / name / "zzmark.png")

    cut_short(tmp_path)

    with pytest.raises(DataError, match="zzmark"):
        load_own_folder(DataConfig(name="folder", root=str(tmp_path)), seed=0)
