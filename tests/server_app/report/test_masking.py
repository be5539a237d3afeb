"""What a report says of masking: its numbers by closed forms, what is flagged, and no section without it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from server_app.report import render_report
from server_app.report.labels import MOST_LINES
from server_app.report.masking import Masking, describe_masking
from tests.server_app.report.page import Page, rows, section

Make = Callable[..., Any]
HEADING = "Masking"


@pytest.fixture
def make_masked(make_summary: Make, make_hospital: Make) -> Make:
    """Return the function that makes the summary of a masked run, from training images by hospital and settings."""

    def make(images: dict[str, int], **settings: Any) -> Any:
        tables = {"optimizer": "training", "momentum": "training", "batch_size": "training", "mechanism": "privacy"}
        configuration = {
            f"{tables.get(key, 'masking')}.{key.replace('_', '-')}": value
            for key, value in {"mode": "interleaved", **settings}.items()
        }
        hospitals = {name: make_hospital(examples=examples) for name, examples in images.items()}
        return make_summary(list(images), per_hospital=hospitals, configuration=configuration)

    return make


@pytest.fixture
def describe(make_masked: Make) -> Callable[..., Masking]:
    """Return the function that describes a masked run; see `make_masked`."""

    def make(images: dict[str, int], **settings: Any) -> Masking:
        part = describe_masking(make_masked(images, **settings))
        assert part is not None
        return part

    return make


def alone(others: int, bins: int) -> str:
    """The chance to be alone among `others`, rounded up, by powers instead of the product's logarithms."""
    return f"{math.ceil((1 - 1 / bins) ** others * 1000 - 1e-6) / 1000:.3f}"


@pytest.mark.parametrize("configuration", [{}, {"masking.mode": "none"}, {"masking.mode": "none", "masking.size": "9"}])
def test_run_without_masking_has_no_such_section(make_summary: Make, configuration: dict[str, str]) -> None:
    summary = make_summary(["a"], configuration=configuration, guarantees=[])

    assert describe_masking(summary) is None
    assert f"<h2>{HEADING}</h2>" not in render_report(summary)


@pytest.mark.parametrize("mode", ["sequential", "lambda", "joint", "interleaved"])
def test_masked_run_has_one_between_hospitals_and_refusals(make_masked: Make, mode: str) -> None:
    headings = re.findall(r"<h2>(.*?)</h2>", render_report(make_masked({"a": 400}, mode=mode)))

    assert headings[2:5] == ["Hospitals", HEADING, "Participation and refusals"]


@pytest.mark.parametrize(("images", "size", "capacity"), [(64, 2048, 1024), (400, 512, 256), (7, 1, 2), (90, 9, 5000)])
@pytest.mark.parametrize("mode", ["joint", "interleaved"])
def test_shares_agree_with_the_closed_form(
    describe: Callable[..., Masking], images: int, size: int, capacity: int, mode: str
) -> None:
    (row,) = describe({"a": images}, mode=mode, size=str(size), capacity=capacity).rows

    assert row.unmasked.text == alone(images - 1, capacity)
    assert [share.value.text for share in row.masked] == [
        alone(images + size - 1, capacity * multiple) for multiple in (1, 4, 16)
    ]


def test_published_setting_leaves_an_eighth_of_the_images(describe: Callable[..., Masking]) -> None:
    part = describe({"a": 64}, size="2048", capacity=1024)

    assert (part.rows[0].unmasked.text, part.rows[0].masked[0].value.text) == ("0.941", "0.128")
    assert part.rows[0].masked[0].value.title == "0.1271, 8.14 of 64 images"
    assert [re.sub(r"\D", "", bins) for bins in part.bins] == ["1024", "4096", "16384"]


@pytest.mark.parametrize("target", [0.05, 0.2, 0.6])
def test_share_above_the_target_is_flagged_and_no_other(describe: Callable[..., Masking], target: float) -> None:
    part = describe({"a": 64, "b": 3000}, size="2048", capacity=1024, target=target)

    for row, images in zip(part.rows, (64, 3000), strict=True):
        expected = [(1 - 1 / (1024 * multiple)) ** (images + 2047) > target for multiple in (1, 4, 16)]
        assert [share.above for share in row.masked] == expected
        assert row.above == expected[0]
    assert part.target == f"{target:g}"


