"""The way to the server, tried against servers that are well, broken, unknown or of another time."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from deploy.flower_run import free_port
from deploy.node import route
from deploy.node.route import Probe, Prober, probe, proxies
from deploy.trust.kit import Kit
from tests.deploy.node.made_up_server import Answers, Authority, make_authority, serving, tunnelling


def kit_for(port: int, *, host: str = "127.0.0.1", proxy: str = "") -> Kit:
    return Kit(consortium="c", hospital_id="north", host=host, port=port, public_key="ecdsa", proxy=proxy)


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("trusted"))


def test_server_that_is_well_is_reachable_and_tells_its_time(trusted: Authority) -> None:
    answers = Answers()

    with serving(answers, trusted) as port:
        found = probe(kit_for(port), trusted.ca.parent)

    assert found.reachable
    assert found.found == ""
    assert answers.asked == ["/health"]
    assert found.certificate in trusted.server.read_text()
    assert found.certificate.startswith("-----BEGIN CERTIFICATE-----")
    # HTTP tells whole seconds, and answering takes a moment.
    assert found.clock_skew_s == pytest.approx(0, abs=2)


@pytest.mark.parametrize("ahead_s", [-3600.0, -20.0, 400.0])
def test_clock_of_the_server_is_compared_with_ours(trusted: Authority, ahead_s: float) -> None:
    with serving(Answers(ahead_s=ahead_s), trusted) as port:
        found = probe(kit_for(port), trusted.ca.parent)

    assert found.clock_skew_s == pytest.approx(ahead_s, abs=2)


@pytest.mark.parametrize("date", ["", "soon", "99"])
def test_server_that_tells_no_time_leaves_the_skew_unknown(trusted: Authority, date: str) -> None:
    with serving(Answers(date=date), trusted) as port:
        found = probe(kit_for(port), trusted.ca.parent)

    assert found.reachable
    assert found.clock_skew_s is None


def test_server_that_is_not_well_is_not_reachable_but_tells_its_time(trusted: Authority) -> None:
    with serving(Answers(statuses={"/health": 503}, ahead_s=100.0), trusted) as port:
        found = probe(kit_for(port), trusted.ca.parent)

    assert not found.reachable
    assert found.found == "it answers 503"
    assert found.clock_skew_s == pytest.approx(100, abs=2)


def test_server_of_another_authority_is_not_reachable(trusted: Authority, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "other")
    answers = Answers()

    with serving(answers, other) as port:
        found = probe(kit_for(port), trusted.ca.parent)

    assert not found.reachable
    assert "CERTIFICATE_VERIFY_FAILED" in found.found
    assert answers.asked == []


def test_server_with_a_certificate_of_another_name_is_not_reachable(tmp_path: Path) -> None:
    elsewhere = make_authority(tmp_path, host="elsewhere.example")
    answers = Answers()

    with serving(answers, elsewhere) as port:
        found = probe(kit_for(port), tmp_path)

    assert not found.reachable
    assert "127.0.0.1" in found.found
    assert answers.asked == []


def test_port_where_nobody_listens_is_not_reachable(trusted: Authority) -> None:
    found = probe(kit_for(free_port()), trusted.ca.parent)

    assert not found.reachable
    assert found.found.startswith("ConnectError: ")
    assert found.clock_skew_s is None


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_kit_without_a_usable_authority_is_told_like_a_broken_way(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "ca.crt").write_text(content)

    found = probe(kit_for(free_port()), tmp_path)

    assert not found.reachable
    assert "Error" in found.found


def test_way_leads_through_the_proxy_of_the_kit(trusted: Authority) -> None:
    with serving(Answers(), trusted) as port, tunnelling() as (proxy_port, targets):
        found = probe(kit_for(port, proxy=f"http://127.0.0.1:{proxy_port}"), trusted.ca.parent)

    assert found.reachable
    assert targets == [f"127.0.0.1:{port}"]


def test_proxy_that_is_away_makes_the_server_unreachable(trusted: Authority) -> None:
    with serving(Answers(), trusted) as port:
        found = probe(kit_for(port, proxy=f"http://127.0.0.1:{free_port()}"), trusted.ca.parent)

    assert not found.reachable


def test_proxy_of_the_environment_is_not_taken(trusted: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")

    with serving(Answers(), trusted) as port:
        found = probe(kit_for(port), trusted.ca.parent)

    assert found.reachable


def test_client_like_flowers_takes_the_proxy_to_the_server_and_none_to_its_own_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(Answers()) as port, tunnelling(lets_through=False) as (proxy_port, targets):
        for name, value in proxies(kit_for(443, proxy=f"http://127.0.0.1:{proxy_port}")).items():
            monkeypatch.setenv(name, value)
        with httpx.Client() as client:
            own = client.get(f"http://127.0.0.1:{port}/health")
            with pytest.raises(httpx.ProxyError):
                client.get("https://federation.example:8443/health")

    assert own.status_code == 200
    assert targets == ["federation.example:8443"]


def test_environment_names_the_proxy_and_keeps_it_from_the_loopback_interface() -> None:
    found = proxies(kit_for(443, proxy="http://user:word@proxy.example:3128"))

    assert found["HTTPS_PROXY"] == found["https_proxy"] == "http://user:word@proxy.example:3128"
    assert set(found["NO_PROXY"].split(",")) == {"127.0.0.1", "localhost", "::1"}
    assert found["no_proxy"] == found["NO_PROXY"]
    assert proxies(kit_for(443)) == {}


def test_server_that_answers_a_byte_at_a_time_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended, tries = threading.Event(), []

    def slow(kit: Kit, folder: Path) -> Probe:
        tries.append(kit)
        ended.wait(10)
        return Probe(reachable=True)

    monkeypatch.setattr(route, "probe", slow)
    monkeypatch.setattr(route, "_LONGEST_S", 0.05)
    prober = Prober(kit_for(1), tmp_path)

    found = [prober.probe(), prober.probe()]
    ended.set()

    assert [one.reachable for one in found] == [False, False]
    assert "no whole answer" in found[0].found
    assert len(tries) == 1
