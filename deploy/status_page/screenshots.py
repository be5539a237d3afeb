"""`python -m deploy.status_page.screenshots FOLDER`: the pictures of the manual, of a made-up hospital."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from deploy.exits import exit_codes
from deploy.status_page.application import make_status_app
from deploy.status_page.observer import Observer
from deploy.status_page.specimen import POLICY_FILE, make_hospital, refused_by_clock, tell_state
from deploy.web.browser import Tab, browser
from deploy.web.serving import served

_WIDE, _FORM, _PHONE = 1120, 720, 400


def take_pictures(folder: Path) -> list[Path]:
    """Write pictures of a healthy hospital, of one whose clock is wrong, and of the stop switch into `folder`.

    Raises:
        ConfigurationError: no browser is installed.
        OSError: a picture cannot be written.
    """
    healthy, clock, pause = (folder / f"status-{name}.png" for name in ("healthy", "clock", "pause"))
    with tempfile.TemporaryDirectory(prefix="aegis-specimen-") as place, browser() as tab:
        kit = make_hospital(Path(place))
        with served(make_status_app(Observer(kit / POLICY_FILE, kit))) as address:
            _photograph(tab, f"{address}/?still=1", healthy, width=_WIDE)
            _photograph(tab, f"{address}/pause", pause, width=_FORM)
            tell_state(kit, refused_by_clock(time.time()))
            _photograph(tab, f"{address}/?still=1", clock, width=_PHONE)
    return [healthy, clock, pause]


def _photograph(tab: Tab, url: str, path: Path, *, width: int) -> None:
    tab.show(width)
    tab.open(url)
    tab.photograph(path)


def main(folder: Annotated[Path, typer.Argument(help="Where the pictures go.", file_okay=False)]) -> None:
    """Take the pictures of the manual."""
    with exit_codes(as_json=False):
        folder.mkdir(parents=True, exist_ok=True)
        for path in take_pictures(folder):
            typer.echo(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    typer.run(main)
