"""The tables and the plot of the page on masking."""

from __future__ import annotations

import io
import statistics
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from deploy.experiments.cells import Result
from deploy.experiments.masking_costs_page import cost_sections
from deploy.experiments.masking_federations import (
    ADAPTED,
    BALANCED,
    CLAIM_SEEDS,
    CLAIM_SOURCE,
    ELSEWHERE,
    LAST,
    LONG,
    MODES,
    OWN,
    REAL,
    ROUNDS,
    SEEDS,
    SMOOTHED,
    SWEEPS,
    THOROUGH,
    accuracy_name,
    late_mean,
    modes_of,
    size_of,
    sweep_name,
)
from deploy.experiments.masking_history import history_sections
from deploy.experiments.masking_points import deltas_of, signed, spread
from deploy.experiments.masking_sources import STEPS
from deploy.experiments.masking_worth_page import GENERATORS, worth_sections
from federation.durable import write_durably
from federation.occupancy import expected_verbatim_share

Results = dict[str, Result]

_DATA = ("organamnist", "pneumoniamnist")
_CAPACITY = 1024
_EVERY = 2
_ROWS = (
    ("none", ELSEWHERE, OWN),
    ("interleaved", THOROUGH, OWN),
    ("interleaved", THOROUGH, SMOOTHED),
    ("interleaved", ADAPTED, OWN),
    ("interleaved", ADAPTED, SMOOTHED),
    ("interleaved", REAL, OWN),
    ("interleaved", ADAPTED, BALANCED),
    ("interleaved", ELSEWHERE, BALANCED),
    *((mode, ELSEWHERE, OWN) for mode in MODES if mode != "none"),
)


def masking_sections(results: Results) -> list[str]:
    """Return the sections of the page; nothing of what was not measured."""
    return [
        *_accuracies(results),
        *_points_by_round(results),
        *worth_sections(results),
        *_sweeps(results),
        *cost_sections(results),
        *_caveats(),
    ]


def draw_accuracies(results: Results, path: Path) -> None:
    """Write an SVG of accuracy per version, the mean over seeds of each mode, if anything was measured."""
    if not any(_seeds(results, name, *row) for name in _DATA for row in _ROWS):
        return
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(_DATA)), _DATA, strict=True):
        for row in _ROWS:
            curves = [cell["curve"] for cell in _seeds(results, name, *row)]
            if not curves:
                continue
            versions = [point["version"] for point in curves[0]]
            means = [statistics.fmean(point["accuracy"] for point in points) for points in zip(*curves, strict=True)]
            axes.plot(versions, means, marker=".", label=_label(name, *row))
        axes.set(title=name, xlabel="model version", ylabel="test accuracy")
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize="small")
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "aegis", "svg.fonttype": "none"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    write_durably(path, content.getvalue())


def _label(name: str, mode: str, source: str, labels: str) -> str:
    if mode == "none":
        return mode
    marks = [
        f"M={size_of(name, mode)}",
        *([source] if source != ELSEWHERE else []),
        *([labels] if labels != OWN else []),
    ]
    return ", ".join([mode, *marks])


def _seeds(results: Results, name: str, mode: str, source: str, labels: str) -> list[Result]:
    cells = (accuracy_name(name, mode, seed, source=source, labels=labels) for seed in CLAIM_SEEDS[name])
    return [results[cell] for cell in cells if cell in results]


def _accuracies(results: Results) -> list[str]:
    heads = [
        f"{what}, {rounds} rounds" for rounds in (ROUNDS, LONG) for what in ("accuracy", "AUROC", "points of accuracy")
    ]
    rows = [f"| data | mode | generator | labels | M | {' | '.join(heads)} |", "|---" * (5 + len(heads)) + "|"]
    rows += [shown for name in _DATA for row in _ROWS if (shown := _accuracy_row(results, name, *row))]
    if len(rows) == 2:
        return []
    return [
        "## Accuracy",
        f"The setting of arXiv 2609.38339: 100 clients, 10 a round, at most 5 classes each, Adam 1e-3, E=3, B=64. "
        f"{ROUNDS} or {LONG} rounds with seeds {', '.join(map(str, SEEDS))}, and three more of OrganAMNIST without "
        "masking and with `thorough` and `adapted`; mean over "
        f"the last {LAST} versions on the whole test split, in percent, with the deviation over seeds; points: above "
        "no masking, the mean and each seed's. The paper does not say how many rounds it ran; "
        "more are a matter of `ROUNDS` and `LONG` in deploy/experiments/masking_federations.py. Networks compute in "
        "bfloat16 (`training.precision=mixed`) in every row. Synthetic images have labels in the proportions of each "
        "client's own (`as-train`), the same but for an eighth of them that is divided evenly among all classes "
        "(`smoothed`), or equally many of every class there is (`balanced`: nothing of a client's classes shows, and "
        "DP-SGD allows no others), and "
        "come from one of three models: `adapted` learned 27 minutes from training images, "
        "all of PneumoniaMNIST and a sixth of OrganAMNIST, as a consortium might adapt one; `thorough` for "
        f"{STEPS['organamnist']:,} steps, about an hour, from all of OrganAMNIST; "
        "`elsewhere` for nine minutes from the validation split, which no client trains on. `real` are the images of "
        "that split themselves, 6,491 of OrganAMNIST. Either way a client trains "
        "mostly on synthetic images (2048 beside 47 or 346 of its own), so accuracy is theirs before it is masking's: "
        "what a good one knows of other clients, or of classes that a client has not, is a gain, what a poor one gets "
        "wrong a loss. `smoothed` and `balanced` on OrganAMNIST are such gains: a client with 5 of 11 classes no "
        "longer forgets the others while it trains. That is the images' merit, not that of hiding among them, and "
        "`balanced` hides less where a client lacks classes (page on leakage).",
        *history_sections(results),
        "![Accuracy per version](05-masking-accuracy.svg)",
        "\n".join(rows),
        "`joint` computes all M images in every mini-batch; on OrganAMNIST, with six mini-batches a client, it is "
        "measured with M=512. `sequential` is the algorithm as published, which measurement elsewhere shows to protect "
        "hardly at all; accuracy alone says nothing about protection.",
    ]


