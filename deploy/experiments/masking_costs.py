"""What masking costs: time and memory beside ordinary training, bytes on the wire and in the ledger, and rounding."""

from __future__ import annotations

import gzip
import io
import multiprocessing
import resource
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from aegis_cache.store.cache import Cache, open_cache
from client_app.masking.preparation import Masking
from client_app.masking.synthetic import SyntheticImages
from client_app.training import train_locally
from deploy.experiments.cells import Cell, Result
from deploy.experiments.masking_sources import publish
from federation.config import MaskingConfig, ModelConfig, TrainingConfig
from federation.config.masking_table import MaskingMode
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet, Task
from federation.models import build_model

MODES: tuple[MaskingMode, ...] = ("sequential", "lambda", "joint", "interleaved")
REAL = {"mnist": 600, "cifar": 500}
"""Training images per hospital, as in S1's measurement of times."""

SIZE = 2048
MEMORY_SIZES = (512, 4096)
PIECES = (32, 64, 107, 160, 320)
"""Values of `masking.micro-batch` whose times are compared."""

_PAIRS = 5
_BATCH = 64
_CLASSES = 10
_CPU = torch.device("cpu")
_KIBIBYTE = 1024


def cost_cells(data_root: str) -> list[Cell]:
    """Return the cells that measure time and memory; nothing else may run beside them.

    Args:
        data_root: folder with the subfolders mnist and cifar10.
    """
    cells = []
    for data in REAL:
        for threads in (1, 2):
            for precision in ("full", "mixed"):
                modes = list(MODES) if (threads, precision) == (1, "full") else ["interleaved"]
                cells += [
                    Cell(
                        name=f"time-{data}-{mode}-{threads}-{precision}",
                        compute=measure_time,
                        settings={
                            "data": data,
                            "root": data_root,
                            "mode": mode,
                            "threads": threads,
                            "precision": precision,
                            "pairs": _PAIRS if mode != "joint" else 2,
                        },
                        alone=True,
                    )
                    for mode in modes
                ]
    cells += [
        Cell(
            name=f"pieces-{data}",
            compute=measure_pieces,
            settings={"data": data, "root": data_root, "pieces": list(PIECES), "repetitions": 7},
            alone=True,
        )
        for data in REAL
    ]
    settings = {
        "data": "cifar",
        "root": data_root,
        "modes": ["joint", "interleaved"],
        "sizes": list(MEMORY_SIZES),
        "repetitions": 3,
    }
    return [*cells, Cell(name="memory", compute=measure_memory, settings=settings, alone=True)]


def measure_time(settings: dict[str, Any], folder: Path) -> Result:
    """Return the ratio of both times, pair by pair: masked over unmasked training of one hospital.

    Both train three epochs of the product's own local training on images in memory; with one thread its processor
    time counts, which does not depend on what else runs, else time on the clock.

    Args:
        settings: `data`, `root`, `mode`, `threads`, `precision`, `pairs`.
        folder: not used.
    """
    del folder
    before = torch.get_num_threads()
    torch.set_num_threads(settings["threads"])
    clock = time.thread_time if settings["threads"] == 1 else time.perf_counter
    plan = TrainingConfig(local_epochs=3, batch_size=_BATCH, precision=settings["precision"])
    with tempfile.TemporaryDirectory() as place:
        data, cache = _hospital(settings["data"], settings["root"], Path(place), SIZE)
        masking = _masking(settings["mode"], cache, SIZE)
        pairs = []
        for _ in range(settings["pairs"] + 1):
            plain_s = _time(lambda: _train(data, plan, None), clock)
            pairs.append({"plain_s": plain_s, "masked_s": _time(lambda: _train(data, plan, masking), clock)})
    torch.set_num_threads(before)
    ratios = [pair["masked_s"] / pair["plain_s"] for pair in pairs[1:]]
    return {"pairs": pairs[1:], "ratios": ratios, "median-ratio": statistics.median(ratios)}


def measure_pieces(settings: dict[str, Any], folder: Path) -> Result:
    """Return what an epoch of interleaved masking takes over one without, by `masking.micro-batch`, on one thread.

    Every repetition times all of them once, after a first one that is not counted; each is compared by its median.

    Args:
        settings: `data`, `root`, `pieces`, `repetitions`.
        folder: not used.
    """
    del folder
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    plan = TrainingConfig(batch_size=_BATCH)
    times: dict[int, list[float]] = {piece: [] for piece in (0, *settings["pieces"])}
    with tempfile.TemporaryDirectory() as place:
        data, cache = _hospital(settings["data"], settings["root"], Path(place), SIZE)
        masked = {piece: replace(_masking("interleaved", cache, SIZE), micro_batch=piece) for piece in times if piece}
        for _ in range(settings["repetitions"] + 1):
            for piece, found in times.items():
                found.append(_time(partial(_train, data, plan, masked.get(piece)), time.thread_time))
    torch.set_num_threads(before)
    medians = {piece: statistics.median(found[1:]) for piece, found in times.items()}
    return {
        "epoch-s": {str(piece): found[1:] for piece, found in times.items()},
        "ratios": {str(piece): medians[piece] / medians[0] for piece in settings["pieces"]},
    }


