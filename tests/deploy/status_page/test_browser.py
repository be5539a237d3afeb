"""The page in a real browser: it is drawn, fits a phone, and its stop switch works with the headers as they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from deploy.node.pause import is_paused
from deploy.status_page.application import make_status_app
from deploy.status_page.observer import Observer
from deploy.status_page.specimen import POLICY_FILE, make_hospital
from deploy.web.browser import Tab, browser, find_browser
from deploy.web.serving import served

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_browser() is None, reason="Needs Chromium; none is installed on this machine."),
]

ROOT = Path(__file__).parents[3]
LARGEST_PICTURE_BYTES = 150_000


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    return make_hospital(tmp_path)


@pytest.fixture
def address(hospital: Path) -> Iterator[str]:
    with served(make_status_app(Observer(hospital / POLICY_FILE, hospital))) as found:
        yield found


def press(tab: Tab, typed: str) -> None:
    tab.evaluate(f"document.getElementById('hospital-id').value = {typed!r}")
    tab.evaluate("document.querySelector('form button').click()")
    tab.await_another()


def test_page_is_styled_in_both_schemes(tab: Tab, address: str) -> None:
    colours = []
    for scheme in ("light", "dark"):
        tab.show(1000, scheme=scheme)
        tab.open(address)
        colours.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))

    assert colours == ["rgb(244, 246, 248)", "rgb(16, 22, 28)"]
    assert tab.evaluate("document.querySelector('h1').innerText") == "st-elsewhere"


@pytest.mark.parametrize("width", [320, 400, 1000])
def test_page_fits_the_screen(tab: Tab, address: str, width: int) -> None:
    tab.show(width)
    tab.open(address)

    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_form_typed_and_pressed_pauses_the_hospital(tab: Tab, address: str, tmp_path: Path) -> None:
    tab.open(f"{address}/pause")
    press(tab, "st-elsewhere")

    assert is_paused(tmp_path / "state")
    assert tab.evaluate("location.pathname") == "/"
    assert "Paused by this hospital" in tab.evaluate("document.body.innerText") or "Pausing" in tab.evaluate(
        "document.body.innerText"
    )


def test_slip_of_the_finger_changes_nothing(tab: Tab, address: str, tmp_path: Path) -> None:
    tab.open(f"{address}/pause")
    press(tab, "st-elsewher")

    assert not is_paused(tmp_path / "state")
    assert "nothing was changed" in tab.evaluate("document.querySelector('[role=alert]').innerText")


def test_form_on_another_site_changes_nothing(tab: Tab, address: str, tmp_path: Path) -> None:
    tab.open(f"{address}/pause")
    token = tab.evaluate("document.querySelector('[name=token]').value")
    form = (
        f"<form method='post' action='{address}/pause'><input name='token' value='{token}'>"
        "<input id='hospital-id' name='hospital-id'><button>x</button></form>"
    )
    tab.open(f"data:text/html,{form}")
    press(tab, "st-elsewhere")

    assert not is_paused(tmp_path / "state")
    assert "Nothing was changed" in tab.evaluate("document.body.innerText")


def test_script_in_the_page_does_not_run(tab: Tab, address: str) -> None:
    tab.open(address)

    tab.evaluate(
        "var s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
        "var d = document.createElement('div'); d.innerHTML = '<img src=x onerror=\"window.ran = 1\">'; 1"
    )

    assert tab.evaluate("window.ran === undefined")


def test_pictures_of_the_manual_are_made_and_small(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy.status_page.screenshots", str(tmp_path / "images")]

    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)

    sizes = {path.name: path.stat().st_size for path in (tmp_path / "images").iterdir()}
    assert set(sizes) == {f"status-{name}.png" for name in ("healthy", "clock", "pause")}
    assert max(sizes.values()) < LARGEST_PICTURE_BYTES
    with Image.open(tmp_path / "images" / "status-healthy.png") as picture:
        assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 16
