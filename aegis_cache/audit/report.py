"""What an audit leaves behind: a page for people inside the hospital, and numbers as JSON without any image."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aegis_cache.audit.duplicates import FACTOR, GREY_LEVELS
from aegis_cache.audit.membership import MembershipResult
from aegis_cache.audit.memorization import GroupResult, MemorizationReport
from aegis_cache.audit.page import LIMITS, render_page
from federation.datasets.image_set import ImageSet
from federation.durable import write_durably

PAGE, NUMBERS = "audit.html", "audit.json"

_FORMAT = "aegis-audit-1"
# With fewer images the first percentile is the distance of one or two of them.
_FEWEST_FOR_PERCENTILE = 100


def as_dict(memorization: MemorizationReport, membership: Sequence[MembershipResult]) -> dict[str, Any]:
    """Return the numbers for JSON: shares, quotients and intervals of groups, never an image, an index or a distance.

    First percentiles of groups of fewer than 100 images are left out (None), because they are values of single images.

    Not guaranteed: differential privacy, of any kind. The numbers depend on private images without noise.
    """
    copies = memorization.duplicates
    return {
        "format": _FORMAT,
        "copies": {
            "synthetic": len(copies.found),
            "exact": int(copies.exact.sum()),
            "quantized": int(copies.quantized.sum()),
            "near": int(copies.near.sum()),
            "any": int(copies.found.sum()),
            "grey_levels": GREY_LEVELS,
            "default_factor": FACTOR,
        },
        "closeness": [_group_as_dict(result) for result in memorization.results],
        "untested_classes": list(memorization.untested),
        "membership": [asdict(result) | {"null_auc": 0.5} for result in membership],
        "limits": list(LIMITS),
    }


def write_report(
    folder: Path,
    *,
    title: str,
    memorization: MemorizationReport,
    membership: Sequence[MembershipResult],
    synthetic: ImageSet,
    train: ImageSet,
) -> None:
    """Write `audit.html`, which contains patient images, and `audit.json` into `folder`, both with mode 0600.

    Args:
        folder: must exist.
        title: of the page.
        memorization: what `audit_memorization` found.
        membership: what `audit_membership` found; may be empty.
        synthetic: the images that were audited.
        train: the images they were compared with.

    Raises:
        OSError: a file cannot be written; there is the old one or none then.
    """
    page = render_page(title, memorization, membership, synthetic=synthetic, train=train)
    numbers = json.dumps(as_dict(memorization, membership), indent=2, allow_nan=False)
    write_durably(folder / PAGE, page.encode(), mode=0o600)
    write_durably(folder / NUMBERS, f"{numbers}\n".encode(), mode=0o600)


def _group_as_dict(result: GroupResult) -> dict[str, Any]:
    enough = min(result.closer.synthetic, result.closer.held_out) >= _FEWEST_FOR_PERCENTILE
    return {
        "space": result.space,
        "group": result.group,
        "train": result.train,
        "ratio_of_medians": _finite(result.ratio_of_medians),
        "null_ratio_of_medians": _finite(result.null_ratio_of_medians),
        "ratio_of_first_percentiles": _finite(result.ratio_of_first_percentiles) if enough else None,
        "null_ratio_of_first_percentiles": _finite(result.null_ratio_of_first_percentiles) if enough else None,
        "closer": asdict(result.closer),
        "neighbour_ratio": asdict(result.neighbour_ratio),
        "share_closer": result.share_closer,
        "memorized_share": result.memorized_share,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