def _points_by_round(results: Results) -> list[str]:
    """Return how the difference that claims rest on goes with the number of rounds: it is no constant."""
    heads = [f"{name}, {what}" for name in _DATA for what in ("no masking", *map(_tell, _compared(name)))]
    rows = [f"| rounds | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for version in range(LAST + 1, LONG + 1, _EVERY):
        shown = [cell for name in _DATA for cell in _at_round(results, name, version)]
        if any(shown):
            rows.append(f"| {version} | {' | '.join(shown)} |")
    if len(rows) == 2:
        return []
    return [
        "What masking costs is no constant over rounds. Accuracy without masking, and points of `interleaved` above "
        f"it; mean and deviation over seeds, over the last {LAST} versions:",
        "\n".join(rows),
    ]


def _at_round(results: Results, name: str, version: int) -> list[str]:
    plain = [late_mean(found, version) for found in _seeds(results, name, "none", ELSEWHERE, OWN)]
    known = [100 * value for value in plain if value is not None]
    masked = [
        deltas_of(results, name, "interleaved", source, labels=labels, version=version)
        for source, labels in _compared(name)
    ]
    return [spread(known) if known else "", *(signed(deltas) if deltas else "" for deltas in masked)]


def _compared(name: str) -> list[tuple[str, str]]:
    """Return sources and labels of a data set whose cost is shown by rounds: those that claims rest on first."""
    source = CLAIM_SOURCE[name]
    wanted = ((source, SMOOTHED), (source, OWN), (ADAPTED, OWN), (ADAPTED, BALANCED))
    return list(dict.fromkeys(wanted))


def _tell(kind: tuple[str, str]) -> str:
    return f"{GENERATORS[kind[0]]}, {kind[1]}"


def _accuracy_row(results: Results, name: str, mode: str, source: str, labels: str) -> str:
    found = _seeds(results, name, mode, source, labels)
    if not found:
        return ""
    masked = [GENERATORS[source], labels, str(size_of(name, mode))] if mode != "none" else ["-", "-", "0"]
    shown = [f"| {' | '.join([name, mode, *masked])} |"]
    for version in (ROUNDS, LONG):
        for of in ("accuracy", "auroc"):
            values = [100 * value for cell in found if (value := late_mean(cell, version, of=of)) is not None]
            shown.append(f" {spread(values)} |" if values else " |")
        each = [] if mode == "none" else deltas_of(results, name, mode, source, labels=labels, version=version)
        shown.append(
            f" {statistics.fmean(each):+.1f} ({', '.join(f'{value:+.1f}' for value in each)}) |" if each else " |"
        )
    return "".join(shown)


def _sweeps(results: Results) -> list[str]:
    rows = ["| what differs | no masking, % | interleaved, % | points |", "|---|---|---|---|"]
    base = results.get("pneumoniamnist-none-0"), results.get("pneumoniamnist-interleaved-0")
    found = {"nothing (M=2048)": base}
    for label, change in SWEEPS.items():
        own = results.get(sweep_name(label, "none")) if "none" in modes_of(change) else base[0]
        found[label] = own, results.get(sweep_name(label, "interleaved"))
    for label, cells in found.items():
        means = [late_mean(cell, ROUNDS) for cell in cells if cell is not None]
        if len(means) == 2 and means[0] is not None and means[1] is not None:
            first, second = 100 * means[0], 100 * means[1]
            rows.append(f"| {label} | {first:.1f} | {second:.1f} | {second - first:+.1f} |")
    if len(rows) == 2:
        return []
    return [
        "## What else differs",
        "PneumoniaMNIST in the setting above but for one thing, one seed each: a hint of direction, since one seed "
        "moves by several points. Generators: Gaussians that each client fits to its own 47 images on average; real "
        "images of the validation split, repeated where it has fewer than wanted.",
        "\n".join(rows),
    ]


def _caveats() -> list[str]:
    expected = ", ".join(
        f"{size}: {100 * expected_verbatim_share(64, size, _CAPACITY):.1f} %" for size in (0, 512, 1024, 1536, 2048)
    )
    return [
        "## What this page does not say",
        "How well masking protects: that is measured by attacks. Counting alone, a server with k=1024 bins reads of a "
        f"hospital with 64 images, by M: {expected} verbatim, if synthetic images are spread like real ones; a server "
        "with more bins, or with several updates, reads more. Masking is empirical and no differential privacy.",
    ]
