"""The autoencoder is trained once, goes on where it stopped, and is refused where it belongs to other images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attacks.linear_leakage import autoencoder as module
from attacks.linear_leakage.autoencoder import FILE, Autoencoder, decode_all, encode_all, train_autoencoder
from federation.durable import write_durably
from federation.errors import DataError
from tests.attacks.linear_leakage.made_up_victims import make_images, make_info

INFO = make_info()
AUXILIARY = make_images(40, 3, INFO)


class InterruptedTrainingError(Exception):
    """Somebody pulled the plug."""


def test_training_brings_images_back_better_than_their_mean(tmp_path: Path) -> None:
    smooth = np.broadcast_to(make_images(40, 3, make_info(side=1)), (40, 1, 8, 8)).astype(np.float32)

    network = train_autoencoder(smooth, INFO, tmp_path, steps=80, seed=0)

    error = np.square(decode_all(network, encode_all(network, smooth).astype(np.float64)) - smooth).mean()
    assert error < 0.2 * smooth.var()


def test_interrupted_training_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SAVE_EVERY", 2)
    whole = train_autoencoder(AUXILIARY, INFO, tmp_path / "whole", steps=5, seed=0)
    write: Any = write_durably
    written: list[Path] = []

    def write_once(path: Path, content: object) -> None:
        if written:
            raise InterruptedTrainingError
        written.append(path)
        write(path, content)

    monkeypatch.setattr(module, "write_durably", write_once)
    with pytest.raises(InterruptedTrainingError):
        train_autoencoder(AUXILIARY, INFO, tmp_path / "broken", steps=5, seed=0)
    monkeypatch.setattr(module, "write_durably", write)

    resumed = train_autoencoder(AUXILIARY, INFO, tmp_path / "broken", steps=5, seed=0)

    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_finished_training_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train_autoencoder(AUXILIARY, INFO, tmp_path, steps=2, seed=0)
    monkeypatch.setattr(module, "write_durably", None)

    second = train_autoencoder(AUXILIARY, INFO, tmp_path, steps=2, seed=0)

    assert all(torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items())


@pytest.mark.parametrize(("steps", "seed", "images"), [(3, 0, AUXILIARY), (2, 1, AUXILIARY), (2, 0, AUXILIARY[:30])])
def test_file_of_other_images_or_settings_is_refused(tmp_path: Path, steps: int, seed: int, images: np.ndarray) -> None:
    train_autoencoder(AUXILIARY, INFO, tmp_path, steps=2, seed=0)

    with pytest.raises(DataError, match="name another folder"):
        train_autoencoder(images, INFO, tmp_path, steps=steps, seed=seed)


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no tensors")

    with pytest.raises(DataError, match="found another file"):
        train_autoencoder(AUXILIARY, INFO, tmp_path, steps=2, seed=0)


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 9), (1, 11), (3, 4)])
def test_images_keep_their_shape(channels: int, side: int) -> None:
    info = make_info(channels=channels, side=side)
    images = torch.from_numpy(make_images(2, 0, info))

    assert Autoencoder(info, 0)(images).shape == images.shape


def test_empty_latents_stay_empty() -> None:
    network = Autoencoder(INFO, 0)
    latents = encode_all(network, AUXILIARY[:3]).astype(np.float64)
    latents[1] = np.nan

    found = decode_all(network, latents)

    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()
