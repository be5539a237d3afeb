"""Which settings the leakage experiment measures, by part."""

from __future__ import annotations

from attacks import registry
from attacks.attack import Attack
from attacks.defences.registry import BASELINES
from deploy.experiments.cells import Cell
from deploy.experiments.leakage_grid import CAPACITY, SEEDS, leakage_cell, measure_ceiling, measure_detector
from deploy.experiments.leakage_sources import DATA, GENERATED, MATCHED, REAL
from deploy.experiments.masking_federations import BALANCED, OWN, SMOOTHED
from federation.occupancy import smallest_size

CHEST = "pneumoniamnist"
_CHEST_CLASSES = 2
SIZES = (512, 1024, 1536, 2048)
PAPER = 2048
REAL_IMAGES = 64
TARGET = 0.05
CROWDED = ("interleaved", "interleaved-auto", "interleaved-cautious")
AUTO = smallest_size(REAL_IMAGES, CAPACITY, TARGET)
CAUTION = 3
CAUTIOUS = smallest_size(REAL_IMAGES, CAUTION * CAPACITY, TARGET)
"""`masking.size = "auto"` where a server of k=1024 bins is expected, and where `CAUTION` times as many are."""

PROTECTIONS = {
    "none": ("none", 0),
    "sequential": ("sequential", PAPER),
    "lambda": ("lambda", PAPER),
    "interleaved": ("interleaved", PAPER),
    "interleaved-auto": ("interleaved", AUTO),
    "interleaved-cautious": ("interleaved", CAUTIOUS),
}
"""Masking by name: mode and M. With one mini-batch "joint" and "interleaved" are the same."""

OPTIMIZERS = (("sgd", 1), ("sgd", 3), ("adam", 1), ("adam", 3))
EPSILON = 8.0
SUMS = (10, 100)
MECHANISMS = ("none", "dp-sgd", "update-gaussian")
STOPS = ("none", "subset", "augment")


def calibration_cells(root: str) -> list[Cell]:
    """Return the cells that reproduce what is known of masking: chest X-rays and a perfect generator."""
    plain = [_name(registry.SINGLE_ROUND[0])]
    cells = [leakage_cell("known-none", CHEST, root, [*plain, _name(registry.SINGLE_ROUND[1])], identify=True)]
    for mode in ("lambda", "sequential"):
        cells += [leakage_cell(f"known-{mode}-{size}", CHEST, root, plain, masking=mode, size=size) for size in SIZES]
    return cells


def table_cells(root: str) -> list[Cell]:
    """Return a cell per data set, source of synthetic images, and masking: all single-round attacks with k=1024."""
    names = [_name(attack) for attack in registry.SINGLE_ROUND]
    asked = {"root": root, "seeds": list(SEEDS)}
    detectors = [
        Cell(
            name=f"detector-{data}-{source}",
            compute=measure_detector,
            settings={"data": data, "source": source, **asked},
        )
        for data in DATA
        for source in (GENERATED, MATCHED)
    ]
    crowded = [
        leakage_cell(
            crowded_name(data, label),
            data,
            root,
            [_name(attack)],
            source=MATCHED,
            masking=PROTECTIONS[label][0],
            size=PROTECTIONS[label][1],
        )
        for data in DATA
        for label, attack in zip(CROWDED, registry.CROWDED, strict=True)
    ]
    return [*detectors, *crowded] + [
        leakage_cell(table_name(data, source, label), data, root, names, source=source, masking=mode, size=size)
        for data in DATA
        for label, (mode, size) in PROTECTIONS.items()
        for source in (SOURCES if mode != "none" else (REAL,))
        if label == "none" or _is_measured(data, source, label, size)
    ]


HELD = 5
"""Classes of a hospital of OrganAMNIST in the setting of arXiv 2609.38339, of 11."""


def label_cells(root: str) -> list[Cell]:
    """Return the cells of a hospital with few classes: synthetic images of its own classes, or of all alike.

    Against each stand the attacks of a single round, and the one that hears one of the hospital's classes a round.
    """
    every = [_name(attack) for attack in registry.SINGLE_ROUND]
    by_class = [_name(registry.BY_CLASS[HELD])]
    return [
        leakage_cell(
            name(labels),
            "organamnist",
            root,
            attacks,
            source=GENERATED,
            masking="interleaved",
            size=PAPER,
            classes=HELD,
            labels=labels,
        )
        for name, attacks in ((label_name, every), (class_name, by_class))
        for labels in (OWN, SMOOTHED, BALANCED)
    ]


def label_name(labels: str) -> str:
    """Return the name of a cell of `label_cells` on the attacks of a single round."""
    return f"skewed-organamnist-{labels}"


def class_name(labels: str) -> str:
    """Return the name of a cell of `label_cells` on one class a round, which belongs beside that of `label_name`."""
    return f"classes-organamnist-{labels}"


SOURCES = (GENERATED, MATCHED, REAL)
_BOUNDS = ("interleaved", "interleaved-auto")
"""What is also measured with a perfect generator, as far as there are real images for it."""

_MOST_REAL = {"pneumoniamnist": 4196, "organamnist": 30_000, "retinamnist": 568}
"""Real images of the training split that 512 victims leave over."""


