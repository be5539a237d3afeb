"""Health checks of containers, against servers that are well, broken or not there."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.supercore.grpc_health import run_health_server_grpc_no_tls

from deploy.flower_run import free_port
from deploy.probes import answers_grpc, answers_http
from tests.deploy.node.made_up_server import Answers, make_authority, serving

ROOT = Path(__file__).parents[2]


@pytest.fixture
def health_server() -> Iterator[str]:
    """Yield the address of Flower's own health service."""
    address = f"127.0.0.1:{free_port()}"
    server = run_health_server_grpc_no_tls(address)
    yield address
    server.stop(0).wait()


def test_server_that_answers_200_is_well() -> None:
    answers = Answers()

    with serving(answers) as port:
        assert answers_http(f"http://127.0.0.1:{port}/health")

    assert answers.asked == ["/health"]


@pytest.mark.parametrize("status", [204, 404, 500, 503])
def test_server_that_answers_anything_else_is_not(status: int) -> None:
    with serving(Answers(statuses={"/health": status})) as port:
        assert not answers_http(f"http://127.0.0.1:{port}/health")


def test_port_where_nobody_listens_is_not_well() -> None:
    assert not answers_http(f"http://127.0.0.1:{free_port()}/health")


def test_server_under_tls_is_well_if_the_named_authority_vouches_for_it(tmp_path: Path) -> None:
    authority, other = make_authority(tmp_path / "own"), make_authority(tmp_path / "other")

    with serving(Answers(), authority) as port:
        url = f"https://127.0.0.1:{port}/health"
        found = [answers_http(url, str(authority.ca)), answers_http(url, str(other.ca)), answers_http(url)]

    assert found == [True, False, False]


def test_server_under_tls_with_another_name_is_not_well(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, host="elsewhere.example")

    with serving(Answers(), authority) as port:
        assert not answers_http(f"https://127.0.0.1:{port}/health", str(authority.ca))


def test_flowers_health_service_is_well(health_server: str) -> None:
    assert answers_grpc(health_server)


def test_grpc_port_where_nobody_listens_is_not_well() -> None:
    assert not answers_grpc(f"127.0.0.1:{free_port()}")


def test_proxy_of_the_environment_is_not_asked_about_ones_own_server(
    health_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("NO_PROXY", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(urllib.request, "_opener", None)  # made once a process, of the environment at that time

    with serving(Answers()) as port:
        assert answers_http(f"http://127.0.0.1:{port}/health")
    assert answers_grpc(health_server)


@pytest.mark.parametrize(("path", "code"), [("/health", 0), ("/broken", 1)])
def test_exit_code_is_what_a_container_runtime_asks_for(path: str, code: int) -> None:
    with serving(Answers(statuses={"/broken": 500})) as port:
        command = [sys.executable, "-m", "deploy.probes", "http", f"http://127.0.0.1:{port}{path}"]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_exit_code_of_a_grpc_server_is_told_alike(health_server: str) -> None:
    command = [sys.executable, "-m", "deploy.probes", "grpc", health_server]

    assert subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0
