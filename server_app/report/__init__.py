"""The report of a run: one HTML file that needs no network, no script and no other file.

It is drawn from a `Summary` alone, so that it can be made again from `summary.json` at any time, and the same summary
gives the same bytes. matplotlib and jinja2 are imported in this package only. Read next: `server_app.report.view`
(what is shown, and in which order), then `template` (how it looks) and `plots`.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, StrictUndefined

from federation.durable import write_durably
from server_app.report.style import STYLE
from server_app.report.template import TEMPLATE
from server_app.report.view import build_view
from server_app.summary import Summary

__all__ = ["render_report", "write_report"]


def render_report(summary: Summary) -> str:
    """Return the report of `summary` as one self-contained HTML document.

    Guarantee: every text taken from `summary` is escaped; the document loads nothing and runs nothing (its content
        security policy says so too); equal summaries give equal documents with equal versions of the libraries.

    Args:
        summary: the result of a run, finished or not.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(TEMPLATE).render(view=build_view(summary), style=STYLE).lstrip()


def write_report(summary: Summary, path: Path) -> None:
    """Write the report of `summary` to `path`, replacing what is there only when the new file is whole.

    Args:
        summary: the result of a run, finished or not.
        path: file to write, usually `report.html` in the folder of the run; its folder must exist.

    Raises:
        OSError: the file cannot be written; what was there before is unchanged.
    """
    write_durably(path, render_report(summary).encode())
