"""The page lists every check, and ids stay what they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.doctor.catalogue import HOSPITAL_CHECKS, SERVER_CHECKS
from deploy.doctor.checks import Check
from deploy.doctor.page import PAGE, render_page, write_page

CATALOGUES: tuple[Sequence[Check[Any]], ...] = (HOSPITAL_CHECKS, SERVER_CHECKS)


def test_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "Run: python -m deploy.doctor.page"


def test_page_lists_every_id_once_and_in_order() -> None:
    ids = re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| [^|]+ \| [^|]+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    listed = [name for name in ids if name not in ("ok", "warning", "failed", "skipped")]
    assert listed == [check.id for checks in CATALOGUES for check in checks]


def test_written_page_is_the_rendered_text(tmp_path: Path) -> None:
    write_page(tmp_path / "deploy" / "doctor.md")

    assert (tmp_path / "deploy" / "doctor.md").read_text(encoding="utf-8") == render_page()


@pytest.mark.parametrize("checks", CATALOGUES)
def test_every_check_follows_those_it_needs_and_has_an_id_of_its_own(checks: Sequence[Check[Any]]) -> None:
    before: set[str] = set()
    for check in checks:
        assert set(check.needs) <= before, check.id
        assert check.id not in before
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", check.id)
        before.add(check.id)


def test_there_are_as_many_checks_as_promised() -> None:
    assert len(HOSPITAL_CHECKS) >= 28
    assert len(SERVER_CHECKS) >= 12
