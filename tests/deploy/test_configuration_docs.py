"""The configuration page says what the models check."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.configuration_docs import CONFIGURATION_PAGE, render_configuration, write_configuration_page
from federation.config import Configuration, flatten


def test_configuration_page_is_current() -> None:
    expected = render_configuration()

    assert CONFIGURATION_PAGE.read_text(encoding="utf-8") == expected, "Run: python -m deploy.configuration_docs"


def test_configuration_page_lists_and_describes_every_key_once() -> None:
    rows = [
        line.split(" | ") for line in render_configuration().splitlines() if line.startswith("| `") and " | " in line
    ]
    keys = [row for row in rows if len(row) == 5]

    assert [row[0].strip("| `") for row in keys] == list(flatten(Configuration()))
    assert all(len(row[4]) > len("|.") for row in keys)


@pytest.mark.parametrize(
    "row",
    [
        "| `data.dirichlet-alpha` | number | > 0 | `0.5` |",
        "| `data.validation-fraction` | number | > 0, < 1 | `0.1` |",
        "| `data.phantom-classes` | whole number | ≥ 2, ≤ 8 | `4` |",
        '| `data.root` | text |  | `""` |',
        "| `run.resume` | `true` or `false` |  | `false` |",
        '| `aggregation.weighting` | `examples`, `uniform`, `sqrt` |  | `"examples"` |',
    ],
)
def test_row_shows_type_bounds_and_default(row: str) -> None:
    assert any(line.startswith(row) for line in render_configuration().splitlines())


def test_written_page_is_the_rendered_text(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "configuration.md"

    write_configuration_page(page)

    assert page.read_text(encoding="utf-8") == render_configuration()
