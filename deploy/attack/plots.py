"""One plot: the share of images read against the threshold, with intervals, beside what a guess reaches."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from deploy.attack.rows import LeakageRow
from federation.durable import write_durably


def draw_recovery(rows: Sequence[LeakageRow], path: Path) -> None:
    """Write an SVG of `rows`, which are of one setting, to `path`.

    Raises:
        OSError: the volume refused.
    """
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.add_subplot()
    for number, row in enumerate(rows):
        rates = sorted(row.rates, key=lambda rate: rate.threshold_db)
        shares = 100 * np.array([rate.share for rate in rates])
        ends = 100 * np.array([[rate.share - rate.low, rate.high - rate.share] for rate in rates]).T
        places = [rate.threshold_db + 0.12 * number for rate in rates]
        axes.errorbar(places, shares, yerr=ends.clip(min=0), marker="o", capsize=2, linewidth=1, label=row.attack)
    guesses = sorted((rate.threshold_db, 100 * rate.guessed) for rate in rows[0].rates)
    axes.plot(*zip(*guesses, strict=True), "k--", label="no update: best foreign image")
    data, training, defence = rows[0].setting
    axes.set(xlabel="threshold, PSNR in dB", ylabel="real images read, %", ylim=(-2, 102))
    axes.set_title(f"{data}, {training}, defence: {defence}; {rows[0].images} images, 95 % intervals", fontsize="small")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.01, 0.5))
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "aegis", "svg.fonttype": "none"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    write_durably(path, content.getvalue())