def measure_memory(settings: dict[str, Any], folder: Path) -> Result:
    """Return the peak memory of a process that trains, by mode and number of synthetic images.

    The growth is that of the mode that grows most, over the whole process.

    Args:
        settings: `data`, `root`, `modes`, `sizes`, `repetitions`.
        folder: not used.
    """
    del folder
    context = multiprocessing.get_context("spawn")
    wanted = [("none", 0), *((mode, size) for mode in settings["modes"] for size in settings["sizes"])]
    peaks: dict[str, dict[str, list[int]]] = {mode: {} for mode, _ in wanted}
    for _ in range(settings["repetitions"]):
        for mode, size in wanted:
            with context.Pool(1) as pool:
                found = pool.apply(_peak_bytes, (settings["data"], settings["root"], mode, size))
            peaks[mode].setdefault(str(size), []).append(found)
    small, large = (str(size) for size in settings["sizes"])
    growths = [
        statistics.median(peaks[mode][large]) / statistics.median(peaks[mode][small]) for mode in settings["modes"]
    ]
    return {"peak-bytes": peaks, "growth": max(growths)}


def _peak_bytes(data_name: str, root: str, mode: MaskingMode, size: int) -> int:
    """Train in this process, with a cache on the disk whose size does not depend on `size`; return its peak."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        data, cache = _hospital(data_name, root, Path(place), max(MEMORY_SIZES))
        _train(data, TrainingConfig(batch_size=_BATCH), None if mode == "none" else _masking(mode, cache, size))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE


def _time(work: Callable[[], None], clock: Callable[[], float]) -> float:
    started = clock()
    work()
    return clock() - started


def _train(data: Dataset, plan: TrainingConfig, masking: Masking | None) -> None:
    model = build_model(ModelConfig(), data.info, seed=0).to(memory_format=torch.channels_last)
    generator = torch.Generator().manual_seed(0)
    train_locally(model, data.train, data.info, plan, generator=generator, device=_CPU, masking=masking)


def _masking(mode: MaskingMode, cache: Cache, size: int) -> Masking:
    return Masking(
        mode=mode,
        synthetic=SyntheticImages(cache=cache, chosen=np.arange(size)),
        micro_batch=MaskingConfig().piece_of(size, batch_size=_BATCH, pixels=32 * 32),
        batch_statistics="refuse",
    )


def _hospital(name: str, root: str, place: Path, size: int) -> tuple[Dataset, Cache]:
    """Return a hospital with `REAL[name]` images, and a cache of `size` others of the same data set."""
    stock = _load_mnist(Path(root)) if name == "mnist" else _load_cifar(Path(root))
    order = np.random.default_rng(0).permutation(len(stock))
    held, rest = stock.take(np.sort(order[: REAL[name]])), stock.take(np.sort(order[REAL[name] :][:size]))
    channels, height, width = stock.images.shape[1:]
    info = DatasetInfo(
        name=name,
        task=Task.MULTICLASS,
        class_names=tuple(str(number) for number in range(_CLASSES)),
        channels=channels,
        height=height,
        width=width,
    )
    data = Dataset.of_splits(
        info, {"train": held, "validation": held.take([]), "test": held.take([])}, given_split=True
    )
    publish(place / "cache", rest, data, hospital_id="hospital-000", data_set=name)
    return data, open_cache(place / "cache")


def _load_mnist(root: Path) -> ImageSet:
    """Return MNIST's test images from the files in IDX format: a header of 16 bytes, or 8, then bytes."""
    images = gzip.decompress((root / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((root / "mnist" / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:]
    pixels = np.frombuffer(images, dtype=np.uint8).reshape(-1, 1, 28, 28)
    return ImageSet(images=pixels, labels=np.frombuffer(labels, dtype=np.uint8).astype(np.int64))


def _load_cifar(root: Path) -> ImageSet:
    """Return the images of the subset of CIFAR-10: JPEG files in a folder per class."""
    images, labels = [], []
    with zipfile.ZipFile(root / "cifar10" / "cifar10_jpg_subset.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        classes = sorted({name.split("/")[-2] for name in names})
        for name in names:
            with Image.open(io.BytesIO(archive.read(name))) as image:
                images.append(np.asarray(image.convert("RGB")).transpose(2, 0, 1))
            labels.append(classes.index(name.split("/")[-2]))
    return ImageSet(images=np.stack(images), labels=np.array(labels, dtype=np.int64))
