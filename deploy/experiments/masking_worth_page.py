"""The table of what images of each generator are worth, beside what masking with them costs."""

from __future__ import annotations

import statistics

from deploy.experiments.cells import Result
from deploy.experiments.masking_federations import ADAPTED, ELSEWHERE, LONG, REAL, ROUNDS, THOROUGH
from deploy.experiments.masking_points import deltas_of, signed, spread
from deploy.experiments.masking_sources import MINUTES, PER_CLASS, STEPS
from deploy.experiments.masking_worth import IMAGES, worth_name

Results = dict[str, Result]

GENERATORS = {ADAPTED: "adapted", THOROUGH: "thorough", ELSEWHERE: "elsewhere", REAL: "real"}
"""What the page calls each source."""

_BUDGETS = {ADAPTED: f"{MINUTES[ADAPTED]:g} min", ELSEWHERE: f"{MINUTES[ELSEWHERE]:g} min"}


def worth_sections(results: Results) -> list[str]:
    """Return what a network learns from the images of each generator, beside what masking with them costs."""
    rows = [
        "| data | generator | trained | learned from its images, % | from as many real ones, % | ratio "
        f"| points, {ROUNDS} rounds | points, {LONG} rounds |",
        "|---" * 8 + "|",
    ]
    for name in PER_CLASS:
        for source in (ELSEWHERE, ADAPTED, THOROUGH):
            found = results.get(worth_name(name, source))
            if found is None:
                continue
            synthetic, real = ([100 * value for value in found[kind]] for kind in ("synthetic", "real"))
            points = [deltas_of(results, name, "interleaved", source, version=version) for version in (ROUNDS, LONG)]
            shown = [
                name,
                GENERATORS[source],
                _BUDGETS.get(source, f"{STEPS.get(name, 0):,} steps"),
                spread(synthetic),
                spread(real),
                f"{statistics.fmean(synthetic) / statistics.fmean(real):.3f}",
                *(signed(each) if each else "" for each in points),
            ]
            rows.append(f"| {' | '.join(shown)} |")
    if len(rows) == 2:
        return []
    return [
        "What the images of a generator are worth, and what masking with them costs (`interleaved`, `as-train`). A "
        f"network learned from {IMAGES:,} of them alone, another as long from as many real ones; accuracy on the "
        "validation split, three seeds. `elsewhere` has learned from that split, which flatters it. Minutes are of "
        "processor time, of which a machine that is busy beside makes fewer steps: 27 of them were 2,800 to 5,100. On "
        "the test split the ratios after 27 minutes were 0.999 and 0.975 (page on the cache).",
        "\n".join(rows),
    ]
