"""The plots of the page on leakage."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from deploy.experiments.cells import Result
from deploy.experiments.leakage_cells import CHEST, PAPER, SIZES
from deploy.experiments.leakage_grid import picture_name
from deploy.experiments.leakage_sources import REAL
from federation.durable import write_durably
from federation.occupancy import expected_verbatim_share

Results = dict[str, Result]
_RR18, _RR30 = 0, 2
_COLUMNS = 8


def draw_leakage(results: Results, folder: Path, pictures: Path) -> None:
    """Write the plots of what was measured into `folder`, and a grid of pictures kept in `pictures`.

    A plot whose histograms or pictures were made elsewhere, and are not on the page, stays as it is.
    """
    if "known-none" not in results:
        return
    _save(_draw_sizes(results), folder / "06-leakage-size.svg")
    if _has_histograms(results):
        _save(_draw_curves(results), folder / "06-leakage-curves.svg")
    if (figure := _draw_pictures(pictures)) is not None:
        _save(figure, folder / "06-leakage-pictures.png")


def _save(figure: Figure, path: Path) -> None:
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "aegis", "svg.fonttype": "none"}):
        kind = path.suffix[1:]
        figure.savefig(content, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    write_durably(path, content.getvalue())


def _draw_sizes(results: Results) -> Figure:
    """Return the share of images read against M, with intervals, and what counting says."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    counted = np.linspace(0, PAPER, 100)
    axes.plot(counted, [100 * expected_verbatim_share(64, int(size), 1024) for size in counted], "k:", label="counting")
    for mode, marker in (("lambda", "o"), ("sequential", "s")):
        for threshold, name in ((_RR18, "RR18"), (_RR30, "RR30")):
            cells = [(0, "known-none"), *((size, f"known-{mode}-{size}") for size in SIZES)]
            found = [(size, next(iter(results[cell].values()))) for size, cell in cells if cell in results]
            rates = [item["oracle"]["rates"][threshold]["recovered"] for _, item in found]
            shares = np.array([rate["share"] for rate in rates]) * 100
            ends = np.array([[rate["share"] - rate["low"], rate["high"] - rate["share"]] for rate in rates]).T * 100
            axes.errorbar([size for size, _ in found], shares, yerr=ends, marker=marker, label=f"{mode}, {name}")
    null = next(iter(results["known-none"].values()))["nulls"]["scaled-mean"]["rates"][_RR18]["recovered"]["share"]
    axes.axhline(100 * null, color="grey", linestyle="--", label="RR18 of the scaled mean image, no update")
    axes.set(xlabel="synthetic images M", ylabel="images read, %", ylim=(0, 102), title="PneumoniaMNIST, B=64, k=1024")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def _has_histograms(results: Results) -> bool:
    names = ["known-none", *(f"known-{mode}-{PAPER}" for mode in ("sequential", "lambda"))]
    found = [next(iter(results[name].values())) for name in names if name in results]
    return all("histogram" in item["oracle"] for item in found)


def _draw_curves(results: Results) -> Figure:
    """Return the share of images whose PSNR exceeds each threshold, with and without masking, beside the nulls."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    none = next(iter(results["known-none"].values()))
    curves = {"no defence": none["oracle"]}
    for mode in ("sequential", "lambda"):
        if f"known-{mode}-{PAPER}" in results:
            curves[f"{mode}, M={PAPER}"] = next(iter(results[f"known-{mode}-{PAPER}"].values()))["oracle"]
    curves |= {f"no update: {name}": null for name, null in none["nulls"].items()}
    for name, found in curves.items():
        counts = np.array(found["histogram"])
        above = 100 * counts[::-1].cumsum()[::-1] / counts.sum()
        edges = np.arange(len(counts)) * found["histogram-width-db"]
        axes.step(edges, above, where="post", label=name, linestyle=":" if name.startswith("no update") else "-")
    axes.set(xlabel="PSNR, dB", ylabel="images above, %", xlim=(0, 100), ylim=(0, 102))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def _draw_pictures(pictures: Path) -> Figure | None:
    """Return originals and what was read of them under three settings; None where nothing is kept."""
    attack = "rtf-cumulative-front-k1024"
    marks = {"no defence": "none-0", "sequential": f"sequential-{PAPER}", "lambda": f"lambda-{PAPER}"}
    kept = {name: pictures / picture_name(CHEST, REAL, mark, attack) for name, mark in marks.items()}
    if not all(path.is_file() for path in kept.values()):
        return None
    rows: dict[str, np.ndarray[Any, Any]] = {}
    for name, path in kept.items():
        with np.load(path) as stored:
            rows.setdefault("original", stored["real"])
            rows[name] = stored["read"]
    figure = Figure(figsize=(_COLUMNS, 1.15 * len(rows) + 0.4), layout="constrained")
    figure.suptitle("Test data: PneumoniaMNIST (CC BY 4.0), public images", fontsize="small")
    grid = figure.subplots(len(rows), _COLUMNS)
    for line, (name, images) in zip(grid, rows.items(), strict=True):
        for axes, image in zip(line, images, strict=False):
            axes.imshow(np.nan_to_num(image[0]).clip(0, 1), cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize="small")
    return figure
