"""Where the templates of a page come from: its own folder first, then the frame that all pages share."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_SHARED = Path(__file__).parent / "templates"


def environment(package_folder: Path) -> Environment:
    """Return the templates in `package_folder`/templates, which may extend the shared `base.html`.

    `base.html` has the blocks `title`, `head` (more for the head), `main` and `footer`.

    Guarantee: every value is escaped where it is written, whatever the template's file is called; a name that the page
        was not given is an error and no empty text.
    """
    return Environment(
        loader=FileSystemLoader([package_folder / "templates", _SHARED]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
