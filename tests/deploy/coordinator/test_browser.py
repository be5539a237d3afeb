"""The page in a real browser, of a real run, and fed by a real SuperLink."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from deploy.coordinator.overview import Connection, Lookout
from deploy.coordinator.page import make_page
from deploy.coordinator.screenshots import take_pictures
from deploy.coordinator.superlink import SuperLink
from deploy.coordinator.watch import find
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.enrolment import enrol_hospital
from deploy.trust.registration import register_hospitals
from deploy.trust.superlink import CONNECTION
from deploy.web.application import secure
from deploy.web.browser import Tab, browser, find_browser
from deploy.web.serving import served
from tests.deploy.coordinator.made_up import (
    HOSTILE,
    answer,
    evaluation,
    event,
    hospital,
    lookout,
    step,
    write_consortium,
    write_run,
)
from tests.deploy.trust.authenticated_superlink import AuthenticatedSuperLink
from tests.deploy.trust.founded import found
from tests.e2e.waiting import wait_until

pytestmark = pytest.mark.e2e
needs_browser = pytest.mark.skipif(find_browser() is None, reason="Needs Chromium; none is installed on this machine.")

LARGEST_PICTURE_BYTES = 150_000


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    write_consortium(tmp_path / "consortium", hospital("a"), hospital("b"))
    events = [
        event("start", 0),
        event("enrol", 1, hospital="a", examples=9),
        evaluation(2, 0, 0.3, a=0.2, **{HOSTILE: 0.1}),
        step(20, 1, a=2, **{HOSTILE: 1}),
        event("refusal", 40, hospital=HOSTILE, reason=HOSTILE),
        evaluation(50, 1, 0.75, a=0.5, **{HOSTILE: 0.25}),
    ]
    write_run(tmp_path / "runs", "lungs", events)
    with served(secure(make_page(lookout(tmp_path, answer(a="online", b="offline"))))) as found_at:
        yield found_at


@needs_browser
def test_page_is_drawn_with_its_style_and_its_curve(tab: Tab, address: str) -> None:
    tab.show(1000)
    tab.open(address)

    lines = "[...document.querySelectorAll('svg polyline')].map(line => getComputedStyle(line).stroke)"
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(244, 246, 248)"
    assert tab.evaluate(lines) == ["rgb(11, 92, 133)", "rgb(163, 36, 27)"]
    assert tab.evaluate("document.querySelector('svg').getBoundingClientRect().width") > 300


@needs_browser
def test_hostile_names_make_no_element_of_their_own(tab: Tab, address: str) -> None:
    tab.open(address)

    assert tab.evaluate("document.scripts.length") == 0
    shown = tab.evaluate("[...document.querySelectorAll('bdi')].map(item => item.textContent)")
    assert HOSTILE in shown
    assert f"{HOSTILE} 1" in shown


@needs_browser
@pytest.mark.parametrize("width", [360, 1400])
def test_page_fits_its_window(tab: Tab, address: str, width: int) -> None:
    tab.show(width)
    tab.open(address)

    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@needs_browser
def test_dump_of_the_page_is_what_was_served(address: str, tmp_path: Path) -> None:
    program = find_browser()
    assert program
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom"]

    dumped = subprocess.run(
        [program, *options, f"{address}/?still=1"], capture_output=True, text=True, timeout=120, check=True
    ).stdout

    assert re.search(r"<h2>Run <bdi>lungs</bdi>", dumped)
    assert "<script" not in dumped


@needs_browser
@pytest.mark.slow
def test_pictures_of_the_manual_show_what_they_are_for(tmp_path: Path) -> None:
    wide, phone = take_pictures(tmp_path)

    for path, width in ((wide, 1120), (phone, 400)):
        with Image.open(path) as picture:
            assert picture.width == width
            assert picture.height > width
        assert path.stat().st_size < LARGEST_PICTURE_BYTES


def test_real_superlink_tells_who_is_connected_and_who_is_gone(tmp_path: Path) -> None:
    folder = found(tmp_path / "consortium")
    kits = {name: enrol_hospital(folder, name).kit for name in ("north", "south")}
    with AuthenticatedSuperLink(folder, tmp_path / "superlink") as running:
        register_hospitals(folder, running.administration())
        node = running.start_node(kits["north"] / "node.key", "north")
        now = [0.0]
        link = SuperLink(CONNECTION, tmp_path / "superlink" / "home", clock=lambda: now[0])

        def standing() -> dict[str, Any]:
            now[0] += 60
            overview = Lookout(folder.path, tmp_path / "runs", link.ask).look()
            return {seat.hospital: seat.connection for seat in overview.seats} | {"findings": find(overview)}

        before = standing()
        wait_until(lambda: standing()["north"] is Connection.ONLINE, "a node that is online")
        node.terminate()
        wait_until(lambda: standing()["north"] is Connection.OFFLINE, "a node that is offline")
        after = standing()

    assert before["south"] is Connection.NEVER
    assert before["findings"] == ()
    assert [item.subject for item in after["findings"]] == ["north"]
    assert _failure(folder, link, now).startswith("The SuperLink was not reached: ")


def _failure(folder: ConsortiumFolder, link: SuperLink, now: list[float]) -> str:
    now[0] += 60
    return Lookout(folder.path, folder.path / "runs", link.ask).look().superlink.failure
