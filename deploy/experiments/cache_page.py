"""The tables and the plot of the page on the cache."""

from __future__ import annotations

import io
import statistics
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from deploy.experiments.cache_builds import BRIGHTNESS, build_cell_name
from deploy.experiments.cache_generators import (
    FEW_IMAGES,
    FULL_MINUTES,
    HOSPITALS,
    MINUTES,
    generator_cell_name,
)
from deploy.experiments.cells import Result
from federation.durable import write_durably

Results = dict[str, Result]

_OTHER_RECIPE = (
    "The other recipe is a UNet on space-to-depth pixels alone, with a truncated loss and 25 steps that end at a noise "
    "of 12 grey levels: it shows what this detector finds."
)


def cache_sections(results: Results) -> list[str]:
    """Return the sections of the page; nothing of what was not measured."""
    return [*_generators(results), *_curve(results), *_builds(results), *_caveats(results)]


def draw_quality(results: Results, path: Path) -> None:
    """Write an SVG of accuracy ratio and detector's AUC against minutes of training, if anything was measured."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    drawn = False
    for name, images in (*((name, 0) for name in HOSPITALS), ("pneumoniamnist", FEW_IMAGES)):
        points = [
            (minutes, results[cell])
            for minutes in MINUTES
            if (cell := generator_cell_name(name, images, minutes)) in results
        ]
        if not points:
            continue
        drawn = True
        label = f"{name}, {points[0][1]['train']} images"
        times = [minutes for minutes, _ in points]
        left.plot(times, [statistics.fmean(found["ratios"]) for _, found in points], marker="o", label=label)
        right.plot(times, [statistics.fmean(found["detector"]) for _, found in points], marker="o", label=label)
    if not drawn:
        return
    left.axhline(1, color="0.5", linewidth=0.8)
    left.set(xlabel="minutes of training, one core", ylabel="accuracy, synthetic over real")
    right.axhline(0.5, color="0.5", linewidth=0.8)
    right.set(xlabel="minutes of training, one core", ylabel="AUC of a detector (chance 0.5)", ylim=(0.45, 1.02))
    left.legend(fontsize="small")
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "aegis", "svg.fonttype": "none"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    write_durably(path, content.getvalue())


def _generators(results: Results) -> list[str]:
    """Return the table of generators (the ablation of arXiv 2609.38339, appendix F)."""
    rows = [
        "| data | generator | trained, min | images per s | accuracy ratio | brightness KS | projections KS | bin "
        "overlap, relative | detector AUC | memorized, excess | copies |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in HOSPITALS:
        cells = {
            "diffusion": generator_cell_name(name, 0, FULL_MINUTES),
            "gaussian": f"gaussian-{name}",
            "folder (real images of others)": f"folder-{name}",
            "another diffusion recipe, for comparison": f"reference-{name}",
        }
        rows += [_generator_row(name, kind, results[cell]) for kind, cell in cells.items() if cell in results]
        rows.append(f"| {name} | stable-diffusion | not measured | | | | | | | | |")
    if len(rows) == 2 + len(HOSPITALS):
        return []
    return [
        "## Generators",
        "\n".join(rows),
        "Ratio: accuracy on the test split of a network trained on synthetic images alone over one trained on the "
        "hospital's real ones. Detector: a network that tells real from synthetic images, on images it has not seen; "
        "0.5 is chance. Memorized: share of images nearer to a training image than the first percentile of held-out "
        "ones, above what other held-out images show; slices of the same patients, which hospitals of one data set "
        "share when it is divided image by image, count as near. Stable Diffusion was not measured: its weights (5 GB) "
        "and a GPU are not on this machine; its code is tested with a small pipeline. The leakage of each generator's "
        "cache is measured with the attacks.",
        *([_OTHER_RECIPE] if any(f"reference-{name}" in results for name in HOSPITALS) else []),
    ]


def _generator_row(name: str, kind: str, found: Result) -> str:
    coverage, memorization = found["coverage"], found["memorization"]
    return (
        f"| {name} | {kind} | {found['training-min']:.1f} | {_pace(found)} | "
        f"{_spread(found['ratios'])} | {coverage['brightness-ks']:.3f} | {coverage['projection-ks']:.3f} | "
        f"{coverage['occupancy-overlap']:.2f} | {_spread(found['detector'])} | {memorization['excess']:+.3f} "
        f"({memorization['low']:+.3f} to {memorization['high']:+.3f}) | {memorization['duplicates']} |"
    )


def _curve(results: Results) -> list[str]:
    rows = [
        "| data | training images | minutes | steps | accuracy ratio | brightness KS | bin overlap, relative | "
        "detector AUC | texture, of real |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, images in (*((name, 0) for name in HOSPITALS), ("pneumoniamnist", FEW_IMAGES)):
        for minutes in MINUTES:
            found = results.get(generator_cell_name(name, images, minutes))
            if found:
                texture = found["texture"]["synthetic"] / found["texture"]["real"]
                coverage = found["coverage"]
                rows.append(
                    f"| {name} | {found['train']} | {minutes:g} | {found['steps']} | {_spread(found['ratios'])} | "
                    f"{coverage['brightness-ks']:.3f} | {coverage['occupancy-overlap']:.2f} | "
                    f"{_spread(found['detector'])} | {texture:.2f} |"
                )
    if len(rows) == 2:
        return []
    return [
        "## Quality against minutes of training",
        "![Quality against minutes](04-cache-quality.svg)",
        "\n".join(rows),
        "Minutes are processor time of one thread. Every row is a training of its own, whose learning rate falls along "
        "its budget. A hospital with 300 images moves them about by up to two pixels. Texture: mean absolute "
        "Laplacian.",
    ]


def _builds(results: Results) -> list[str]:
    rows = [
        "| data | brightness | minutes | candidates | accepted | brightness KS | projections KS | bin overlap, "
        "relative | real images that share a bin |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in HOSPITALS:
        for brightness in BRIGHTNESS:
            found = results.get(build_cell_name(name, brightness))
            if found:
                acceptance, coverage = found["acceptance"], found["acceptance"]["coverage"]
                rows.append(
                    f"| {name} | {brightness} | {found['minutes']:.2f} | {acceptance['candidates']} | "
                    f"{acceptance['acceptance-rate']:.0%} | {coverage['brightness-ks']:.3f} | "
                    f"{coverage['projection-ks']:.3f} | {coverage['occupancy-overlap']:.2f} | "
                    f"{coverage['protected']:.0%} |"
                )
    if len(rows) == 2:
        return []
    return [
        "## Builds",
        "\n".join(rows),
        "2,048 images, nearest pairs in the features of a network trained on the hospital's images, 95 % of held-out "
        "images would pass. Perfect images would share a bin with 86 % of the real ones.",
    ]


def _caveats(results: Results) -> list[str]:
    if not results:
        return []
    return [
        "## What this does not show",
        "Masking is an empirical defence, no differential privacy; the generators learned from private images, and no "
        "epsilon holds for updates masked with them. The detector and the tests for copies find what they look for: "
        "that they find little proves nothing about better ones. One training per generator; the spread is over the "
        "seeds of the networks that judge it. The test split of PneumoniaMNIST is shifted against its training split.",
    ]


def _spread(values: list[float]) -> str:
    mean = f"{statistics.fmean(values):.3f}"
    return f"{mean} ± {statistics.stdev(values):.3f}" if len(values) > 1 else mean


def _pace(found: Result) -> str:
    return f"{found['images-per-s']:.0f}" if found["training-min"] else "-"
