"""A refusal must be seen to count: words of programs, ends of SuperNodes, answers to requests, marks in files."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.fleet_pb2 import ActivateNodeRequest

from deploy.experiments import deployment_doors, deployment_marks, deployment_watch
from deploy.experiments.deployment_doors import judge_node, read_word, try_doors
from deploy.experiments.deployment_fuzz import Tally, draw
from deploy.experiments.deployment_marks import cut_short, find_files, require_mark_at, site_errors
from deploy.experiments.deployment_stage import Stage
from federation.errors import RunFailedError

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


def test_doors_are_tried_behind_controls_that_get_through(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_doors, "_CONTROLS", {"a control": lambda _: "GOT THROUGH"})
    monkeypatch.setattr(deployment_doors, "_ATTEMPTS", {"shut": lambda _: "REFUSED", "open": lambda _: "GOT THROUGH"})

    assert try_doors(stage) == {"shut": "", "open": "GOT THROUGH"}


def test_control_that_is_refused_fails_the_cell(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_doors, "_CONTROLS", {"a control": lambda _: "REFUSED"})

    with pytest.raises(RunFailedError, match="control 'a control'"):
        try_doors(stage)


def test_programs_for_containers_say_a_word_where_they_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(_: Stage, __: str, *command: str) -> str:
        return subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True).stdout

    monkeypatch.setattr(Stage, "execute", execute)

    assert read_word(deployment_doors._connect(stage, service="any", host="127.0.0.1", port=1)) == ""


def test_program_that_asks_is_python(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stage, "execute", lambda *command: command[-1])

    for secret in ("", "wrong"):
        program = deployment_doors._ask(stage, service="any", url="https://x/", refusals=(404,), secret=secret)
        compile(program, "program", "exec")
        assert "status in (404,)" in program


def answer(status: int, kind: str = "application/json") -> httpx.Response:
    return httpx.Response(status, headers={"Content-Type": kind})


def test_tally_tells_answers_from_silence_and_the_superlink_from_the_edge() -> None:
    fleet, closed = httpx.Request("POST", "https://x/v1/fleet/get-run"), httpx.Request("GET", "https://x/docs")
    tally = Tally()

    tally.count(fleet, None, registered=False)
    tally.count(fleet, answer(401), registered=False)
    tally.count(fleet, answer(415), registered=True)
    tally.count(fleet, answer(429, "text/html"), registered=False)
    tally.count(fleet, answer(502), registered=False)
    tally.count(closed, answer(404), registered=False)
    found = tally.sum_up()

    assert (found.sent, found.answered, found.refused_by_superlink) == (6, 5, 2)
    assert found.registered == {"415": 1}
    assert found.statuses == {"0": 1, "401": 1, "429": 1, "502": 1, "404": 1}
    assert found.let_in == []


def test_stranger_that_is_answered_well_is_let_in_and_a_hospital_is_not() -> None:
    fleet, tally = httpx.Request("POST", "https://x/v1/fleet/get-run"), Tally()

    tally.count(fleet, answer(200), registered=True)
    tally.count(fleet, answer(200), registered=False)

    assert tally.sum_up().let_in == ["POST /v1/fleet/get-run: 200"]


def test_requests_of_registered_keys_are_drawn_and_none_is_a_whole_message() -> None:
    key, own = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    client, choice = httpx.AsyncClient(base_url="https://x"), random.Random(0)
    whole = len(ActivateNodeRequest(public_key=b"k" * 215, heartbeat_interval=30.0).SerializeToString())

    drawn = [draw(client, choice, key, own) for _ in range(600)]
    bodies = [request.content for request, registered in drawn if registered]
    keys = {request.headers.get("flwr-public-key") for request, registered in drawn if registered}

    assert 100 < len(bodies) < 300
    assert len(keys) == 1
    assert any(not body for body in bodies)
    assert any(body.startswith(b"\x0a") and 2 < len(body) < whole for body in bodies)


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
