"""Features of the task model are the input of its last linear layer, and of a model that never changes again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from aegis_cache.features.task_model import TaskModelFeatures, load_task_features, train_task_features
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo, ImageSet, Task
from federation.errors import DataError, GenerationError, ModelError
from federation.models import build_model

INFO = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=8, width=8)


def some_images(count: int) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def bright_and_dark(count: int) -> ImageSet:
    stream = np.random.default_rng(0)
    labels = np.arange(count) % 2
    images = stream.integers(0, 100, size=(count, 1, 8, 8)) + 120 * labels[:, None, None, None]
    return ImageSet(images=images.astype(np.uint8), labels=labels)


@pytest.mark.parametrize("name", ["cnn", "mlp", "resnet18"])
def test_last_linear_layer_makes_the_logits_out_of_the_features(name: str) -> None:
    model = build_model(ModelConfig(name=name), INFO, seed=0).eval()  # type: ignore[arg-type]
    images = some_images(70)

    features = TaskModelFeatures(model).extract(images)

    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    assert features.shape == (70, last.in_features)
    torch.testing.assert_close(last(features), model(images), rtol=1e-4, atol=1e-5)


def test_features_stay_when_the_model_is_trained_on() -> None:
    model = build_model(ModelConfig(name="mlp"), INFO, seed=0)
    extractor = TaskModelFeatures(model)
    before = extractor.extract(some_images(3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)

    after = extractor.extract(some_images(3))

    assert torch.equal(before, after)
    assert not after.requires_grad
    assert TaskModelFeatures(model).identity != extractor.identity


def test_repeated_extraction_leaves_no_hook_behind() -> None:
    model = build_model(ModelConfig(name="mlp"), INFO, seed=0)
    extractor = TaskModelFeatures(model)

    first, second = extractor.extract(some_images(3)), extractor.extract(some_images(3))

    assert torch.equal(first, second)
    assert not extractor._last._forward_pre_hooks


def test_model_without_linear_layer_is_refused() -> None:
    with pytest.raises(ModelError, match="linear layer"):
        TaskModelFeatures(nn.Conv2d(1, 1, 1))


def test_images_of_another_shape_are_refused_without_their_content() -> None:
    extractor = TaskModelFeatures(build_model(ModelConfig(name="cnn"), INFO, seed=0))

    with pytest.raises(DataError, match=r"\(1, 12, 12\)"):
        extractor.extract(torch.zeros(1, 1, 12, 12))


def test_model_of_a_run_is_loaded_from_its_file(tmp_path: Path) -> None:
    model = build_model(ModelConfig(name="cnn"), INFO, seed=0)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")

    loaded = load_task_features(tmp_path / "model.safetensors", ModelConfig(name="cnn"), INFO)

    assert loaded.identity == TaskModelFeatures(model).identity
    assert torch.equal(loaded.extract(some_images(2)), TaskModelFeatures(model).extract(some_images(2)))


@pytest.mark.parametrize("damage", ["missing", "foreign", "garbage"])
def test_file_without_that_model_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "model.safetensors"
    if damage == "foreign":
        safetensors.torch.save_file({"weight": torch.zeros(2)}, path)
    elif damage == "garbage":
        path.write_bytes(b"no tensors")

    with pytest.raises(GenerationError, match=r"expected the parameters of cnn for 1 x 8 x 8 images"):
        load_task_features(path, ModelConfig(name="cnn"), INFO)


def test_training_learns_the_classes() -> None:
    images = bright_and_dark(128)

    extractor = train_task_features(images, INFO, epochs=4, seed=3)

    features = extractor.extract(torch.from_numpy(images.images).float() / 255)
    logits = extractor._model(torch.from_numpy(images.images).float() / 255)
    assert features.shape == (128, 512)
    assert float((logits.argmax(dim=1).numpy() == images.labels).mean()) == 1.0


def test_seed_decides_the_trained_features_and_the_global_generator_is_left_alone() -> None:
    images = bright_and_dark(40)
    state = torch.random.get_rng_state()

    first, second, other = (train_task_features(images, INFO, epochs=1, seed=seed).identity for seed in (1, 1, 2))

    assert first == second
    assert first != other
    assert torch.equal(torch.random.get_rng_state(), state)


def test_seed_decides_the_initialization_as_well_as_the_order() -> None:
    one = bright_and_dark(1)

    first, other = (train_task_features(one, INFO, epochs=1, seed=seed).identity for seed in (1, 2))

    assert first != other


@pytest.mark.parametrize("count", [0, 4])
def test_training_on_no_images_or_other_images_is_refused(count: int) -> None:
    images = ImageSet(images=np.zeros((count, 1, 9, 9), dtype=np.uint8), labels=np.zeros(count, dtype=np.int64))

    with pytest.raises(DataError, match=r"Expected images of shape \(1, 8, 8\)"):
        train_task_features(images, INFO, epochs=1, seed=0)


def test_training_without_an_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="epochs=0"):
        train_task_features(bright_and_dark(4), INFO, epochs=0, seed=0)
