"""An autoencoder whose encoder is the convolutions of the agreed network: what they see, the decoder turns back.

Shi et al., arXiv 2311.05808, section 4. The server trains it once on images of the same kind, and sends the encoder as
the convolutional part of the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional

from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo
from federation.durable import write_durably
from federation.errors import DataError
from federation.models import build_model
from federation.models.centring import centre
from federation.randomness import derive_seed, numpy_stream
from federation.tensor_file import as_pieces

FILE = "autoencoder.safetensors"
_BATCH = 32
_RATE, _DECAY = 1e-3, 1e-5
_SAVE_EVERY = 250
_PIECE = 256


class Autoencoder(nn.Module):
    """The convolutions of the agreed "cnn", and transposed ones that undo them."""

    def __init__(self, info: DatasetInfo, seed: int) -> None:
        """Build both halves for images of `info`."""
        super().__init__()
        self.sizes = [(info.height // part, info.width // part) for part in (4, 2, 1)]
        self.encoder = build_model(ModelConfig.model_validate({"name": "cnn"}), info, seed=seed).get_submodule(
            "features"
        )
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive_seed(seed, "decoder"))
            self.near = nn.ConvTranspose2d(64, 64, kernel_size=3, padding=1)
            self.middle = nn.ConvTranspose2d(64, 64, kernel_size=4, stride=2, padding=1)
            self.far = nn.ConvTranspose2d(64, 32, kernel_size=4, stride=2, padding=1)
            self.last = nn.Conv2d(32, info.channels, kernel_size=3, padding=1)

    def encode(self, images: Tensor) -> Tensor:
        """Return what the agreed network's hidden layer is given: float32, shape (B, n).

        Args:
            images: float32 in [0, 1], shape (B, C, H, W).
        """
        latents: Tensor = self.encoder(centre(images)).flatten(1)
        return latents

    def decode(self, latents: Tensor) -> Tensor:
        """Return images, shape (B, C, H, W), unclamped, from `latents`: shape (B, n)."""
        values = self.near(latents.view(-1, 64, *self.sizes[0])).relu()
        values = self.middle(values, output_size=self.sizes[1]).relu()
        values = self.far(values, output_size=self.sizes[2]).relu()
        images: Tensor = self.last(values)
        return images

    def forward(self, images: Tensor) -> Tensor:
        """Return `images` as they come back."""
        return self.decode(self.encode(images))


def encode_all(autoencoder: Autoencoder, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the latents of `images`, shape (A, C, H, W), in pieces: float32, shape (A, n)."""
    with torch.no_grad():
        parts = [autoencoder.encode(part).numpy() for part in torch.from_numpy(images).split(_PIECE)]
    return np.concatenate(parts)


def decode_all(autoencoder: Autoencoder, latents: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the images of `latents`, shape (K, n): float64, shape (K, C, H, W), NaN where a latent is."""
    height, width = autoencoder.sizes[-1]
    found = np.full((len(latents), autoencoder.last.out_channels, height, width), np.nan)
    heard = np.flatnonzero(np.isfinite(latents).all(axis=1))
    with torch.no_grad():
        for start in range(0, len(heard), _PIECE):
            rows = heard[start : start + _PIECE]
            found[rows] = autoencoder.decode(torch.from_numpy(latents[rows]).float()).numpy()
    return found


def train_autoencoder(
    auxiliary: NDArray[np.float32], info: DatasetInfo, folder: Path, *, steps: int, seed: int
) -> Autoencoder:
    """Return an autoencoder trained on `auxiliary`, from the file in `folder` as far as that goes.

    The file is written every few hundred steps with all that it takes to go on as if nothing had happened. A step
    depends on the seed and on its number alone; threads change rounding.

    Args:
        auxiliary: float32 in [0, 1], shape (A, C, H, W).
        info: classes and shape of the images.
        folder: of the file `autoencoder.safetensors`; made where it is missing.
        steps: of Adam, on 32 images each; the learning rate falls from 0.001 to zero.
        seed: of both halves and of the order of images.

    Raises:
        DataError: the file is of other images or settings, or no such file.
    """
    network = Autoencoder(info, seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=_RATE, weight_decay=_DECAY)
    path, purpose = folder / FILE, _describe(auxiliary, steps, seed)
    done = _restore(path, purpose, network, optimizer) if path.exists() else 0
    folder.mkdir(parents=True, exist_ok=True)
    for step in range(done, steps):
        drawn = numpy_stream(seed, "autoencoder", step).integers(len(auxiliary), size=_BATCH)
        images = torch.from_numpy(auxiliary[drawn])
        for group in optimizer.param_groups:
            group["lr"] = _RATE * (1 - step / steps)
        optimizer.zero_grad(set_to_none=True)
        functional.mse_loss(network(images), images).backward()
        optimizer.step()
        if (step + 1) % _SAVE_EVERY == 0 or step + 1 == steps:
            metadata = {"purpose": purpose, "step": str(step + 1)}
            write_durably(path, as_pieces(_tensors_of(network, optimizer), metadata))
    return network.eval()


def _describe(auxiliary: NDArray[np.float32], steps: int, seed: int) -> str:
    """Return what tells an autoencoder of these images and settings from others."""
    digest = hashlib.sha256(np.ascontiguousarray(auxiliary).tobytes()).hexdigest()
    return f"{digest} {auxiliary.shape} steps={steps} seed={seed}"


def _tensors_of(network: Autoencoder, optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    """Return parameters and the optimizer's state by name."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        tensors |= {f"adam.{key}.{name}": value for key, value in optimizer.state[parameter].items()}
    return tensors


def _restore(path: Path, purpose: str, network: Autoencoder, optimizer: torch.optim.Adam) -> int:
    """Write the file at `path` into both; return how many steps it has behind it."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
        tensors = safetensors.torch.load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"Expected an autoencoder in {path}, found another file: {error}; remove it.") from error
    if metadata.get("purpose") != purpose:
        raise DataError(
            f"Expected an autoencoder of these auxiliary images and settings in {path}, found one of others: "
            "name another folder, or remove the file."
        )
    network.load_state_dict({name: tensors[f"network.{name}"] for name in network.state_dict()})
    for name, parameter in network.named_parameters():
        keys = ("step", "exp_avg", "exp_avg_sq")
        optimizer.state[parameter] = {key: tensors[f"adam.{key}.{name}"] for key in keys}
    return int(metadata["step"])
