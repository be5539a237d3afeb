"""The compose file trains: server and three hospitals in containers, asynchronous, with DP-SGD and masking.

In the middle of the run the server gets a new certificate, and a hospital a new key.

`make test-deploy` runs it. It needs a container engine, root and chest X-rays, and takes minutes.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.experiments.deployment_faults import renew_certificate
from deploy.experiments.deployment_images import HOSPITAL_IMAGE
from deploy.experiments.deployment_play import await_result, playing, start_run
from deploy.experiments.deployment_renewal import keys_of, renew_key
from deploy.experiments.deployment_stage import HOSPITALS, Stage, attempt, docker, has_engine, wait_until
from deploy.experiments.deployment_watch import (
    await_contribution,
    contributions,
    events,
    find_contradictions,
    ledger,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.containers,
    pytest.mark.timeout(2400),
    pytest.mark.skipif("AEGIS_TEST_DATA" not in os.environ, reason="AEGIS_TEST_DATA names no folder with chest X-rays"),
    pytest.mark.skipif(not has_engine(), reason="no container engine answers on this machine"),
]
_ROUNDS = 24
_RENEWED = HOSPITALS[1]
_SERVER = ("superlink", "serverapp", "coordinator", "edge")


@pytest.fixture(scope="module")
def finished() -> Iterator[tuple[Stage, dict[str, Any]]]:
    """Return a consortium whose run has just ended, and the summary."""
    with playing(str(Path(os.environ["AEGIS_TEST_DATA"]) / "medmnist"), rounds=_ROUNDS) as stage:
        start_run(stage)
        await_contribution(stage, _RENEWED)
        renew_certificate(stage)
        renew_key(stage, _RENEWED)
        yield stage, await_result(stage, limit_s=1200.0)


def test_run_completes_with_every_hospital(finished: tuple[Stage, dict[str, Any]]) -> None:
    stage, summary = finished
    refused = [event for event in events(stage) if event["event"] == "refusal"]

    assert summary["status"] == "completed"
    assert summary["model_version"] == _ROUNDS
    assert summary["silent_hospitals"] == []
    assert set(contributions(stage)) == set(HOSPITALS)
    assert {event["reason"] for event in refused if event["hospital"] != _RENEWED} <= {"late-reply"}
    # A task that was under way at the hospital whose key changed is lost with its old node.
    renewed = {event["reason"].removeprefix("evaluation:") for event in refused if event["hospital"] == _RENEWED}
    assert renewed <= {"late-reply", "node-lost"}


def test_books_of_server_and_hospitals_agree(finished: tuple[Stage, dict[str, Any]]) -> None:
    stage, summary = finished

    assert find_contradictions(stage) == []
    assert summary["updates_applied"] == sum(contributions(stage).values())


def test_hospital_is_known_by_its_new_key_alone_and_no_renewal_ended_the_run(
    finished: tuple[Stage, dict[str, Any]],
) -> None:
    stage, _ = finished
    key, ended = keys_of(stage, _RENEWED)

    assert len(ended) == 1
    assert key not in ended
    assert (stage.kit(_RENEWED) / "node.key.pub").read_text().split()[:2] == key.split()[:2]
    assert "resume" not in {event["event"] for event in events(stage)}
    assert stage.node_state(_RENEWED)["phase"] == "connected"


def test_updates_were_private_and_masked(finished: tuple[Stage, dict[str, Any]]) -> None:
    stage, summary = finished

    for hospital in HOSPITALS:
        (line,) = [line for line in ledger(stage, hospital)["data-sets"] if line["data-set"] == "chest"]
        assert line["unprotected"] == 0
        assert line["spent"]["pld"] > 0
    assert summary["configuration"]["masking.mode"] == "interleaved"


@pytest.mark.parametrize("service", [*_SERVER, *HOSPITALS])
def test_container_is_healthy_and_hardened(finished: tuple[Stage, dict[str, Any]], service: str) -> None:
    stage, _ = finished
    found = stage.inspect(service)
    host = found["HostConfig"]

    wait_until(lambda: stage.is_healthy(service), f"{service} to be healthy", limit_s=120.0)
    assert found["Config"]["User"] == "10001:10001"
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert not host["Privileged"]


def test_doctor_tells_the_coordinator_s_image_from_another(finished: tuple[Stage, dict[str, Any]]) -> None:
    stage, _ = finished
    hospital = HOSPITALS[0]
    told = docker("run", "--rm", HOSPITAL_IMAGE, "cat", "/etc/aegis-image.json")
    expected = stage.kit(hospital) / "image.txt"

    expected.write_text(told)
    same = ask_doctor(stage, hospital)["image-digest"]
    expected.write_text(f"sha256:{'0' * 64}")
    other = ask_doctor(stage, hospital)["image-digest"]
    expected.unlink()

    assert (same, other) == ("ok", "failed")


def ask_doctor(stage: Stage, hospital: str) -> dict[str, str]:
    """Return what the doctor in the running container of a hospital finds, by check; some checks may fail."""
    command = ["docker", "exec", stage.name(hospital), "aegis", "doctor", "hospital", "--kit", "/etc/aegis", "--json"]
    return {found["id"]: found["status"] for found in json.loads(attempt(command).stdout)["results"]}


def test_pages_show_the_run(finished: tuple[Stage, dict[str, Any]]) -> None:
    stage, _ = finished

    with urllib.request.urlopen(f"http://127.0.0.1:{stage.ports['page']}/", timeout=30) as answer:
        page = answer.read().decode()
    read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8077/metrics', timeout=30).read().decode())"
    metrics = docker("exec", stage.name(HOSPITALS[0]), "python", "-c", read)

    assert all(hospital in page for hospital in HOSPITALS)
    assert 'aegis_node_phase{phase="connected"} 1' in metrics


def test_hospital_holds_no_code_of_the_server(finished: tuple[Stage, dict[str, Any]]) -> None:
    stage, _ = finished

    found = docker("exec", stage.name(HOSPITALS[0]), "ls", "-R", "/tmp", "/var/lib/aegis")

    assert ".py" not in found
    assert "apps" not in found.split()


def test_keeper_says_once_more_how_the_run_ended(finished: tuple[Stage, dict[str, Any]]) -> None:
    stage, summary = finished

    again = stage.compose("--profile", "run", "run", "--rm", "-T", "federation", "aegis", "federate", "run", "--json",
                          "--config", "/etc/aegis/run.toml")  # fmt: skip

    assert json.loads(again.splitlines()[-1])["model_version"] == summary["model_version"]
