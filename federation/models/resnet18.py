"""ResNet-18 for small images: a 3x3 stem without pooling, and GroupNorm in place of batch normalization."""

from __future__ import annotations

from torch import Tensor, nn

from federation.models.centring import centre

_GROUPS = 8


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut (He et al., arXiv 1512.03385, figure 5 left)."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int) -> None:
        """Build a block that divides height and width by `stride`."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, channels_out),
            nn.ReLU(),
            nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False),
            nn.GroupNorm(_GROUPS, channels_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False),
                nn.GroupNorm(_GROUPS, channels_out),
            )

    def forward(self, features: Tensor) -> Tensor:
        """Return features of shape (B, channels_out, H / stride, W / stride)."""
        total: Tensor = self.body(features) + self.shortcut(features)
        return total.relu()


class ResNet18(nn.Module):
    """Eight residual blocks of widths 64 to 512 (arXiv 1512.03385, table 1).

    Deviation: stem of one 3x3 convolution with stride 1 and no pooling, as usual for 28-pixel images; GroupNorm with
    8 groups (arXiv 1803.08494), because batch statistics would leave the hospital with the parameters.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        """Build the network for images of `shape` (C, H, W)."""
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(shape[0], 64, 3, padding=1, bias=False), nn.GroupNorm(_GROUPS, 64), nn.ReLU()
        )
        widths = [64, 64, 128, 128, 256, 256, 512, 512]
        self.blocks = nn.Sequential(
            *(
                ResidualBlock(previous, width, stride=1 if width == previous else 2)
                for previous, width in zip([64, *widths[:-1]], widths, strict=True)
            )
        )
        self.output = nn.Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of shape (B, classes) for `images`: float32 in [0, 1], shape (B, C, H, W)."""
        logits: Tensor = self.output(self.blocks(self.stem(centre(images))).mean(dim=(2, 3)))
        return logits