def test_flags_are_words_on_the_page(make_masked: Make) -> None:
    few, many = rows(render_report(make_masked({"many": 9000, "few": 64})), "masking")

    assert (Page(few).text.count("above target"), Page(many).text.count("above target")) == (4, 2)
    assert few.startswith('<tr class="worst"')
    assert many.startswith("<tr>")


@pytest.mark.parametrize(("images", "capacity", "target"), [(64, 1024, 0.05), (500, 300, 0.2), (4000, 1024, 0.05)])
def test_automatic_size_is_the_fewest_that_reach_the_target_with_one_for_every_step(
    describe: Callable[..., Masking], images: int, capacity: int, target: float
) -> None:
    part = describe({"a": images}, size="auto", capacity=capacity, target=target)

    fewest = next(size for size in range(1, 9999) if (1 - 1 / capacity) ** (images + size - 1) <= target)
    fewest = max(fewest, -(-images // 64))
    assert re.sub(r"\D", "", part.rows[0].synthetic.text) == str(fewest)
    assert part.rows[0].masked[0].value.text == alone(images + fewest - 1, capacity)
    assert not part.rows[0].above
    assert part.figures[1].value.text == "auto"


@pytest.mark.parametrize(
    ("mode", "optimizer", "momentum", "weight"),
    [
        ("interleaved", "adam", 0.0, "1"),
        ("joint", "adam", 0.0, "4"),
        ("lambda", "sgd", 0.0, "1"),
        ("lambda", "sgd", 0.9, "\u2013"),
        ("lambda", "adam", 0.0, "\u2013"),
        ("sequential", "sgd", 0.0, "0.125"),
    ],
)
def test_weight_of_a_synthetic_image_is_that_of_one_epoch(
    describe: Callable[..., Masking], mode: str, optimizer: str, momentum: float, weight: str
) -> None:
    part = describe({"a": 200}, mode=mode, size="512", batch_size=64, optimizer=optimizer, momentum=momentum)

    assert part.rows[0].weight.text == weight


def test_batch_that_a_hospital_cannot_fill_weighs_by_its_images(describe: Callable[..., Masking]) -> None:
    part = describe({"a": 16}, mode="sequential", size="512", batch_size=64)

    assert (part.rows[0].weight.text, part.rows[0].weight.title) == ("0.0312", "16/512")


@pytest.mark.parametrize(("mode", "optimizer"), [("sequential", "sgd"), ("sequential", "adam"), ("lambda", "adamw")])
def test_synthetic_images_of_less_weight_are_not_counted(make_masked: Make, mode: str, optimizer: str) -> None:
    summary = make_masked({"a": 64}, mode=mode, optimizer=optimizer, size="2048", capacity=1024)

    part = describe_masking(summary)

    assert part is not None
    assert not part.counted
    assert [share.value.text for share in part.rows[0].masked] == [alone(63, bins) for bins in (1024, 4096, 16384)]
    assert "so they are not counted" in section(render_report(summary), HEADING)


def test_synthetic_images_of_equal_weight_are_not_said_to_be_left_out(make_masked: Make) -> None:
    assert "not counted" not in section(render_report(make_masked({"a": 64})), HEADING)


@pytest.mark.parametrize(
    ("settings", "lead"),
    [
        ({"mode": "interleaved"}, "every step took the mean over both: in one epoch a synthetic image weighs as much"),
        ({"mode": "joint"}, "in each step, and over one epoch as many times that as there are mini-batches"),
        ({"mode": "sequential"}, "a synthetic image weighs batch size / M of a real one"),
        ({"mode": "lambda", "optimizer": "sgd"}, "in one epoch a synthetic image weighs as much as a real one, under"),
        ({"mode": "lambda", "optimizer": "adam"}, "but not with this optimizer"),
        ({"mode": "{later}"}, "The mode was {later}."),
    ],
)
def test_mode_is_told_in_a_sentence(describe: Callable[..., Masking], settings: dict[str, str], lead: str) -> None:
    part = describe({"a": 64}, **settings)

    assert lead in part.lead


def test_share_is_never_shown_as_nothing(describe: Callable[..., Masking]) -> None:
    (row,) = describe({"a": 500_000}, capacity=16).rows

    assert row.masked[0].value.text == "0.001"


def test_hospital_that_never_enrolled_stands_last_and_has_no_numbers(make_masked: Make) -> None:
    html = render_report(make_masked({"absent": 0, "h10": 50, "h2": 50, "big": 60}))

    assert [Page(row).text.split()[0] for row in rows(html, "masking")] == ["h2", "h10", "big", "absent"]
    assert rows(html, "masking")[-1].count('title="never enrolled">\u2013<') == 7


def test_figures_tell_what_was_asked_for(make_masked: Make) -> None:
    text = section(render_report(make_masked({"a": 64}, size="512", capacity=300, refresh="subset+augment")), HEADING)

    for expected in (
        "Mode interleaved empirical, not differential privacy",
        "Synthetic images per epoch (M) 512",
        "Assumed bins (k) 300 a server chooses, and may have more",
        "Refresh between updates subset+augment",
    ):
        assert expected in text


def test_refresh_is_alarming_where_nothing_changes_between_updates(describe: Callable[..., Masking]) -> None:
    alarming = {
        refresh: describe({"a": 64}, refresh=refresh).figures[3].alarming for refresh in ("none", "augment", "rotate")
    }

    assert alarming == {"none": True, "augment": False, "rotate": False}


def test_caption_says_that_the_numbers_are_counts_and_no_bounds(make_masked: Make) -> None:
    text = section(render_report(make_masked({"a": 64}, target=0.25)), HEADING)

    assert "A count, not a bound" in text
    assert "only one step or one class" in text
    assert "reads more" in text
    assert "above the target of 0.25 are marked" in text
    assert "it cannot verify what a hospital did" in text


@pytest.mark.parametrize(("mechanism", "outside"), [("none", False), ("update-gaussian", False), ("dp-sgd", True)])
def test_both_lists_and_the_account_stand_on_the_page(make_masked: Make, mechanism: str, outside: bool) -> None:
    text = section(render_report(make_masked({"a": 64}, mechanism=mechanism, refresh="rotate")), HEADING)

    does, does_not = text.split("What masking does not protect against")
    assert "What masking does Hospitals were asked to add gradients of synthetic images" in does
    assert "(1 - 1/k)^(n + M - 1), with n training images and M = 2048" in does
    for gap in ("A server with more bins than the 1024 assumed", "(refresh rotate)", "Membership inference"):
        assert gap in does_not
    assert "No epsilon follows from masking" in does_not
    assert ("outside the mechanism" in does_not) == outside


@pytest.mark.parametrize("mode", ["sequential", "lambda", "joint", "interleaved"])
@pytest.mark.parametrize("mechanism", ["none", "dp-sgd"])
def test_section_claims_no_privacy(make_masked: Make, mode: str, mechanism: str) -> None:
    text = section(render_report(make_masked({"a": 64}, mode=mode, mechanism=mechanism)), HEADING)

    assert "not differential privacy" in text
    assert not re.search(r"(?<!not )differential privacy|differentially private|(?<!not )guarantee|zero leakage", text)
    assert not re.search(r"epsilon \d|\bprivate\b|\bsafe\b|\bsecure", text)


def test_table_of_many_hospitals_scrolls_in_its_own_frame(make_masked: Make) -> None:
    html = render_report(make_masked({f"h{index}": 50 + index for index in range(MOST_LINES + 1)}))

    assert html.count('class="card scroll long"') == 2


def test_run_without_hospitals_has_no_table(make_masked: Make) -> None:
    html = render_report(make_masked({}))

    assert f"<h2>{HEADING}</h2>" in html
    assert 'class="masking"' not in html
