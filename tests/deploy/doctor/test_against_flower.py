"""The doctor in front of Flower's own SuperLink: what it asks is understood, and leaves no trace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.server.superlink.linkstate import LinkState
from flwr.superlink.main import create_app

from deploy.doctor.checks import Status
from tests.deploy.doctor.made_up_certificates import issue, pem_public
from tests.deploy.doctor.site import Site, failures, free_port, healthy_site

_START_LIMIT_S = 30.0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with healthy_site(tmp_path) as made:
        yield made


@pytest.fixture
def state(site: Site) -> Iterator[LinkState]:
    """The state of a SuperLink that takes the place of the site's made-up server, without an edge before it."""
    issue(site.authority, "localhost").write(site.root / "superlink.crt")
    app = create_app()
    site.kit["port"] = free_port()
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=site.kit["port"],
            ssl_certfile=site.root / "superlink.crt",
            ssl_keyfile=site.root / "superlink.key",
            log_config=None,
            lifespan="off",
            ws="none",
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + _START_LIMIT_S
    while not server.started and time.monotonic() < end:
        time.sleep(0.02)
    yield app.state.linkstate_factory.state()
    server.should_exit = True
    thread.join()


def register(state: LinkState, site: Site) -> int:
    return state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, pem_public(site.key), 0)


def test_registered_key_is_accepted_and_its_node_stays_as_it_was(site: Site, state: LinkState) -> None:
    node = register(state, site)

    result = site.examine()["auth"]

    assert result.status is Status.OK, result
    (info,) = state.get_node_info(node_ids=[node])
    assert (info.status, info.last_activated_at) == ("registered", "")


def test_online_node_is_not_disturbed(site: Site, state: LinkState) -> None:
    node = register(state, site)
    state.activate_node(node, 30.0)
    (before,) = state.get_node_info(node_ids=[node])

    site.examine()

    assert list(state.get_node_info(node_ids=[node])) == [before]


def test_unknown_key_is_told_from_a_known_one(site: Site, state: LinkState) -> None:
    result = site.examine()["auth"]

    assert (result.status, result.found) == (
        Status.FAILED,
        "the server does not know this hospital's key, or no longer",
    )
    assert list(state.get_node_info()) == []


def test_withdrawn_key_is_refused(site: Site, state: LinkState) -> None:
    state.delete_node(NOOP_FLWR_AID, register(state, site))

    assert site.examine()["auth"].status is Status.FAILED


@pytest.mark.parametrize(("offset_s", "accepted"), [(-100.0, True), (30.0, False), (-400.0, False)])
def test_signature_of_a_wrong_clock_is_refused_as_flower_refuses_it(
    site: Site, state: LinkState, offset_s: float, accepted: bool
) -> None:
    from deploy.doctor.answers import CHECKS

    register(state, site)
    site.change_machine(now=lambda: time.time() + offset_s)
    (auth,) = (check for check in CHECKS if check.id == "auth")

    finding = auth.look(site.hospital())

    assert (finding.status is Status.OK) == accepted
    assert accepted or "signature" in finding.found


def test_superlink_without_an_edge_is_found_to_expose_everything_and_does_nothing(site: Site, state: LinkState) -> None:
    register(state, site)

    results = site.examine()

    assert failures(results) == {"fleet-only"}
    assert all(path in results["fleet-only"].found for path in ("list-nodes", "start-run", "acquire-task"))
    assert len(list(state.get_node_info())) == 1
