"""Further sections of the page on leakage: what each is about in words, and its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.experiments.cells import Result
from deploy.experiments.leakage_cells import (
    EPSILON,
    MECHANISMS,
    OPTIMIZERS,
    PAPER,
    PROTECTIONS,
    REAL_IMAGES,
    STOPS,
    SUMS,
)
from deploy.experiments.leakage_grid import CAPACITY
from federation.occupancy import expected_verbatim_share

Results = dict[str, Result]
RR18, RR24, RR30, RR40, CALIBRATED = range(5)
"""Places of the thresholds in a report."""

_CRAFTED = {"crafted": "crafted", "strong-noise": "crafted, rows with noise of 0.3 or 1 of their length"}


def further_sections(results: Results) -> list[str]:
    """Return the sections on local training, adaptive servers, other defences, sums, and the model guard."""
    return [*_deltas(results), *_adaptive(results), *_defences(results), *_sums(results), *_guard(results)]


def share(rate: Mapping[str, Any]) -> str:
    """Return a rate in percent with its interval."""
    found = rate["recovered"]
    return f"{100 * found['share']:.1f} ({100 * found['low']:.1f}-{100 * found['high']:.1f})"


def height(rate: Mapping[str, Any]) -> float:
    """Return the share of images of a rate."""
    return float(rate["recovered"]["share"])


def _best(found: Result, threshold: int = RR30) -> tuple[str, Result]:
    """Return the attack of a cell that reads most at a threshold, and what it found."""
    return max(found.items(), key=lambda item: height(item[1]["oracle"]["rates"][threshold]))


def _deltas(results: Results) -> list[str]:
    rows = ["| optimizer | E | masking | M | RR18, % | RR30, % | mean PSNR, dB | by | naive read-out, RR30 |"]
    rows.append("|---" * 9 + "|")
    for optimizer, epochs in OPTIMIZERS:
        for label, (mode, size) in PROTECTIONS.items():
            found = results.get(f"delta-{optimizer}-{epochs}-{label}")
            if found is None:
                continue
            attack, best = _best(found)
            naive = [item for name, item in found.items() if "adam" not in name and "calibrated" not in name]
            told = share(naive[0]["oracle"]["rates"][RR30]) if naive else ""
            rates = best["oracle"]["rates"]
            rows.append(
                f"| {optimizer} | {epochs} | {mode} | {size} | {share(rates[RR18])} | {share(rates[RR30])} | "
                f"{best['oracle']['psnr-db']:.1f} | {attack} | {told} |"
            )
    if len(rows) == 2:
        return []
    return [
        "## What local training leaves",
        "PneumoniaMNIST; the difference of parameters after the shipped client's own local training, 64 images, "
        "learning rate 1e-3, k=1024 in the hidden layer of `mlp`. The server scales the layer behind the bins on its "
        "own images so that local steps hardly move the bins, and undoes Adam (solved for one step; made linear, by "
        "gradients far below its epsilon, for several). The best of three movements. Adam alone is no defence.",
        "\n".join(rows),
    ]


def _adaptive(results: Results) -> list[str]:
    rows = ["| server | refresh | RR18, % | RR30, % | verbatim, % |", "|---|---|---|---|---|"]
    cells = [("adaptive-bins", "none"), ("adaptive-classes", "none")]
    cells += [(f"adaptive-{kind}-{refresh}", refresh) for kind in ("rounds", "difference") for refresh in STOPS]
    for cell, refresh in cells:
        for attack, item in (results.get(cell) or {}).items():
            rates = item["oracle"]["rates"]
            rows.append(
                f"| {attack} | {refresh} | {share(rates[RR18])} | {share(rates[RR30])} | "
                f"{100 * item['verbatim'] / item['images']:.1f} |"
            )
    if len(rows) == 2:
        return []
    return [
        "## A server that spends more",
        f"PneumoniaMNIST, `interleaved`, M={PAPER}, gradient mode, a perfect generator (`subset`: the adapted one): "
        "more bins; fresh random directions in every round, an image counting as read if any round shows it; and the "
        "difference of two rounds with the same bins and other real images, in which a cache that is used again "
        "cancels. `subset` takes another half of twice as many images each round, `augment` changes each a little: "
        "both stop the difference. Against more bins and more rounds neither helps: more synthetic images do, the "
        "model guard sees the planted layer, and differential privacy bounds what any number of rounds can tell.",
        _by_class(),
        "\n".join(rows),
    ]


def _by_class() -> str:
    """Return what counting says of a server that hears one class an update."""
    fourth, whole = (expected_verbatim_share(REAL_IMAGES // part, PAPER // part, CAPACITY) for part in (4, 1))
    return (
        "`classes-2`: an update for each of the two classes, in which images of the other leave nothing (class "
        "fishing, arXiv 2202.00580), an image counting as read if either shows it. Its bin is then shared by the "
        "n_a + M_a images of its class, real and synthetic, and not by all n + M: by counting, with "
        f"k={CAPACITY}, a class that a quarter of both are of is read to {100 * fourth:.1f} % where all together are "
        f"to {100 * whole:.1f} %. What hides a class are synthetic images of that class; those of others do nothing."
    )


def _defences(results: Results) -> list[str]:
    names = sorted(name for name in results if name.startswith("defence-"))
    if not names:
        return []
    kinds = list(results[names[0]])
    rows = [f"| defence | {' | '.join(f'RR30, %: {kind}' for kind in kinds)} | worst of all |"]
    rows.append("|---" * (len(kinds) + 2) + "|")
    for name in names:
        each = [share(results[name][kind]["oracle"]["rates"][RR30]) if kind in results[name] else "" for kind in kinds]
        worst = share(_best(results[name])[1]["oracle"]["rates"][RR30])
        rows.append(f"| {name.removeprefix('defence-')} | {' | '.join(each)} | {worst} |")
    return [
        "## Other defences",
        "PneumoniaMNIST, one gradient of 64 images, no masking; re-implemented from their papers. A defence is worth "
        "what its worst row says: pruning kills cumulative bins and leaves sparse ones alone. The server does not "
        "adapt to them; against noise of a fixed size (GradDefense, Outpost) it would make its gradients larger.",
        "\n".join(rows),
        *_mechanisms(results),
    ]


def _mechanisms(results: Results) -> list[str]:
    """Return the shipped mechanisms beside the same attacks without them."""
    rows = ["| mechanism | worst RR18, % | worst RR30, % | by |", "|---|---|---|---|"]
    for mechanism in MECHANISMS:
        found = results.get(f"mechanism-{mechanism}")
        if found is not None:
            attack, item = _best(found)
            rows.append(
                f"| {mechanism} | {share(_best(found, RR18)[1]['oracle']['rates'][RR18])} | "
                f"{share(item['oracle']['rates'][RR30])} | {attack} |"
            )
    if len(rows) == 2:
        return []
    return [
        f"The shipped mechanisms: one release at epsilon {EPSILON:g}, delta 1e-5, clip norm 1, one step of SGD at 1e-3 "
        "on 64 images. The server calibrates its layer so that gradients are small, or as large as the clip norm lets "
        "through. The first row is the same attacks without a mechanism: without it, zeros below would say nothing.",
        "\n".join(rows),
    ]


def _sums(results: Results) -> list[str]:
    rows = ["| attack | masking | M | images | RR18, % | RR30, % | verbatim, % |", "|---|---|---|---|---|---|---|"]
    wanted = [(f"loki-{clients}", label) for clients in SUMS for label in PROTECTIONS]
    wanted += [("scale-mia", label) for label in PROTECTIONS]
    for attack, label in wanted:
        found = results.get(f"{attack}-{label}")
        if found is None:
            continue
        item = found[attack]
        rates, (mode, size) = item["oracle"]["rates"], PROTECTIONS[label]
        rows.append(
            f"| {attack} | {mode} | {size} | {item['images']} | {share(rates[RR18])} | {share(rates[RR30])} | "
            f"{100 * item['verbatim'] / item['images']:.1f} |"
        )
    if len(rows) == 2:
        return []
    ceiling = results.get("scale-mia-ceiling")
    told = ""
    if ceiling is not None:
        told = (
            f" Its decoder's ceiling, images encoded and decoded without any attack: mean {ceiling['psnr-db']:.1f} dB, "
            f"RR18 {100 * ceiling['rr18']:.1f} %, RR30 {100 * ceiling['rr30']:.1f} %."
        )
    return [
        "## Through the sum, and without a change of architecture",
        "LOKI (arXiv 2303.12233) sends every hospital channels of its own, so that a sum over hospitals hides nobody; "
        "only the sum is seen. Scale-MIA (arXiv 2311.05808) changes parameters of the CNN alone and decodes what its "
        f"512 hidden units say.{told}",
        "\n".join(rows),
    ]


def guard_results(results: Results) -> tuple[Results, Results]:
    """Return the cells on models that were trained, and those on models that were crafted."""
    found = {name: item for name, item in results.items() if name.startswith("guard-")}
    trained = {name: item for name, item in found.items() if "inspected" in item}
    return trained, {name: item for name, item in found.items() if name not in trained}


def _guard(results: Results) -> list[str]:
    trained, crafted = guard_results(results)
    if not trained and not crafted:
        return []
    rows = ["| models | looked at | refused |", "|---|---|---|"]
    for name, item in trained.items():
        rows.append(f"| trained: {name.removeprefix('guard-')} | {item['inspected']} | {len(item['alarms'])} |")
    for name, item in crafted.items():
        data = name.removeprefix("guard-").removesuffix("-crafted")
        for kind, label in _CRAFTED.items():
            rows.append(f"| {label}: {data} | {item[kind]['made']} | {item[kind]['found']} |")
    return [
        "## The model guard",
        "Every version of local and federated training must pass, with and without noise; every crafted model must be "
        "refused, also with its units permuted, noised, scaled, and mixed with ordinary ones. Thresholds were set on "
        "other trainings of the same networks and data sets.",
        "\n".join(rows),
        *_evasion(results),
    ]


def _evasion(results: Results) -> list[str]:
    """Return what bins still read whose rows are noised to evade the guard."""
    found = results.get("adaptive-evasion")
    if found is None:
        return []
    rates = {attack.rpartition("noise-")[2]: item["hungarian"]["rates"][RR30] for attack, item in found.items()}
    told = "; ".join(f"noise {noise}: {share(rate)} %" for noise, rate in rates.items())
    return [
        "A server that knows the guard can noise the rows of its bins. What it then reads of 64 unprotected images, "
        "RR30 under Hungarian pairing (noise moves images to other bins than the oracle says), by the noise over the "
        f"length of a row: {told}."
    ]
