"""A planted layer of bins reads exactly the real images that are alone in their bin: masking fills bins, if it weighs.

The attack is that of Fowl et al. (arXiv 2110.13057, section 4): rows with one direction and rising thresholds, so that
the difference of two neighbouring rows' gradients holds the images between their thresholds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aegis_cache.store.cache import open_cache
from client_app.masking.preparation import Masking
from client_app.masking.synthetic import SyntheticImages
from client_app.training import train_locally
from federation.config import TrainingConfig
from federation.config.masking_table import MaskingMode
from federation.datasets.image_set import DatasetInfo, ImageSet, Task
from tests.client_app.masking.made_up_caches import CLASS_NAMES, make_cache

BINS, REAL, SYNTHETIC, SIDE = 160, 4, 128, 6
INFO = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=CLASS_NAMES, channels=1, height=SIDE, width=SIDE)


class Planted(nn.Module):
    """Bins of brightness in front of a layer whose columns are alike, so that every row of an image weighs the same."""

    def __init__(self, thresholds: Tensor) -> None:
        super().__init__()
        self.bins = nn.Linear(SIDE * SIDE, BINS, dtype=torch.float64)
        self.output = nn.Linear(BINS, len(CLASS_NAMES), dtype=torch.float64)
        with torch.no_grad():
            self.bins.weight.fill_(1 / SIDE**2)
            self.bins.bias.copy_(-thresholds)
            self.output.weight.copy_(torch.tensor([[1e-3], [2e-3], [-1e-3]]).expand(-1, BINS))
            self.output.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.output(self.bins(images.flatten(1).double()).relu())
        return logits.float()


def make_images(count: int, seed: int) -> ImageSet:
    """Return images whose brightness spreads evenly over the bins, all of one class."""
    draw = np.random.default_rng(seed)
    bright = draw.integers(60, 180, (count, 1, 1, 1))
    images = (bright + draw.integers(-50, 50, (count, 1, SIDE, SIDE))).clip(0, 255).astype(np.uint8)
    return ImageSet(images=images, labels=np.zeros(count, dtype=np.int64))


def brightness(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1).astype(np.float64).mean(axis=1) / 255


def read_update(folder: Path, mode: MaskingMode, seed: int) -> tuple[ImageSet, np.ndarray, np.ndarray, np.ndarray]:
    """Return the real images, the bin of each, how many images share it, and what a server reads of each bin."""
    real, synthetic = make_images(REAL, seed), make_images(SYNTHETIC, 1000 + seed)
    everything = np.sort(brightness(np.concatenate([real.images, synthetic.images])))
    thresholds = torch.from_numpy(np.linspace(everything[0] - 1e-6, everything[-1], BINS + 1)[:-1])
    make_cache(folder, images=SYNTHETIC, shape=(1, SIDE, SIDE), labels=synthetic.labels, fill=synthetic.images)
    masking = Masking(
        mode=mode,
        synthetic=SyntheticImages(cache=open_cache(folder), chosen=np.arange(SYNTHETIC)),
        micro_batch=50,
        batch_statistics="refuse",
    )
    model = Planted(thresholds)
    plan = TrainingConfig(optimizer="sgd", learning_rate=1e-6, batch_size=REAL)
    before = [parameter.detach().clone() for parameter in model.bins.parameters()]
    stream = torch.Generator().manual_seed(seed)
    train_locally(model, real, INFO, plan, generator=stream, device=torch.device("cpu"), masking=masking)
    weight, bias = (old - new.detach() for old, new in zip(before, model.bins.parameters(), strict=True))
    edges = thresholds.numpy()
    homes, others = (np.searchsorted(edges, brightness(part.images), side="left") - 1 for part in (real, synthetic))
    crowd = np.bincount(np.concatenate([homes, others]), minlength=BINS)
    rows = torch.cat([weight - torch.roll(weight, -1, 0), (bias - torch.roll(bias, -1, 0))[:, None]], dim=1)
    rows[-1] = torch.cat([weight[-1], bias[-1:]])
    return real, homes, crowd[homes], (rows[:, :-1] / rows[:, -1:]).numpy()


def psnr_db(found: np.ndarray, image: np.ndarray) -> float:
    error = float(((found - image.reshape(-1) / 255) ** 2).mean())
    return 200.0 if error == 0 else -10 * np.log10(error)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", ["joint", "interleaved", "lambda"])
def test_image_is_read_verbatim_exactly_when_no_other_image_is_in_its_bin(
    tmp_path: Path, mode: MaskingMode, seed: int
) -> None:
    real, homes, crowd, read = read_update(tmp_path / "cache", mode, seed)

    quality = [psnr_db(read[home], image) for home, image in zip(homes, real.images, strict=True)]

    assert [value > 60 for value in quality] == [count == 1 for count in crowd]
    assert all(value < 30 for value, count in zip(quality, crowd, strict=True) if count > 1)


@pytest.mark.parametrize("seed", range(6))
def test_published_algorithm_leaves_a_shared_bin_nearly_as_readable_as_one_of_its_own(
    tmp_path: Path, seed: int
) -> None:
    real, homes, crowd, read = read_update(tmp_path / "cache", "sequential", seed)

    shared = [
        psnr_db(read[home], image) for home, image, count in zip(homes, real.images, crowd, strict=True) if count == 2
    ]

    assert all(quality > 30 for quality in shared)


def test_bins_are_shared_often_enough_for_these_tests_to_say_something(tmp_path: Path) -> None:
    crowds = np.concatenate([read_update(tmp_path / f"cache-{seed}", "joint", seed)[2] for seed in range(6)])

    assert (crowds == 1).sum() >= 2
    assert (crowds == 2).sum() >= 2
    assert (crowds > 2).sum() >= 2
