"""The audit as one page of HTML that loads nothing, in words for a data protection officer."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from aegis_cache.audit.duplicates import GREY_LEVELS
from aegis_cache.audit.membership import MembershipResult
from aegis_cache.audit.memorization import EVERYTHING, GroupResult, MemorizationReport, Pair
from aegis_cache.audit.shares import Excess
from federation.datasets.image_set import ImageSet

WARNING = "Shown only inside the hospital: contains patient images"
LIMITS = (
    "Nearest-neighbour tests find copies only, they prove nothing: an image may tell of a patient without resembling "
    "any one image of theirs.",
    "This is not differential privacy. No epsilon follows from any number here, however good it looks.",
    "Copies that were shifted, mirrored, scaled or recoloured do not show in pixels; in features they may.",
    "The membership attacks are the plainest ones; a stronger one may do better.",
    "All shares are averages. One patient may be exposed while the average shows nothing.",
    "Intervals take images for independent. Several images of one patient make them too narrow.",
    "The held-out images must be of the same kind as the training images, and unseen; otherwise the baseline is wrong.",
)

_STYLE = """
:root { color-scheme: light dark; --page: #f4f6f8; --card: #fff; --ink: #1b2630; --soft: #55636f; --line: #dbe2e8;
  --bad: #a3241b; --bad-bg: #fdebe8; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #10161c; --card: #182029; --ink: #e7edf2;
  --soft: #a3b1bd; --line: #2c3843; --bad: #ff9d92; --bad-bg: #3b1814; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1, h2, p, li { overflow-wrap: anywhere; }
td, th { overflow-wrap: break-word; max-width: 16rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.6rem; }
p, ul { max-width: 80ch; }
.note, caption { color: var(--soft); font-size: 0.88rem; text-align: left; }
.banner { background: var(--bad-bg); color: var(--bad); border: 1px solid currentColor; border-radius: 10px;
  padding: 0.7rem 1rem; font-weight: 650; print-color-adjust: exact; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.scroll:focus-visible { outline: 3px solid; outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
caption { padding: 0.7rem; }
th, td { padding: 0.45rem 0.7rem; text-align: left; vertical-align: top; border-top: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; }
.pairs { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; padding: 0.7rem; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
figure img { width: 112px; image-rendering: pixelated; }
figcaption { font-size: 0.8rem; color: var(--soft); }
@media print { figure, tr { break-inside: avoid; } .scroll { overflow: visible; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def render_page(
    title: str,
    memorization: MemorizationReport,
    membership: Sequence[MembershipResult],
    *,
    synthetic: ImageSet,
    train: ImageSet,
) -> str:
    """Return the page; it contains private images.

    Args:
        title: heading.
        memorization: what `audit_memorization` found.
        membership: what `audit_membership` found; may be empty.
        synthetic: the images that were audited, uint8, shape (N, C, H, W).
        train: the images they were compared with, uint8, shape (M, C, H, W).
    """
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">',
            f"<title>{html.escape(title)} &ndash; audit &ndash; Aegis FL</title>\n<style>{_STYLE}</style>\n</head>",
            f"<body>\n<main>\n<h1>{html.escape(title)}</h1>\n<p class='banner' role='note'>{WARNING}.</p>",
            "<h2>In short</h2>",
            _bullets(_findings(memorization, membership)),
            "<h2>What this does not prove</h2>",
            _bullets(LIMITS),
            _copies(memorization),
            _closeness(memorization),
            _membership(membership),
            _pairs(memorization.worst, synthetic, train),
            "<footer class='note'><p>This file loads nothing and runs nothing.</p></footer>",
            "</main>\n</body>\n</html>\n",
        ]
    )


def _findings(memorization: MemorizationReport, membership: Sequence[MembershipResult]) -> list[str]:
    copies = memorization.duplicates.found
    lines = [f"Copies: {int(copies.sum())} of {len(copies)} synthetic images repeat a training image pixel by pixel."]
    overall = [result for result in memorization.results if result.group == EVERYTHING]
    lines += [f"Closeness in {_name(result.space)}: {_in_words(result.closer)}" for result in overall]
    for attack in membership:
        found = "tells members better than guessing" if attack.low > 0.5 else "is not clearly better than guessing"
        lines.append(
            f"Membership by {_name(attack.attack)}: AUC {attack.auc:.3f} (95 % interval {attack.low:.3f} to "
            f"{attack.high:.3f}; 0.5 tells nothing): the attack {found}."
        )
    if memorization.untested:
        lines.append(f"Too few images to test closeness: {', '.join(memorization.untested)}.")
    return lines


def _in_words(excess: Excess) -> str:
    verdict = "more than chance explains" if excess.low > 0 else "not clearly more than chance"
    return (
        f"{_percent(excess.synthetic_share)} of the synthetic images lie closer to a training image than the line that "
        f"{_percent(excess.held_out_share)} of fresh images cross: {_interval(excess)}, {verdict}."
    )


def _copies(memorization: MemorizationReport) -> str:
    found = memorization.duplicates
    count = len(found.found)
    rows = [
        ("Every pixel is equal", int(found.exact.sum()), count),
        (f"No pixel differs by more than {GREY_LEVELS} of 255 grey levels", int(found.quantized.sum()), count),
        ("Far closer than any two different training images of the class are", int(found.near.sum()), count),
        ("Any of these", int(found.found.sum()), count),
    ]
    note = "Each synthetic image was compared with all training images. A build refuses such images by default."
    return f"<h2>Copies in pixels</h2>\n<p>{note}</p>" + _table(
        "Fresh images are expected to show none.", ("Kind", "Found", "Of synthetic images"), rows
    )


def _closeness(memorization: MemorizationReport) -> str:
    headings = (
        "Compared in",
        "Class",
        "Train",
        "Synthetic",
        "Held out",
        "Closer than the line",
        "Fresh images",
        "Excess (95 %)",
        "Distance ratio: excess (95 %)",
        "Median distance, fresh = 1 (by chance)",
        "First percentile, fresh = 1 (by chance)",
    )
    note = (
        "Distances of synthetic images to the nearest training image of their class, beside those of fresh images that "
        "nothing was trained on. One half of the fresh images draws the line, so that about 1 % of them lie closer; "
        "the other half shows how many really do. The distance ratio compares the nearest with the second nearest "
        "training image in the same way. Ratios below 1 mean closer than fresh images; beside them stands what one "
        "half of the fresh images shows against the other, which is chance alone."
    )
    return f"<h2>Closeness to training images</h2>\n<p>{note}</p>" + _table(
        "No excess, and ratios near 1, are what fresh images would show.",
        headings,
        [_closeness_row(result) for result in memorization.results],
    )


def _closeness_row(result: GroupResult) -> tuple[object, ...]:
    return (
        _name(result.space),
        result.group,
        result.train,
        result.closer.synthetic,
        result.closer.held_out,
        _percent(result.share_closer),
        _percent(result.closer.held_out_share),
        _interval(result.closer),
        _interval(result.neighbour_ratio),
        f"{_number(result.ratio_of_medians)} ({_number(result.null_ratio_of_medians)})",
        f"{_number(result.ratio_of_first_percentiles)} ({_number(result.null_ratio_of_first_percentiles)})",
    )


def _membership(results: Sequence[MembershipResult]) -> str:
    if not results:
        return "<h2>Membership</h2>\n<p>Not tested.</p>"
    rows = [
        (
            _name(result.attack),
            result.members,
            result.non_members,
            f"{result.auc:.3f} ({result.low:.3f} to {result.high:.3f})",
            f"0.500 ({result.null_low:.3f} to {result.null_high:.3f})",
            f"{result.p_value:.3f}",
            *(
                "too few images"
                if each.share is None
                else f"{_percent(each.share)} ({_percent(each.false_positive_rate)})"
                for each in result.caught
            ),
        )
        for result in results
    ]
    caught = (f"Caught at {_percent(each.false_positive_rate)} false alarms (by chance)" for each in results[0].caught)
    headings = ("Attack", "Members", "Others", "AUC (95 %)", "By chance", "p-value", *caught)
    note = (
        "Somebody who holds the synthetic images, or the generator, guesses of a real image whether it was trained on. "
        "AUC is the chance that a training image looks more like one than a fresh image does."
    )
    return f"<h2>Membership</h2>\n<p>{note}</p>" + _table(
        "AUC near 0.5, and no more caught than false alarms, are what guessing would show.", headings, rows
    )


def _pairs(pairs: Iterable[Pair], synthetic: ImageSet, train: ImageSet) -> str:
    figures = [
        f"<figure>{_picture(synthetic.images[pair.synthetic], 'synthetic')} "
        f"{_picture(train.images[pair.train], 'training')}"
        f"<figcaption>{html.escape(_name(pair.space))}<br>synthetic {pair.synthetic}, training {pair.train}<br>"
        f"{_number(pair.relative_distance)} of the median fresh distance</figcaption></figure>"
        for pair in pairs
    ]
    note = (
        "Left the synthetic image, right its nearest training image. The closest pairs; look whether it is the patient."
    )
    return f"<h2>{WARNING}</h2>\n<p>{note}</p>\n<div class='pairs'>\n" + "\n".join(figures) + "\n</div>"


def _picture(image: NDArray[np.uint8], kind: str) -> str:
    """Return `image`, shape (C, H, W), as a PNG inside the page; of other than three channels, the first is shown."""
    pixels = np.moveaxis(image, 0, -1) if image.shape[0] == 3 else image[0]
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, format="PNG")
    return f'<img alt="{kind} image" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def _table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(heading)}</th>' for heading in headings)
    body = "\n".join(f"<tr>{''.join(f'<td>{html.escape(str(value))}</td>' for value in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(caption)}"><table>'
        f"<caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _bullets(sentences: Iterable[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences) + "\n</ul>"


def _name(identity: str) -> str:
    """Return an identity with its digest shortened to what people compare."""
    name, found, digest = identity.partition(" sha256:")
    return f"{name} ({digest[:8]})" if found else name


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _interval(excess: Excess) -> str:
    return f"{100 * excess.excess:+.1f} points ({100 * excess.low:+.1f} to {100 * excess.high:+.1f})"


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "unbounded"
