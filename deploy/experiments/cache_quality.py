"""How good synthetic images are: what a network learns from them, how they are spread, what gives them away."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch.nn import functional

from aegis_cache.acceptance.brightness import BrightnessTargets
from aegis_cache.acceptance.coverage import measure_coverage
from aegis_cache.audit.memorization import EVERYTHING, audit_memorization
from client_app.training import train_locally
from deploy.experiments.cells import Result
from federation.config import ModelConfig, TrainingConfig
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet, Task
from federation.metrics import evaluate
from federation.models import build_model
from federation.preprocessing import to_unit_interval
from federation.randomness import derive_seed, numpy_stream

_STEPS = 1500
_DETECTOR_EPOCHS = 12
_DETECTOR_IMAGES = 2048
_BATCH = 64
_CPU = torch.device("cpu")
_DETECTED = ("synthetic", "real")


def measure_quality(synthetic: ImageSet, data: Dataset, test: ImageSet, seeds: Sequence[int]) -> Result:
    """Return everything that is measured of synthetic images.

    Args:
        synthetic: drawn from a generator that may have seen `data.train`.
        data: of the hospital; its validation images stand for fresh ones.
        test: images that neither generator nor networks have seen.
        seeds: of the networks.
    """
    aimed = aim(synthetic, data.train)
    accuracies = {
        "real": [train_and_test(data.train, data.info, test, seed) for seed in seeds],
        "synthetic": [train_and_test(synthetic, data.info, test, seed) for seed in seeds],
    }
    real_mean = statistics.fmean(accuracies["real"])
    return {
        "images": len(synthetic),
        "train": len(data.train),
        "accuracy": accuracies,
        "ratios": [accuracy / real_mean for accuracy in accuracies["synthetic"]],
        "coverage": measure_coverage(synthetic.images, data.train.images).as_dict(),
        "aimed-coverage": measure_coverage(aimed.images, data.train.images).as_dict(),
        "detector": [detect(data.train, synthetic, seed) for seed in seeds],
        "aimed-detector": [detect(data.train, aimed, seed) for seed in seeds[:1]],
        "detector-null": [detect(*_halves(data.train, seed), seed) for seed in seeds],
        "texture": {"real": texture(data.train), "synthetic": texture(synthetic)},
        "memorization": _memorization(synthetic, data),
    }


def train_and_test(images: ImageSet, info: DatasetInfo, test: ImageSet, seed: int) -> float:
    """Return the accuracy on `test` of the product's `cnn` after about 1500 steps on `images`."""
    model = build_model(ModelConfig(), info, seed=seed)
    epochs = max(1, round(_STEPS * _BATCH / len(images)))
    plan = TrainingConfig(local_epochs=epochs, batch_size=_BATCH)
    stream = torch.Generator().manual_seed(derive_seed(seed, "quality"))
    train_locally(model, images, info, plan, generator=stream, device=_CPU)
    return evaluate(model, test, info, _CPU).accuracy


def aim(synthetic: ImageSet, train: ImageSet) -> ImageSet:
    """Return the images with brightness aimed at that of `train`."""
    images = BrightnessTargets.of(train).aim(synthetic.images, synthetic.labels, batch=0)
    return ImageSet(images=images, labels=synthetic.labels)


def detect(real: ImageSet, synthetic: ImageSet, seed: int) -> float:
    """Return the AUC at which a network tells real from synthetic images that it has not seen; 0.5 is chance.

    It is the product's `cnn`, trained for twelve epochs on half of up to 4096 images of each kind and tested on the
    other half.
    """
    stream = numpy_stream(seed, "detector")
    count = min(_DETECTOR_IMAGES, len(real) // 2, len(synthetic) // 2)
    parts = [images.images[stream.permutation(len(images))[: 2 * count]] for images in (synthetic, real)]
    train, test = (
        ImageSet(
            images=np.concatenate([part[half * count : (half + 1) * count] for part in parts]),
            labels=np.repeat(np.arange(2), count),
        )
        for half in (0, 1)
    )
    channels, height, width = train.images.shape[1:]
    info = DatasetInfo(
        name="detector", task=Task.MULTICLASS, class_names=_DETECTED, channels=channels, height=height, width=width
    )
    model = build_model(ModelConfig(), info, seed=seed)
    plan = TrainingConfig(local_epochs=_DETECTOR_EPOCHS, batch_size=_BATCH)
    order = torch.Generator().manual_seed(derive_seed(seed, "detector"))
    train_locally(model, train, info, plan, generator=order, device=_CPU)
    with torch.inference_mode():
        parts_seen = to_unit_interval(torch.from_numpy(test.images)).split(256)
        scores = torch.cat([functional.log_softmax(model.eval()(part), dim=1)[:, 1] for part in parts_seen])
    return float(roc_auc_score(test.labels, scores.numpy()))


def texture(images: ImageSet) -> float:
    """Return the mean absolute Laplacian in grey levels: how much fine detail there is."""
    grey = images.images.astype(np.float64).mean(axis=1)
    inner = grey[:, 1:-1, 1:-1]
    around = grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:]
    return float(np.abs(4 * inner - around).mean())


def _halves(images: ImageSet, seed: int) -> tuple[ImageSet, ImageSet]:
    order = numpy_stream(seed, "halves").permutation(len(images))
    return images.take(order[::2]), images.take(order[1::2])


def _memorization(synthetic: ImageSet, data: Dataset) -> dict[str, Any]:
    report = audit_memorization(synthetic, data.train, data.validation, class_names=data.info.class_names, seed=0)
    overall = next(result for result in report.results if result.group == EVERYTHING)
    return {
        "excess": overall.memorized_share,
        "low": overall.closer.low,
        "high": overall.closer.high,
        "share": overall.share_closer,
        "duplicates": int(report.duplicates.found.sum()),
    }
