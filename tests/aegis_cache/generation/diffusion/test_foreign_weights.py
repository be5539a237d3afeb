"""Weights that were trained elsewhere with diffusers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import UNet2DModel

from aegis_cache.acceptance.coverage import brightness
from aegis_cache.generation.diffusion.generator import load_generator
from aegis_cache.store.provenance import Provenance, Source
from federation.errors import GenerationError
from federation.preprocessing import to_bytes


def save_unet(folder: Path, **changes: object) -> None:
    settings = {
        "sample_size": 4,
        "in_channels": 4,
        "out_channels": 4,
        "block_out_channels": (8, 16),
        "down_block_types": ("DownBlock2D",) * 2,
        "up_block_types": ("UpBlock2D",) * 2,
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "num_class_embeds": 3,
        **changes,
    }
    UNet2DModel(**settings).save_pretrained(folder / "unet")


def test_a_class_conditional_unet_on_folded_pixels_draws_images(tmp_path: Path) -> None:
    save_unet(tmp_path)

    generator = load_generator(tmp_path, steps=10)

    assert generator.generate(torch.tensor([0, 1]), 2, torch.Generator().manual_seed(0)).shape == (4, 1, 8, 8)


def test_its_provenance_is_what_the_caller_says(tmp_path: Path) -> None:
    save_unet(tmp_path)
    private = Provenance(source=Source.PRIVATE_ADAPTED, uses=("unknown",))

    assert load_generator(tmp_path, provenance=private).identity.provenance == private


def test_other_weights_have_another_digest(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_unet(tmp_path / name)

    first, second = (load_generator(tmp_path / name).identity.digest for name in ("a", "b"))
    assert first != second


@pytest.mark.parametrize("changes", [{"num_class_embeds": None}, {"in_channels": 1, "out_channels": 1}])
def test_a_unet_of_another_kind_is_refused(tmp_path: Path, changes: dict) -> None:
    save_unet(tmp_path, **changes)

    with pytest.raises(GenerationError, match="class-conditional UNet"):
        load_generator(tmp_path)


def test_a_unet_without_weights_is_refused(tmp_path: Path) -> None:
    save_unet(tmp_path)
    for path in (tmp_path / "unet").glob("*.safetensors"):
        path.unlink()

    with pytest.raises(GenerationError, match="cannot be read"):
        load_generator(tmp_path)


@pytest.mark.data
@pytest.mark.skipif("AEGIS_TEST_DATA" not in os.environ, reason="AEGIS_TEST_DATA is not set")
@pytest.mark.parametrize(("name", "classes"), [("pneumoniamnist", 2), ("organamnist", 11)])
def test_a_trained_one_draws_images_as_bright_as_the_real_ones(name: str, classes: int) -> None:
    root = Path(os.environ["AEGIS_TEST_DATA"])
    real = np.load(root / "medmnist" / f"{name}.npz")["train_images"]

    generator = load_generator(root / "generators" / name, steps=15)
    images = generator.generate(torch.arange(classes), 48 // classes, torch.Generator().manual_seed(0))

    found = brightness(to_bytes(images).numpy())
    assert abs(found.mean() - real.mean() / 255) < 0.08
    assert found.std() > 0.02
