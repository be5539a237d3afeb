"""The style sheet: enough contrast in both schemes, by the formula of WCAG 2.2, and nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import deploy.web

CSS = (Path(deploy.web.__file__).parent / "style.css").read_text(encoding="utf-8")
START, _, REST = CSS.partition("@media screen")
LIGHT, DARK = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in (START, REST.partition("* {")[0]))

TEXT = [
    *((ink, ground) for ink in ("ink", "soft", "accent") for ground in ("page", "card")),
    *((mood, f"{mood}-bg") for mood in ("good", "bad", "warn", "idle")),
    *(("ink", f"{mood}-bg") for mood in ("good", "bad", "warn", "idle")),
    ("on-accent", "accent"),
]


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_formula_knows_black_on_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), TEXT)
def test_text_has_the_contrast_of_level_aa(colours: dict[str, str], ink: str, ground: str) -> None:
    assert contrast(colours[ink], colours[ground]) >= 4.5


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_edge_of_a_field_has_the_contrast_of_level_aa(colours: dict[str, str]) -> None:
    assert min(contrast(colours["edge"], colours[ground]) for ground in ("page", "card")) >= 3.0


def test_style_loads_nothing() -> None:
    assert not re.search(r"url\(|@import|expression", CSS)
