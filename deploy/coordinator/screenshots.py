"""`python -m deploy.coordinator.screenshots FOLDER`: the pictures of the manual, of a made-up consortium."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from deploy.coordinator.overview import Lookout
from deploy.coordinator.page import make_page
from deploy.coordinator.specimen import answer, make_consortium, make_run
from deploy.exits import exit_codes
from deploy.web.application import secure
from deploy.web.browser import browser
from deploy.web.serving import served

_WIDE, _PHONE = 1120, 400


def take_pictures(folder: Path) -> list[Path]:
    """Write pictures of a run in progress into `folder`: wide, and on a phone in its dark scheme.

    Raises:
        ConfigurationError: no browser is installed.
        OSError: a picture cannot be written.
    """
    wide, phone = folder / "coordinator-page.png", folder / "coordinator-phone.png"
    with tempfile.TemporaryDirectory(prefix="aegis-specimen-") as place, browser() as tab:
        consortium, runs, now = Path(place) / "consortium", Path(place) / "runs", time.time()
        make_consortium(consortium)
        make_run(runs, now)
        lookout = Lookout(consortium, runs, lambda: answer(now), clock=lambda: now)
        with served(secure(make_page(lookout))) as address:
            tab.show(_WIDE)
            tab.open(f"{address}/?still=1")
            tab.photograph(wide)
            tab.show(_PHONE, scheme="dark")
            tab.photograph(phone)
    return [wide, phone]


def main(folder: Annotated[Path, typer.Argument(help="Where the pictures go.", file_okay=False)]) -> None:
    """Take the pictures of the manual."""
    with exit_codes(as_json=False):
        folder.mkdir(parents=True, exist_ok=True)
        for path in take_pictures(folder):
            typer.echo(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    typer.run(main)
