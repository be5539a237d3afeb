"""Part of the straggler chapter: the field case, in which the slow hospitals hold most of the data."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from deploy.experiments.async_chapter import Results
from deploy.experiments.async_runs import timed_cell
from deploy.experiments.async_settings import (
    DATA,
    RULES,
    TITLES,
    Settings,
    rates,
    shown,
)
from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim

COMMAND = "aegis experiment straggler --part field"
HOSPITALS = 6
FAST_S, SLOW_S = 900.0, 7200.0
SHARE_OF_TIME = 0.25
ALPHAS = {"pneumonia": 0.5, "organa": 0.3}
DRAWS: dict[str, dict[int, tuple[int, int]]] = {
    "pneumonia": {0: (3, 4), 2: (3, 4), 3: (1, 3), 4: (1, 5), 5: (0, 3)},
    "organa": {0: (0, 1), 1: (0, 3), 6: (0, 3), 7: (1, 2), 10: (1, 2)},
}
"""The first five seeds whose Dirichlet draw gives more than half of the images to two hospitals, and which two."""

RESULTS_PER_HOUR = (HOSPITALS - 2) * 3600 / FAST_S + 2 * 3600 / SLOW_S
ROUNDS = 30
OURS: Settings = {**RULES["ours"], "aggregation.buffer-size": 4}
_AVERAGED = 1 / 3
"""Share of the versions of every arm, the last ones, whose mean is the model: single steps are noisy here."""

RATES: dict[str, dict[str, tuple[float, float]]] = {
    "pneumonia": {"fedavg": (10.0, 1.0), "fedasync": (10.0, 0.3), "fedbuff": (10.0, 1.0), "ours": (10.0, 0.6)},
    "organa": {"fedavg": (10.0, 2.0), "fedasync": (10.0, 0.5), "fedbuff": (10.0, 1.5), "ours": (10.0, 1.2)},
}
"""Local and server learning rates: ours chosen on draws that the table does not use, the others on the class split."""

_DEADLINE = {"aggregation.deadline-s": 1.25 * FAST_S}
_ARMS = ("fedavg", "fedavg-drop", "fedasync", "fedbuff", "ours")
_ARM_TITLES = {
    "fedavg": "FedAvg, all the time",
    "fedavg-drop": "FedAvg that drops who misses the deadline, a quarter of the time",
    "fedasync": "FedAsync, a quarter of the time",
    "fedbuff": "FedBuff, K = 4, a quarter of the time",
    "ours": "ours, a quarter of the time",
}


def field_cells(data_root: str) -> list[Cell]:
    """Return the cells of the field case; `data_root` holds the subfolder `medmnist`."""
    cells = []
    for data, draws in DRAWS.items():
        for seed, slow in draws.items():
            seconds = [SLOW_S if site in slow else FAST_S for site in range(HOSPITALS)]
            for arm in _ARMS:
                settings = field_settings(data, arm)
                name = cell_name(data, arm, seed)
                cells.append(timed_cell(name, settings, seconds=seconds, seed=seed, data_root=data_root))
    return cells


def field_settings(data: str, arm: str) -> Settings:
    """Return the settings of one arm; all but FedAvg make as many versions as fit into a quarter of its time."""
    split = {
        "data.partition": "dirichlet",
        "data.dirichlet-alpha": ALPHAS[data],
        "data.min-examples": 20,
    }
    hours = ROUNDS * SLOW_S / 3600 * SHARE_OF_TIME
    rule = OURS if arm == "ours" else RULES[arm]
    if arm == "fedavg":
        versions = ROUNDS
    elif arm == "fedavg-drop":
        rule, versions = {**rule, **_DEADLINE}, int(hours * 3600 / (1.25 * FAST_S))
    else:
        versions = int(hours * RESULTS_PER_HOUR) // rule.get("aggregation.buffer-size", 1)
    chosen = RATES[data]["fedavg" if arm == "fedavg-drop" else arm]
    ending = {"aggregation.rounds": versions, "aggregation.average-last": int(versions * _AVERAGED)}
    return {**DATA[data], **split, **rule, **ending, **rates(*chosen)}


def cell_name(data: str, arm: str, seed: int) -> str:
    """Return the name of a cell of the field case."""
    return f"field-{data}-{arm}-{seed}"


def slow_recall(cell: Result, slow: Sequence[int]) -> float:
    """Return the macro recall in percent on the test images of the slow hospitals, their mean."""
    return 100 * statistics.fmean(cell["hospitals"][site]["recall"] for site in slow)


def recall_gaps(results: Results, data: str, arm: str) -> dict[int, float]:
    """Return by seed the points by which the slow hospitals' recall is below that of FedAvg at its own end.

    Only runs that ended within a quarter of FedAvg's time count.
    """
    gaps = {}
    for seed, slow in DRAWS[data].items():
        own, base = (results.get(cell_name(data, name, seed)) for name in (arm, "fedavg"))
        if own and base and (arm == "fedavg" or own["virtual_s"] <= SHARE_OF_TIME * base["virtual_s"]):
            gaps[seed] = slow_recall(base, slow) - slow_recall(own, slow)
    return gaps


def field_claims(results: Results) -> list[Claim]:
    """Return the claim: the mean gap of ours on the data set on which it is larger."""
    gaps = {data: recall_gaps(results, data, "ours") for data in DATA}
    known = {
        data: statistics.fmean(values.values()) for data, values in gaps.items() if len(values) == len(DRAWS[data])
    }
    if len(known) < len(DATA):
        return [claim("field_case_recall_gap_points", "<= 1", [], unit="points", command=COMMAND)]
    data = max(known, key=known.__getitem__)
    both = ", ".join(f"{TITLES[name]} {value:.2f}" for name, value in known.items())
    return [
        claim(
            "field_case_recall_gap_points",
            "<= 1",
            list(gaps[data].values()),
            unit="points",
            command=COMMAND,
            seeds=list(gaps[data]),
            note=f"{both}; the larger one counts; macro recall on the slow hospitals' test images, FedAvg at its end "
            "minus ours after a quarter of that time",
            cells=[cell_name(data, arm, seed) for seed in gaps[data] for arm in ("ours", "fedavg")],
        )
    ]


def field_section(results: Results) -> Sequence[str]:
    """Return the section of the page; empty when nothing was measured."""
    rows = [row for data in DATA for arm in _ARMS if (row := _row(results, data, arm))]
    if not rows:
        return []
    heads = (
        "data",
        "algorithm",
        "recall, slow hospitals",
        "below FedAvg",
        "accuracy",
        "hours",
        "updates, slow one",
    )
    ours = "; ".join(f"{TITLES[data]}: {shown(field_settings(data, 'ours'), but=DATA[data])}" for data in DATA)
    return [
        "## The field case: two of six hospitals are slow and hold most of the data",
        f"A task takes {FAST_S / 60:g} minutes at four hospitals and {SLOW_S / 3600:g} hours at the two that hold more "
        f"than half of the images together ({_shares(results)}); Dirichlet draws "
        f"{', '.join(f'{TITLES[data]} {ALPHAS[data]:g}' for data in DATA)}, the first five with such a pair. Recall is "
        'the mean over classes, on the slow hospitals\' own test images, in percent; "below FedAvg" in points against '
        f"FedAvg at its own end, same seed. The model of every arm is the mean of the last third of its versions. "
        f"Learning rates of ours were chosen on other draws, those of the others on the class split. Ours: {ours}.",
        "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows]),
    ]


def _row(results: Results, data: str, arm: str) -> str:
    found = {seed: results[name] for seed in DRAWS[data] if (name := cell_name(data, arm, seed)) in results}
    if not found:
        return ""
    slow = DRAWS[data]
    gaps = list(recall_gaps(results, data, arm).values())
    updates = [cell["hospitals"][site]["updates"] for seed, cell in found.items() for site in slow[seed]]
    cells = (
        TITLES[data],
        _ARM_TITLES[arm],
        _mean([slow_recall(cell, slow[seed]) for seed, cell in found.items()]),
        _mean(gaps) if gaps and arm != "fedavg" else "",
        _mean([100 * cell["curve"][-1][1] for cell in found.values()]),
        f"{statistics.fmean(cell['virtual_s'] for cell in found.values()) / 3600:.1f}",
        f"{statistics.fmean(updates):.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _shares(results: Results) -> str:
    """Return how much of the images the slow hospitals hold, by data set."""
    texts = []
    for data, draws in DRAWS.items():
        shares = []
        for seed, slow in draws.items():
            if cell := results.get(cell_name(data, "fedavg", seed)):
                examples = [hospital["examples"] for hospital in cell["hospitals"]]
                shares.append(100 * sum(examples[site] for site in slow) / sum(examples))
        if shares:
            texts.append(f"{TITLES[data]} {min(shares):.0f} to {max(shares):.0f} %")
    return ", ".join(texts)


def _mean(values: Sequence[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.2f} ± {spread:.2f}"
