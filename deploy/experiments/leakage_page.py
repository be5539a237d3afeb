"""The tables of the page on leakage, and what they mean in words."""

from __future__ import annotations

from dataclasses import dataclass

from deploy.experiments.cells import Result
from deploy.experiments.leakage_cells import (
    AUTO,
    CAUTION,
    CAUTIOUS,
    CHEST,
    HELD,
    PAPER,
    PROTECTIONS,
    SIZES,
    SOURCES,
    TARGET,
    class_name,
    crowded_name,
    label_name,
    table_name,
)
from deploy.experiments.leakage_chapters import CALIBRATED, RR18, RR30, further_sections, height, share
from deploy.experiments.leakage_grid import CAPACITY
from deploy.experiments.leakage_sources import DATA, MATCHED, REAL
from deploy.experiments.masking_federations import BALANCED, OWN, SMOOTHED
from federation.occupancy import expected_verbatim_share

Results = dict[str, Result]
STRICT = "best-foreign"
_NAMES = ("18 dB", "24 dB", "30 dB", "40 dB", "tau*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """The worst that any attack reaches above a null.

    Attributes:
        points: percentage points.
        attack: which.
        threshold: at which.
    """

    points: float
    attack: str
    threshold: str

    def in_words(self) -> str:
        """Return it in a few words."""
        return f"{self.points:.1f} ({self.attack}, {self.threshold})"


def widest_excess(found: Result, null: str = STRICT) -> Excess:
    """Return the worst excess over `null` of any attack of a cell, at any threshold."""
    return max(
        (
            Excess(points=100 * rate["excess"][null], attack=attack, threshold=name)
            for attack, item in found.items()
            for rate, name in zip(item["oracle"]["rates"], _NAMES, strict=True)
        ),
        key=lambda item: item.points,
    )


def leakage_sections(results: Results) -> list[str]:
    """Return the sections of the page; nothing of what was not measured."""
    return [
        *_in_words(results),
        *_known(results),
        *_tables(results),
        *_labels(results),
        *further_sections(results),
        *_caveats(),
    ]


def _in_words(results: Results) -> list[str]:
    none, masked = results.get("known-none"), results.get(f"known-lambda-{PAPER}")
    if none is None or masked is None:
        return []
    plain, hidden = next(iter(none.values())), next(iter(masked.values()))
    nulls = plain["nulls"]
    foreign, scaled = (100 * nulls[name]["rates"][RR18]["recovered"]["share"] for name in (STRICT, "scaled-mean"))
    shown = [100 * item["oracle"]["rates"][RR18]["recovered"]["share"] for item in (plain, hidden)]
    verbatim = [100 * item["verbatim"] / item["images"] for item in (plain, hidden)]
    return [
        "## What this says",
        f"- **Without any defence a server reads {verbatim[0]:.0f} % of the images of one batch of 64 exactly**, by "
        "planting bins of brightness. It needs to change parameters only, if the agreed network begins with a fully "
        "connected layer.\n"
        "- **Aegis hides an image by putting a synthetic one into the same bin.** What stays readable is what counting "
        f"says: {verbatim[1]:.0f} % of the images with M={PAPER} where a server has 1024 bins. It protects only where "
        "real and synthetic images weigh the same in one optimizer step (`interleaved`, `joint`). As published "
        "(`sequential`) it protects hardly at all.\n"
        "- **It does not protect against a server that spends more**: more bins, fresh bins in every round, an update "
        "for each class, in which no image of another one hides anything, or the difference of two rounds with the "
        "same synthetic images. More synthetic images, the refresh of the cache and the model guard make each of these "
        "harder or visible; none of them is a bound. Only differential privacy is.\n"
        "- **18 dB, the paper's measure, misleads on chest X-rays.** Without any update at all the best of 1148 "
        f"foreign images passes it for {foreign:.0f} % of images, and the mean image made as bright as the bin says "
        f"for {scaled:.0f} %. Undefended, {shown[0]:.0f} % pass; under Aegis {shown[1]:.0f} %: that looks like a leak "
        "and is none. What is read lies above 30 dB, where no guess comes. A rate without its null says nothing.",
    ]


def _known(results: Results) -> list[str]:
    rows = ["| masking | M | RR18, % | RR30, % | verbatim, % | by counting, % | mean PSNR, dB | re-identified, % |"]
    rows.append("|---" * 8 + "|")
    for label, size in [("none", 0), *((mode, size) for mode in ("lambda", "sequential") for size in SIZES)]:
        found = results.get("known-none" if label == "none" else f"known-{label}-{size}")
        if found is None:
            continue
        item = next(iter(found.values()))
        rates, told = item["oracle"]["rates"], item["oracle"]["identified"]
        counted = 100 * expected_verbatim_share(64, size, 1024)
        named = "" if told is None else f"{100 * told['share']:.1f}"
        rows.append(
            f"| {label} | {size} | {share(rates[RR18])} | {share(rates[RR30])} | "
            f"{100 * item['verbatim'] / item['images']:.1f} | {counted:.1f} | {item['oracle']['psnr-db']:.1f} | "
            f"{named} |"
        )
    if len(rows) == 2:
        return []
    return [
        "## What is known, again",
        "PneumoniaMNIST, one gradient of 64 images, k=1024 bins of brightness in front of the CNN (arXiv 2110.13057), "
        "synthetic images replaced by real ones that are not attacked: a perfect generator. RR30: share of images "
        "read with a PSNR above 30 dB, paired by the bin that each must show up in (oracle), with its 95 % Wilson "
        "interval; verbatim: above 60 dB. By counting: (1 - 1/k)^(B+M-1).",
        "\n".join(rows),
        "![Share of images read against M](06-leakage-size.svg)",
        "![Share of images above each PSNR](06-leakage-curves.svg)",
        "![Originals and what was read](06-leakage-pictures.png)",
    ]


def _tables(results: Results) -> list[str]:
    rows = ["| data | synthetic images | masking | M | RR18 | RR30 | tau*, dB | RR at tau* | worst excess, points | "]
    rows[0] += "over the scaled mean |"
    rows.append("|---" * 10 + "|")
    for data in DATA:
        for label, (mode, size) in PROTECTIONS.items():
            for source in SOURCES if mode != "none" else (REAL,):
                found = results.get(table_name(data, source, label))
                if found is not None:
                    beside = results.get(crowded_name(data, label), {}) if source == MATCHED else {}
                    rows.append(_table_row(data, source, mode, size, found | beside))
    if len(rows) == 2:
        return []
    return [
        "## The paper's tables, again",
        "One gradient of 64 images; the worst, threshold by threshold, of the attacks of a single round with k=1024: "
        "bins in front of the CNN (cumulative, sparse) and in the hidden layer of `mlp`, of brightness, of a random "
        "direction, of a cosine, and of the direction that tells real from generated images best, with three ways of "
        "setting thresholds; with matched moments also bins for a crowd: a server that knows how many images there are "
        "makes 1022 bins as narrow as one image and gives up the rest, which reads k/(e(B+M)) of them and is the best "
        "of all once M is large. `generator`: a diffusion model adapted to training images, as a consortium would "
        "(RetinaMNIST with M below "
        f"{CAUTIOUS}: one of nine minutes of training, not 27); `matched`: the same with `aegis cache build "
        "--match-moments`, which brings mean and covariance to the hospital's own and so takes most of such directions "
        "away; `real`: images of the training split that are not attacked, as far as there are enough. tau*: what the "
        "best of 2048 foreign images (PneumoniaMNIST 1148, RetinaMNIST 520) passes in one case of a hundred. Excess: "
        "above the best foreign image, which is a guess that knows the answer, and above the mean image scaled to the "
        "brightness of the bin. "
        f"M={AUTO} is `masking.size=auto` for a server with {CAPACITY} bins and a target of {100 * TARGET:g} %, "
        f"M={CAUTIOUS} for one with {CAUTION * CAPACITY}. In one batch `joint` and `interleaved` are the same.",
        "\n".join(rows),
        *_detectors(results),
    ]


def _labels(results: Results) -> list[str]:
    """Return whether synthetic images of all classes hide those of a hospital that has a few as well as its own do."""
    rows = ["| labels | RR18 | RR30 | tau*, dB | RR at tau* | worst excess, points | over the scaled mean |"]
    rows.append("|---" * 7 + "|")
    rows += [
        f"| {labels}{mark} | {_table_cells(found)} |"
        for name, mark in ((label_name, ""), (class_name, ", one class an update"))
        for labels in (OWN, SMOOTHED, BALANCED)
        if (found := results.get(name(labels)))
    ]
    if len(rows) == 2:
        return []
    return [
        "## Hospitals with few classes",
        f"OrganAMNIST, `generator`, `interleaved`, M={PAPER}, the attacks above but for the crowd's, against 64 images "
        f"of {HELD} of 11 classes. The server knows which, has images of other people of these alone, and sets its "
        "bins by them. Synthetic images have labels in the victims' proportions (`as-train`), an eighth of them "
        "divided evenly among all classes instead (`smoothed`), or all (`balanced`), so that less than half are of "
        "classes that the hospital has. `one class an "
        f"update`: instead of these attacks one that takes {HELD} updates of the same images, each for one of the "
        "hospital's classes, in which images of other classes leave nothing; an image counts as read if any update "
        "shows it. By counting it shares its bin with the n_a + M_a images of its class alone.",
        "\n".join(rows),
    ]


def _detectors(results: Results) -> list[str]:
    """Return how well synthetic images are told from real ones."""
    rows = ["| data | synthetic images | by a network | along the best direction |", "|---|---|---|---|"]
    for data in DATA:
        for source in SOURCES[:2]:
            found = results.get(f"detector-{data}-{source}")
            if found is not None:
                area, linear = (sum(found[kind]) / len(found[kind]) for kind in ("area", "linear"))
                rows.append(f"| {data} | {source} | {area:.2f} | {linear:.2f} |")
    if len(rows) == 2:
        return []
    return [
        "Whether a server that has 1024 images of the same generator, and images of other people, tells victims from "
        "caches that it never saw: the area under the ROC curve (0.5 is guessing) of a small network trained on them, "
        "and of Fisher's direction. Where a direction tells them apart, bins along it hold real images alone, and no "
        "number of synthetic ones helps: RetinaMNIST's generator shows it. Matched moments take most of it away.",
        "\n".join(rows),
    ]


def _table_row(data: str, source: str, mode: str, size: int, found: Result) -> str:
    return f"| {data} | {source if mode != 'none' else '-'} | {mode} | {size} | {_table_cells(found)} |"


def _table_cells(found: Result) -> str:
    rates = [max((item["oracle"]["rates"][k] for item in found.values()), key=height) for k in range(5)]
    tau = next(iter(found.values()))["tau-star-db"]
    return (
        f"{share(rates[RR18])} | {share(rates[RR30])} | {tau:.1f} | {share(rates[CALIBRATED])} | "
        f"{widest_excess(found).in_words()} | {widest_excess(found, 'scaled-mean').in_words()}"
    )


def _caveats() -> list[str]:
    return [
        "## What this page does not say",
        "- Rates are what these attacks read of these images; no rate is a bound, and a rate of zero has an interval.\n"
        "- Images of one batch share bins, and those of one patient look alike; intervals take them for independent.\n"
        "- The real hospital's epoch is longer than one batch of 64, which costs a server more than some defences do.\n"
        "- Optimisation attacks, membership inference and learned perceptual distances (LPIPS needs weights from "
        f"elsewhere) are not on this page. All of it but the tables of data sets is {CHEST}.\n"
        "- Aegis is empirical masking and no differential privacy.",
    ]
