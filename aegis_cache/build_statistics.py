"""What a build reports about acceptance, and where it refuses to publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aegis_cache.acceptance.budget import Budget
from aegis_cache.acceptance.coverage import Coverage
from federation.errors import GenerationError


def summarize_acceptance(
    class_names: Sequence[str],
    accepted: NDArray[np.int64],
    tallies: Sequence[Mapping[str, Any]],
    budget: Budget | None,
) -> dict[str, Any]:
    """Return how many images of each class were drawn, refused as copies, rejected and accepted, and the budget.

    Args:
        class_names: in the order of the labels.
        accepted: images per class.
        tallies: the notes of every batch: `candidates`, `drawn`, `copies`, `rejected` and `distance`.
        budget: by which images were accepted; None for none.
    """
    totals = {key: np.sum([notes[key] for notes in tallies], axis=0) for key in ("drawn", "copies", "rejected")}
    per_class: dict[str, dict[str, float]] = {
        name: {"accepted": int(accepted[label]), **{key: int(counts[label]) for key, counts in totals.items()}}
        for label, name in enumerate(class_names)
    }
    candidates = sum(notes["candidates"] for notes in tallies)
    rejected = int(totals["rejected"].sum())
    found: dict[str, Any] = {
        "candidates": candidates,
        "copies": int(totals["copies"].sum()),
        "rejected": rejected,
        "acceptance-rate": 1 - (rejected + int(totals["copies"].sum())) / candidates,
        "per-class": per_class,
    }
    if budget is not None:
        found["filter"] = budget.identity
        found["mean-squared-distance"] = sum(notes["distance"] for notes in tallies) / int(accepted.sum())
        for label, limit in budget.limits.items():
            per_class[class_names[label]] |= {"limit": limit, "held-out-mean": budget.held_out_means[label]}
    return found


def require_coverage(coverage: Coverage, *, overlap: float, largest_ks: float, least_overlap: float) -> None:
    """Check that accepted images are spread as real ones are.

    Args:
        coverage: of the accepted images.
        overlap: their `robust_overlap`.
        largest_ks: that brightness and projections may differ by.
        least_overlap: smallest `overlap`.

    Raises:
        GenerationError: they are not; the message says where.
    """
    findings = []
    if coverage.brightness_ks > largest_ks:
        findings.append(f"brightness differs by {coverage.brightness_ks:.3f} > {largest_ks:.3f} (KS)")
    if coverage.projection_ks > largest_ks:
        findings.append(f"a random projection differs by {coverage.projection_ks:.3f} > {largest_ks:.3f} (KS)")
    if overlap < least_overlap:
        findings.append(f"brightness bins overlap {overlap:.2f} < {least_overlap:.2f} of what real images would")
    if findings:
        raise GenerationError(
            f"The accepted images do not cover what real ones do: {'; '.join(findings)}. An attacker recovers more "
            "where they are missing. Nothing was published; accepted images are kept: use --brightness aim or another "
            "generator with --fresh, or accept it with --largest-ks and --least-overlap and --resume."
        )
