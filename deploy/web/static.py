"""The one file that a page loads besides itself: its style sheet, from the same machine."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Response

_STYLE = Path(__file__).parent / "style.css"


def add_style(app: FastAPI) -> None:
    """Let `app` answer /style.css with the style sheet that `base.html` names."""
    text = _STYLE.read_text(encoding="utf-8")

    @app.get("/style.css")
    def style() -> Response:
        return Response(text, media_type="text/css")
