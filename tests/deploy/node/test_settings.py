"""What a node is started with: command lines as Flower's own parsers read them, and the environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args
from flwr.supercore.cli.flower_superexec import flower_superexec
from flwr.supernode.cli import flower_supernode

from client_app.site import identify_site
from deploy.node.settings import NodeSettings, versions
from federation.config import Configuration
from federation.errors import ConfigurationError, SiteError, SiteErrorCode
from tests.client_app.calls import make_context
from tests.deploy.node.made_up_node import PORT, make_settings, write_kit, write_policy

SUPERNODE = sys.modules[flower_supernode.__module__]
SUPEREXEC = sys.modules[flower_superexec.__module__]
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy")


def test_supernode_reaches_the_server_of_the_kit_with_the_hospitals_key(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)

    program, *arguments = settings.supernode_command()

    assert (program, arguments[:3]) == (
        sys.executable,
        ["-m", "deploy.node.supernode", str(tmp_path / "scratch" / "contact.json")],
    )
    given = SUPERNODE._parse_args_run_supernode().parse_args(arguments[3:])
    assert given.superlink == "federation.example:8443"
    assert given.root_certificates == str(tmp_path / "kit" / "ca.crt")
    assert given.auth_supernode_private_key == str(tmp_path / "kit" / "node.key")
    assert not given.insecure


def test_supernode_serves_its_own_superexec_only(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)

    given = SUPERNODE._parse_args_run_supernode().parse_args(settings.supernode_command()[4:])

    assert (given.host, given.port) == ("127.0.0.1", PORT)
    assert given.isolation == "process"
    assert given.superexec_auth_secret_file == str(settings.secret_file)
    assert not given.runtime_dependency_install


def test_superexec_asks_that_supernode_with_the_same_secret(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)

    program, *arguments = settings.superexec_command()

    assert (program, arguments[:2]) == (sys.executable, ["-m", "deploy.node.superexec"])
    given = SUPEREXEC._parse_args().parse_args(arguments[2:])
    assert given.runtime_api_address == f"127.0.0.1:{PORT}"
    assert given.superexec_auth_secret_file == str(settings.secret_file)
    assert given.insecure
    assert not given.runtime_dependency_install


def test_node_configuration_leads_the_clientapp_to_the_policy(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "a folder with spaces")

    text = settings.supernode_command()[-1]
    node = parse_config_args([text])

    assert node == {"site-policy": str(tmp_path / "a folder with spaces" / "site.toml")}
    site = identify_site(make_context({}, site_policy=node["site-policy"]), Configuration())
    assert site.hospital_id == "north"


def test_policy_is_named_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_kit(tmp_path / "kit")
    write_policy(tmp_path)
    monkeypatch.chdir(tmp_path)

    settings = NodeSettings.read(Path("kit"), Path("site.toml"), scratch=tmp_path, port=PORT)

    assert settings.policy_path == tmp_path / "site.toml"
    assert settings.state_dir == tmp_path / "state"


def test_kit_and_policy_of_different_hospitals_are_refused(tmp_path: Path) -> None:
    kit, policy = write_kit(tmp_path / "kit"), write_policy(tmp_path, hospital_id="south")

    with pytest.raises(ConfigurationError, match=r"Expected hospital-id = 'north' in .*site\.toml.*, found 'south'"):
        NodeSettings.read(kit, policy, scratch=tmp_path, port=PORT)


def test_missing_kit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"found no kit\.toml"):
        NodeSettings.read(tmp_path, write_policy(tmp_path), scratch=tmp_path, port=PORT)


def test_missing_policy_is_refused(tmp_path: Path) -> None:
    kit = write_kit(tmp_path / "kit")

    with pytest.raises(SiteError) as caught:
        NodeSettings.read(kit, tmp_path / "site.toml", scratch=tmp_path, port=PORT)

    assert caught.value.code is SiteErrorCode.POLICY_MISSING


def test_flower_stays_offline_and_at_home_in_the_scratch_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Etc/UTC")

    found = make_settings(tmp_path).environment()

    assert found["FLWR_HOME"] == str(tmp_path / "scratch" / "flower")
    assert found["FLWR_TELEMETRY_ENABLED"] == "0"
    assert found["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert found["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert found["PYTHONUNBUFFERED"] == "1"
    assert found["TZ"] == "Etc/UTC"


def test_proxy_of_the_kit_is_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://another.example:1")

    found = make_settings(tmp_path, proxy="http://proxy.example:3128").environment()

    assert found["HTTPS_PROXY"] == found["https_proxy"] == "http://proxy.example:3128"
    assert "127.0.0.1" in found["NO_PROXY"].split(",")
    assert "HTTP_PROXY" not in found


@pytest.mark.parametrize("name", PROXIES)
def test_without_one_in_the_kit_no_proxy_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://another.example:1")

    found = make_settings(tmp_path).environment()

    assert not set(PROXIES) & set(found)


def test_versions_are_those_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AEGIS_IMAGE", raising=False)

    assert set(versions()) == {"aegis", "flwr", "torch", "python"}
    assert versions()["flwr"].startswith("1.42.")


def test_image_is_told_where_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AEGIS_IMAGE", "aegis-hospital:0.1.0")

    assert versions()["image"] == "aegis-hospital:0.1.0"
