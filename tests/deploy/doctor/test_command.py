"""`aegis doctor`: what is printed, in which order, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.doctor import catalogue
from deploy.doctor.command import doctor
from deploy.doctor.policy import CHECKS
from tests.deploy.doctor.server_site import healthy_server
from tests.deploy.doctor.site import Site, healthy_site

ROOT = Path(__file__).parents[3]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with healthy_site(tmp_path) as made:
        made.hospital()
        made.stop_node()
        yield made


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(doctor, [*arguments], env={"COLUMNS": "120"})


def examine(site: Site, *options: str) -> Result:
    return invoke("hospital", "--kit", str(site.kit_folder), "--policy", str(site.root / "site.toml"), *options)


def test_json_is_all_that_is_printed_and_holds_every_field(site: Site) -> None:
    content: dict[str, Any] = json.loads(examine(site, "--json").stdout)

    assert set(content) == {"results", "counts"}
    assert {tuple(result) for result in content["results"]} == {("id", "title", "status", "found", "expected", "mend")}
    assert content["counts"]["ok"] > 20
    assert sum(content["counts"].values()) == len(content["results"])


def test_failures_come_first_with_how_to_mend_them_and_exit_code_one(site: Site) -> None:
    (site.kit_folder / "node.key").chmod(0o644)

    result = examine(site, "--no-network")

    lines = result.stdout.splitlines()
    statuses = [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in
                ("failed", "warning", "skipped", "ok")]  # fmt: skip
    assert result.exit_code == 1
    assert statuses == sorted(statuses, key=["failed", "warning", "skipped", "ok"].index)
    assert any("kit-permissions" in line and line.split()[0] == "failed" for line in lines)
    assert "mend: Run chmod 600" in result.stdout
    assert "expected: nobody but the node's user and root" in result.stdout


def test_policy_lies_beside_the_kit_unless_said_otherwise(site: Site) -> None:
    (site.root / "site.toml").rename(site.kit_folder / "site.toml")

    content = json.loads(invoke("hospital", "--kit", str(site.kit_folder), "--no-network", "--json").stdout)

    results = {result["id"]: result["status"] for result in content["results"]}
    assert results["policy-syntax"] == "ok"


def test_healthy_server_ends_with_code_zero_but_for_this_machine(tmp_path: Path) -> None:
    with healthy_server(tmp_path) as made:
        made.server()
        options = ["--folder", str(made.folder), "--database", str(made.database), "--runs", str(made.runs)]
        edge = ["--edge", f"127.0.0.1:{made.edge.port}"]

        result = invoke("server", *options, *edge, "--json")

    failed = {item["id"] for item in json.loads(result.stdout)["results"] if item["status"] == "failed"}
    assert failed <= {"user", "database-durable", "runs-durable", "ports", "memory", "disk", "home-writable"}
    assert result.exit_code == (1 if failed else 0)


@pytest.mark.parametrize("arguments", [("server",), ("server", "--folder", "x", "--edge", "no-port"), ("hospitals",)])
def test_wrong_usage_ends_with_code_two(arguments: tuple[str, ...]) -> None:
    assert invoke(*arguments).exit_code == 2


def test_exit_code_is_zero_where_nothing_failed(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    monkeypatch.setattr(catalogue, "HOSPITAL_CHECKS", CHECKS[:1])

    assert examine(site).exit_code == 0


def test_command_is_imported_without_the_checks_and_without_torch() -> None:
    code = "import sys, deploy.doctor.command; print({'torch', 'flwr', 'deploy.doctor.catalogue'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "set()"
