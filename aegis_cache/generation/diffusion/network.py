"""The denoising network: a UNet on space-to-depth pixels between two convolutions at full resolution.

Most of the work happens at a quarter of the pixels, which is what makes it fit a CPU. Without the full-resolution
convolutions such a network cannot undo the last, fine noise: the texture it leaves gives its images away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from diffusers import UNet2DModel
from torch import Tensor, nn
from torch.nn import functional

_LARGEST_INNER_SIDE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShape:
    """What decides the weights' names and shapes.

    Attributes:
        channels: of the images, 1 or 3.
        height: of the images.
        width: of the images.
        classes: number of classes; one more, the empty class, is learned beside them.
        stem: channels at full resolution.
        widths: channels at the UNet's levels.
    """

    channels: int
    height: int
    width: int
    classes: int
    stem: int = 16
    widths: tuple[int, ...] = (48, 64)

    @property
    def patch(self) -> int:
        """Pixels per side that become one position of the UNet: the least power of two that keeps it small."""
        patch = 2
        while max(self.height, self.width) > _LARGEST_INNER_SIDE * patch:
            patch *= 2
        return patch

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width after padding to what patches and the UNet's levels can divide."""
        unit = self.patch * 2 ** (len(self.widths) - 1)
        return -(-self.height // unit) * unit, -(-self.width // unit) * unit


class DenoisingNetwork(nn.Module):
    """Predicts the velocity of noised images (arXiv 2202.00512, appendix D) for given steps and classes."""

    def __init__(self, shape: NetworkShape) -> None:
        """Build the network with torch's current generator."""
        super().__init__()
        self.shape = shape
        folded = shape.stem * shape.patch**2
        self.stem = nn.Conv2d(shape.channels, shape.stem, kernel_size=3, padding=1)
        self.unet = UNet2DModel(
            sample_size=(shape.padded[0] // shape.patch, shape.padded[1] // shape.patch),
            in_channels=folded,
            out_channels=folded,
            block_out_channels=shape.widths,
            down_block_types=("DownBlock2D",) * len(shape.widths),
            up_block_types=("UpBlock2D",) * len(shape.widths),
            layers_per_block=1,
            norm_num_groups=8,
            attention_head_dim=16,
            resnet_time_scale_shift="scale_shift",
            num_class_embeds=shape.classes + 1,
        )
        self.mix = nn.Conv2d(2 * shape.stem + shape.channels, shape.stem, kernel_size=3, padding=1)
        self.head = nn.Conv2d(shape.stem, shape.channels, kernel_size=3, padding=1)

    def forward(self, images: Tensor, steps: Tensor, labels: Tensor) -> Tensor:
        """Return the velocity.

        Args:
            images: float32, noised, shape (B, C, H, W).
            steps: int64 in [0, 1000), shape (B,) or ().
            labels: int64 in [0, classes], shape (B,); `classes` is the empty class.

        Returns:
            float32, shape (B, C, H, W).
        """
        height, width = self.shape.height, self.shape.width
        bottom, right = self.shape.padded[0] - height, self.shape.padded[1] - width
        padded = functional.pad(images, (0, right, 0, bottom), mode="replicate") if bottom or right else images
        fine = self.stem(padded)
        folded = functional.pixel_unshuffle(fine, self.shape.patch)
        coarse = functional.pixel_shuffle(self.unet(folded, steps, class_labels=labels).sample, self.shape.patch)
        mixed = functional.silu(self.mix(torch.cat([coarse, functional.silu(fine), padded], dim=1)))
        velocity: Tensor = self.head(mixed)[:, :, :height, :width]
        return velocity
