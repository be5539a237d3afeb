"""The page says what was found and what it does not prove, loads nothing, and stays with its owner; JSON has none."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aegis_cache.audit.membership import MembershipResult, audit_membership
from aegis_cache.audit.memorization import MemorizationReport, audit_memorization
from aegis_cache.audit.page import WARNING, render_page
from aegis_cache.audit.report import as_dict, write_report
from federation.datasets.image_set import ImageSet

Draw = Callable[[int, int], ImageSet]
Audit = tuple[MemorizationReport, tuple[MembershipResult, ...], ImageSet, ImageSet]


@pytest.fixture
def audit(draw: Draw) -> Audit:
    train, held_out, fresh = draw(60, 1), draw(60, 2), draw(30, 3)
    images = fresh.images.copy()
    images[7] = train.images[19]
    synthetic = ImageSet(images=images, labels=fresh.labels)
    report = audit_memorization(synthetic, train, held_out, class_names=("<calm>", "rough"), seed=0)
    return report, audit_membership(synthetic, train, held_out, seed=0), synthetic, train


def page_of(audit: Audit, title: str = "Audit") -> str:
    memorization, membership, synthetic, train = audit
    return render_page(title, memorization, membership, synthetic=synthetic, train=train)


def pictures_in(page: str) -> list[np.ndarray]:
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in found]


def numbers_in(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers_in(each)]
    if isinstance(value, list):
        return [number for each in value for number in numbers_in(each)]
    return [value] if isinstance(value, (int, float)) else []


def test_page_shows_the_worst_pair_first_below_the_warning(audit: Audit) -> None:
    page = page_of(audit)

    below = page[page.index(f"<h2>{WARNING}</h2>") :]
    pictures = pictures_in(below)
    assert len(pictures) == len(pictures_in(page)) == 16
    np.testing.assert_array_equal(pictures[0], audit[2].images[7, 0])
    np.testing.assert_array_equal(pictures[1], audit[3].images[19, 0])


def test_colour_images_are_shown_in_colour(audit: Audit) -> None:
    memorization, membership, synthetic, train = audit
    colours = [
        ImageSet(images=np.concatenate([part.images, part.images // 2, part.images // 3], axis=1), labels=part.labels)
        for part in (synthetic, train)
    ]

    page = render_page("Audit", memorization, membership, synthetic=colours[0], train=colours[1])

    np.testing.assert_array_equal(pictures_in(page)[0], np.moveaxis(colours[0].images[7], 0, -1))


def test_page_says_what_was_found_and_what_that_does_not_prove(audit: Audit) -> None:
    words = html.unescape(page_of(audit))

    assert "1 of 30 synthetic images repeat a training image" in words
    assert "Nearest-neighbour tests find copies only, they prove nothing" in words
    assert "This is not differential privacy" in words
    assert "0.5 tells nothing" in words


def test_page_loads_and_runs_nothing(audit: Audit) -> None:
    page = page_of(audit)

    assert "default-src 'none'" in page
    assert not re.search(r"<script|<link|<iframe|javascript:|https?://|url\(|@import", page)
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'src="([^"]*)"', page))


def test_names_cannot_bring_markup_into_the_page(audit: Audit) -> None:
    page = page_of(audit, title="<img src=x onerror=alert(1)>")

    assert "<img src=x" not in page
    assert "<calm>" not in page
    assert "&lt;calm&gt;" in page


@pytest.mark.parametrize(
    ("low", "verdict"), [(0.51, "better than guessing"), (0.49, "not clearly better than guessing")]
)
def test_verdict_about_membership_follows_the_interval(audit: Audit, low: float, verdict: str) -> None:
    memorization, membership, synthetic, train = audit

    page = page_of((memorization, (replace(membership[0], low=low),), synthetic, train))

    assert f"{verdict}." in page


@pytest.mark.parametrize(
    ("low", "verdict"), [(0.01, "more than chance explains"), (0.0, "not clearly more than chance")]
)
def test_verdict_about_closeness_follows_the_interval(audit: Audit, low: float, verdict: str) -> None:
    results = tuple(replace(result, closer=replace(result.closer, low=low)) for result in audit[0].results)

    page = page_of((replace(audit[0], results=results), *audit[1:]))

    assert f"{verdict}." in page


def test_missing_membership_test_is_said(audit: Audit) -> None:
    assert "<p>Not tested.</p>" in page_of((audit[0], (), audit[2], audit[3]))


def test_numbers_carry_their_baselines_and_no_value_of_a_single_image(audit: Audit) -> None:
    numbers = as_dict(audit[0], audit[1])

    assert numbers["copies"]["exact"] == numbers["copies"]["any"] == 1
    assert numbers["closeness"][0]["closer"]["held_out"] == 30
    assert numbers["closeness"][0]["ratio_of_first_percentiles"] is None
    assert numbers["membership"][0]["null_auc"] == 0.5
    private = [pair.relative_distance for pair in audit[0].worst if pair.relative_distance > 0]
    assert not set(private) & set(numbers_in(numbers))
    assert "worst" not in json.dumps(numbers)


def test_first_percentiles_of_many_images_are_told(draw: Draw) -> None:
    report = audit_memorization(draw(200, 3), draw(200, 1), draw(200, 2), class_names=("calm", "rough"), seed=0)

    groups = as_dict(report, ())["closeness"]

    assert groups[0]["ratio_of_first_percentiles"] == pytest.approx(1.0, abs=0.2)
    assert [group["ratio_of_first_percentiles"] for group in groups[1:]] == [None, None]


def test_ratios_without_a_value_do_not_break_the_numbers(audit: Audit) -> None:
    results = tuple(replace(result, ratio_of_medians=float("inf")) for result in audit[0].results)

    numbers = as_dict(replace(audit[0], results=results), audit[1])

    assert numbers["closeness"][0]["ratio_of_medians"] is None
    assert "unbounded" in page_of((replace(audit[0], results=results), *audit[1:]))


def test_both_files_are_for_their_owner_alone(audit: Audit, tmp_path: Path) -> None:
    memorization, membership, synthetic, train = audit
    (tmp_path / "audit.html").write_text("old")
    (tmp_path / "audit.html").chmod(0o644)

    write_report(
        tmp_path, title="Audit", memorization=memorization, membership=membership, synthetic=synthetic, train=train
    )

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"audit.html": 0o600, "audit.json": 0o600}
    assert json.loads((tmp_path / "audit.json").read_text()) == json.loads(
        json.dumps(as_dict(memorization, membership))
    )
    assert (tmp_path / "audit.html").read_text() == page_of(audit)
