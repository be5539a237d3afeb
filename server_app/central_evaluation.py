"""Scores of the global model on images that the server itself holds."""

from __future__ import annotations

import torch

from federation.config import Configuration
from federation.datasets.image_set import DatasetInfo, ImageSet
from federation.metrics import Scores, evaluate
from federation.models import build_empty_model
from federation.parameters import Parameters, write_parameters


class CentralEvaluator:
    """Keeps the server's test images and one network to score them with."""

    def __init__(self, configuration: Configuration, info: DatasetInfo, images: ImageSet) -> None:
        """Score models of `configuration.model` on `images`."""
        self._info = info
        self._images = images
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = build_empty_model(configuration.model, info)
        self._model = model.to(self._device).to(memory_format=torch.channels_last)

    def score(self, parameters: Parameters) -> Scores:
        """Return the scores of `parameters`."""
        write_parameters(self._model, parameters)
        return evaluate(self._model, self._images, self._info, self._device)