def crowded_name(data: str, label: str) -> str:
    """Return the name of the cell on bins for a crowd, which belongs beside that of `table_name` with `MATCHED`."""
    return f"crowded-{data}-{label}"


def _is_measured(data: str, source: str, label: str, size: int) -> bool:
    if source == REAL:
        return label in _BOUNDS and size <= _MOST_REAL[data]
    return source == GENERATED or label in CROWDED


def table_name(data: str, source: str, label: str) -> str:
    """Return the name of a cell of `table_cells`."""
    return f"table-{data}-{label}" if label == "none" else f"table-{data}-{source}-{label}"


def delta_cells(root: str) -> list[Cell]:
    """Return a cell per optimizer, local epochs and masking: what the shipped client's own training leaves."""
    return [
        leakage_cell(
            f"delta-{optimizer}-{epochs}-{label}",
            CHEST,
            root,
            [_name(attack) for attack in _against(optimizer, epochs)],
            masking=mode,
            size=size,
            mode="delta",
            optimizer=optimizer,
            epochs=epochs,
        )
        for optimizer, epochs in OPTIMIZERS
        for label, (mode, size) in PROTECTIONS.items()
        if size <= PAPER
    ]


def _against(optimizer: str, epochs: int) -> tuple[Attack, ...]:
    if optimizer == "sgd":
        return registry.CALIBRATED
    return (registry.SINGLE_ROUND[2], *registry.ADAM_LINEAR, *(registry.ADAM_INVERSE if epochs == 1 else ()))


def adaptive_cells(root: str) -> list[Cell]:
    """Return the cells of a server that spends more: bins, rounds, one class a round, the difference of two rounds."""
    masked = {"masking": "interleaved", "size": PAPER}
    cells = [
        leakage_cell("adaptive-bins", CHEST, root, [_name(attack) for attack in registry.MANY_BINS], **masked),
    ]
    by_class = [_name(registry.BY_CLASS[_CHEST_CLASSES])]
    cells.append(leakage_cell("adaptive-classes", CHEST, root, by_class, **masked))
    cells.append(leakage_cell("adaptive-evasion", CHEST, root, [_name(attack) for attack in registry.EVASIVE]))
    for refresh in STOPS:
        rounds, spare = [_name(attack) for attack in registry.MANY_ROUNDS], _spare(refresh)
        cells.append(leakage_cell(f"adaptive-rounds-{refresh}", CHEST, root, rounds, refresh=refresh, **spare))
        again = {"refresh": refresh, "renewed": True, "batches": 4, **spare}
        cells.append(leakage_cell(f"adaptive-difference-{refresh}", CHEST, root, [_name(registry.DIFFERENCE)], **again))
    return cells


def _spare(refresh: str) -> dict[str, str | int]:
    """Return masking whose cache the training split has real images for; "subset" draws from twice as many."""
    return {"masking": "interleaved", "size": PAPER, "source": GENERATED if refresh == "subset" else REAL}


_SLOW = ("soteria-50",)
"""A backward pass for each of the CNN's 512 features makes a step of these 170 times as slow: in `mlp` only."""


def defence_cells(root: str) -> list[Cell]:
    """Return a cell per defence that is no masking, each against cumulative and sparse bins."""
    both = [_name(attack) for attack in registry.SINGLE_ROUND[:3]]
    cells = [
        leakage_cell(f"defence-{name}", CHEST, root, both[2:] if name in _SLOW else both, baselines=[name])
        for name in BASELINES
        if name != "none"
    ]
    sgd = {"mode": "delta", "optimizer": "sgd", "epsilon": EPSILON}
    loud = [_name(attack) for attack in registry.CLIPPED]
    return cells + [
        leakage_cell(f"mechanism-{mechanism}", CHEST, root, loud, mechanism=mechanism, **sgd)
        for mechanism in MECHANISMS
    ]


_LOKI_DATA = {10: CHEST, 100: "organamnist"}
"""A hundred hospitals of 64 images need more than PneumoniaMNIST has."""


def sum_cells(root: str) -> list[Cell]:
    """Return the cells of attacks on the sum over hospitals, and of the one that changes parameters of a CNN only."""
    cells = [
        leakage_cell(
            f"loki-{clients}-{label}",
            _LOKI_DATA[clients],
            root,
            [registry.LOKI[clients].name],
            clients=clients,
            batches=2 if clients == SUMS[0] else 1,
            seeds=[0, 1, 2],
            masking=mode,
            size=size,
        )
        for clients in SUMS
        for label, (mode, size) in PROTECTIONS.items()
        if label == "none" or (label == "interleaved" and clients == SUMS[0])
    ]
    cells.append(Cell(name="scale-mia-ceiling", compute=measure_ceiling, settings={"data": CHEST, "root": root}))
    for label in ("none", "interleaved"):
        mode, size = PROTECTIONS[label]
        cells.append(leakage_cell(f"scale-mia-{label}", CHEST, root, [registry.SCALE_MIA], masking=mode, size=size))
    return cells


def _name(attack: Attack) -> str:
    return attack.name
