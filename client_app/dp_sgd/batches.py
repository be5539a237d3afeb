"""From a step's sample to what the network sees: images, their augmented views, labels, and one loss per image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from client_app.augmentation import augment
from client_app.dp_sgd.units import Sample
from client_app.masking.preparation import Masking
from federation.config import PrivacyConfig, TrainingConfig
from federation.datasets.image_set import DatasetInfo, ImageSet
from federation.metrics import targets
from federation.preprocessing import to_unit_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One part of a step, on the device.

    Attributes:
        images: float32, shape (N, C, H, W), in [0, 1] for a classifier; asks for its gradient where every layer lies
            between it and the loss, see `gradient_hooks.run_hooks`.
        labels: as the loss wants them, shape (N,) or (N, L).
        sizes: int64, shape (U,): how many images in a row belong to each unit; None where it is one each.
    """

    images: Tensor
    labels: Tensor
    sizes: Tensor | None = None

    def only(self, chosen: Tensor) -> Batch:
        """Return the images where `chosen`, bool of shape (N,), is true; each is a unit of its own."""
        return Batch(images=self.images.detach()[chosen].requires_grad_(), labels=self.labels[chosen])


class Batches:
    """The training split on the device, from which batches are taken."""

    def __init__(
        self,
        images: ImageSet,
        info: DatasetInfo,
        plan: TrainingConfig,
        privacy: PrivacyConfig,
        *,
        generator: torch.Generator,
        device: torch.device,
        masking: Masking | None = None,
    ) -> None:
        """Move `images` to `device`.

        Args:
            images: the training split.
            info: what the labels are.
            plan: whose augmentation.
            privacy: how many views of an image.
            generator: CPU generator of augmentation.
            device: where to compute.
            masking: whose synthetic images stand beside them; where these are varied, so are real ones.
        """
        self._pixels = torch.from_numpy(np.array(images.images)).to(device)
        self._labels = targets(torch.from_numpy(np.array(images.labels)), info.task).to(device)
        self._augmentation = plan.augmentation
        self._masking = masking
        self._generator = generator
        self._device = device
        self.views = count_views(plan, privacy)

    def take(self, sample: Sample) -> Batch:
        """Return the images of `sample`, each in as many augmented views as the plan asks for, unit by unit."""
        chosen = torch.from_numpy(sample.indices).repeat_interleave(self.views).to(self._device)
        images = to_unit_interval(self._pixels[chosen])
        if self._masking is not None:
            images = self._masking.synthetic.draw_variation(len(images), self._generator).apply(images)
        images = augment(images, self._augmentation, self._generator)
        alone = self.views == 1 and len(sample.sizes) == len(sample.indices)
        sizes = None if alone else torch.from_numpy(sample.sizes).to(self._device) * self.views
        return Batch(images=images.requires_grad_(), labels=self._labels[chosen], sizes=sizes)


def count_views(plan: TrainingConfig, privacy: PrivacyConfig) -> int:
    """Return the number of views per image; without augmentation all would be equal, so one does."""
    return privacy.augmentation_multiplicity if plan.augmentation != "none" else 1
