"""Features of the model that is trained for the task: what its last linear layer sees."""

from __future__ import annotations

import copy
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from aegis_cache.features.extractor import extract_in_batches
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo, ImageSet
from federation.errors import DataError, GenerationError, ModelError, RefusalError
from federation.metrics import criterion, targets
from federation.models import build_empty_model, build_model
from federation.parameters import digest, require_like, write_parameters
from federation.preprocessing import to_unit_interval
from federation.randomness import derive_seed

_LEARNING_RATE = 1e-3
_TRAINING_BATCH = 64


class TaskModelFeatures:
    """The input of the last linear layer of a network that classifies images.

    The extractor is as private as the model: features of one that was trained on patients depend on these patients.

    Attributes:
        identity: name and digest of all parameters.
    """

    def __init__(self, model: nn.Module, *, name: str = "task model") -> None:
        """Keep a copy of `model`, in evaluation mode and without gradients.

        Args:
            model: takes float32 images in [0, 1], shape (B, C, H, W). Its last linear layer is the last one that it
                registered.
            name: for people.

        Raises:
            ModelError: it has no linear layer.
        """
        self._model = copy.deepcopy(model).cpu().eval().requires_grad_(requires_grad=False)
        linear = [module for module in self._model.modules() if isinstance(module, nn.Linear)]
        if not linear:
            raise ModelError(
                f"Expected a model with a linear layer to take features from, found {type(model).__name__}."
            )
        self._last = linear[-1]
        self.identity = f"{name}, {type(model).__name__} sha256:{digest(self._model.state_dict())}"

    def extract(self, images: Tensor) -> Tensor:
        """Return the features as `FeatureExtractor.extract` says; F is the width of the last linear layer's input."""
        return extract_in_batches(images, self._before_last)

    def _before_last(self, batch: Tensor) -> Tensor:
        seen: list[Tensor] = []
        hook = self._last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            self._model(batch)
        except RuntimeError:
            raise DataError(
                f"Expected images that the task model takes, found shape {tuple(batch.shape[1:])}."
            ) from None
        finally:
            hook.remove()
        return seen[-1]


def load_task_features(path: Path, model: ModelConfig, info: DatasetInfo) -> TaskModelFeatures:
    """Return the features of the model in a run's `model.safetensors`.

    Args:
        path: the file.
        model: which network it holds.
        info: of the images the network was built for.

    Raises:
        GenerationError: the file cannot be read, or holds another network.
    """
    network = build_empty_model(model, info)
    try:
        parameters = safetensors.torch.load_file(path)
        require_like(dict(sorted(parameters.items())), dict(sorted(network.state_dict().items())))
    except (OSError, SafetensorError, RefusalError) as error:
        raise GenerationError(
            f"{path}: expected the parameters of {model.name} for {info.channels} x {info.height} x {info.width} "
            f"images with {info.classes} classes, as a run writes them to model.safetensors; {error}"
        ) from None
    write_parameters(network, parameters)
    return TaskModelFeatures(network)


def train_task_features(images: ImageSet, info: DatasetInfo, *, epochs: int, seed: int) -> TaskModelFeatures:
    """Return the features of a `cnn` trained on `images` with Adam, for a hospital that has no model yet.

    Args:
        images: permitted ones; the extractor depends on them.
        info: what they are.
        epochs: passes over them, at least 1.
        seed: of initialization and order; torch's global generator is left as it was.

    Raises:
        DataError: there are no images, or they are not of the shape in `info`.
        ValueError: `epochs` is below 1.
    """
    if epochs < 1:
        raise ValueError(f"Expected epochs={epochs} >= 1.")
    expected = (info.channels, info.height, info.width)
    if len(images) == 0 or images.images.shape[1:] != expected:
        raise DataError(f"Expected images of shape {expected} to train on, found {images.images.shape}.")
    network = build_model(ModelConfig(name="cnn"), info, seed=derive_seed(seed, "features"))
    pixels, labels = torch.from_numpy(images.images.copy()), torch.from_numpy(images.labels.copy())
    optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    loss_of = criterion(info.task)
    for epoch in range(epochs):
        stream = torch.Generator().manual_seed(derive_seed(seed, "features", "order", epoch))
        for chosen in torch.randperm(len(pixels), generator=stream).split(_TRAINING_BATCH):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(network(to_unit_interval(pixels[chosen])), targets(labels[chosen], info.task))
            loss.backward()
            optimizer.step()
    trained = TaskModelFeatures(network)
    # By what it was made of, not by its weights: their last bits change with the number of threads.
    trained.identity = f"task model trained here, {epochs} epochs, seed {seed}, images sha256:{images.digest}"
    return trained
