"""The trained network as a generator: sampling, and its folder on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from diffusers import UNet2DModel
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn import functional

from aegis_cache.generation.diffusion.network import DenoisingNetwork, NetworkShape
from aegis_cache.generation.diffusion.schedule import make_solver
from aegis_cache.store.manifest import GeneratorIdentity
from aegis_cache.store.provenance import Provenance, Source
from federation.durable import write_durably
from federation.errors import GenerationError

DIFFUSION = "diffusion"
STEPS = 30
_WEIGHTS, _CARD = "network.safetensors", "generator.json"

_UNSTATED = Provenance(
    source=Source.PRIVATE_ADAPTED, uses=("the weights' origin was not stated, so private images count as used",)
)

Velocity = Callable[[Tensor, Tensor, Tensor], Tensor]


class DiffusionGenerator:
    """Draws images from a denoising network without guidance, which would sharpen classes and spoil brightness."""

    def __init__(
        self,
        velocity: Velocity,
        shape: NetworkShape,
        *,
        name: str,
        digest: str,
        provenance: Provenance,
        steps: int = STEPS,
        batch_size: int = 128,
    ) -> None:
        """Draw by `velocity`, which takes noised images, a step and labels as `DenoisingNetwork` does.

        Args:
            velocity: the network, in evaluation mode.
            shape: of its images, and its classes.
            name: for people.
            digest: sha256 of the weights.
            provenance: of the weights.
            steps: that sampling visits.
            batch_size: images at a time.
        """
        self._velocity, self._shape = velocity, shape
        self._steps, self._batch_size = steps, batch_size
        self._identity = GeneratorIdentity(
            kind=DIFFUSION, name=name, digest=digest, settings={"steps": steps}, provenance=provenance
        )

    @property
    def identity(self) -> GeneratorIdentity:
        """Which weights and sampler these are."""
        return self._identity

    @torch.inference_mode()
    def generate(self, labels: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Return `n` images of each of `labels`, float32 in [0, 1], shape (L * n, C, H, W).

        Raises:
            GenerationError: a label is not one of the network's classes.
        """
        wanted = labels.repeat_interleave(n)
        if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < self._shape.classes:
            raise GenerationError(
                f"Expected labels from 0 to {self._shape.classes - 1}, the classes this generator knows, found "
                f"{int(wanted.min())} to {int(wanted.max())}: train or choose one for this data set."
            )
        parts = [self._sample(part, generator) for part in wanted.split(self._batch_size)]
        return torch.cat(parts) if parts else self._noise(0, generator)

    def _sample(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        solver = make_solver(self._steps)
        images = self._noise(len(labels), generator)
        for step in solver.timesteps:
            velocity = self._velocity(images, step, labels)
            images = solver.step(velocity, step, images).prev_sample.contiguous(memory_format=torch.channels_last)
        return images.clamp(-1, 1).add(1).div(2).contiguous()

    def _noise(self, count: int, generator: torch.Generator) -> Tensor:
        shape = (count, self._shape.channels, self._shape.height, self._shape.width)
        return torch.randn(shape, generator=generator).contiguous(memory_format=torch.channels_last)


def save_generator(
    network: DenoisingNetwork,
    folder: Path,
    *,
    name: str,
    provenance: Provenance,
    identity: str = "",
    class_names: Sequence[str] = (),
) -> None:
    """Write `network` to `folder`, which is made, readable by its owner only: the weights know private images.

    Args:
        network: to be saved.
        folder: where to.
        name: for people.
        provenance: of the weights.
        identity: of the training, as `identify_training` makes it.
        class_names: in the order of the labels.

    Raises:
        OSError: the volume refused.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    weights = save({key: value.contiguous() for key, value in network.state_dict().items()})
    card = {
        "name": name,
        "shape": asdict(network.shape),
        "sha256": hashlib.sha256(weights).hexdigest(),
        "identity": identity,
        "class-names": list(class_names),
        "provenance": provenance.model_dump(mode="json", by_alias=True),
    }
    write_durably(folder / _WEIGHTS, weights, mode=0o600)
    write_durably(folder / _CARD, json.dumps(card, indent=1).encode(), mode=0o600)


def load_generator(folder: Path, *, steps: int = STEPS, provenance: Provenance | None = None) -> DiffusionGenerator:
    """Return the generator in `folder`: one of ours, or a class-conditional UNet of diffusers in `unet/`.

    Args:
        folder: what `save_generator` wrote, or a diffusers folder that predicts velocities on space-to-depth pixels.
        steps: that sampling visits.
        provenance: of a diffusers folder, which does not say; ours say it themselves.

    Raises:
        GenerationError: weights are missing, altered, or of another kind.
    """
    if (folder / _CARD).is_file():
        return _load_own(folder, steps)
    if (folder / "unet" / "config.json").is_file():
        return _load_unet(folder, steps, provenance)
    raise GenerationError(
        f"Expected a generator in {folder}: {_CARD} and {_WEIGHTS} as training writes them, or a diffusers folder with "
        "unet/config.json and its weights. Found neither: leave the folder out to train one on the permitted images."
    )


def load_network(folder: Path) -> tuple[DenoisingNetwork, Provenance]:
    """Return the network that `save_generator` wrote to `folder`, in evaluation mode, and its provenance.

    Raises:
        GenerationError: a file is missing, altered or of another kind.
    """
    return _read_own(folder)[:2]


def read_card(folder: Path) -> dict[str, Any]:
    """Return what `save_generator` wrote beside the weights in `folder`: name, identity, class-names and more.

    Raises:
        GenerationError: a file is missing, altered or of another kind.
    """
    return _read_own(folder)[2]


def _load_own(folder: Path, steps: int) -> DiffusionGenerator:
    network, provenance, card = _read_own(folder)
    return DiffusionGenerator(
        network, network.shape, name=card["name"], digest=card["sha256"], provenance=provenance, steps=steps
    )


def _read_own(folder: Path) -> tuple[DenoisingNetwork, Provenance, dict[str, Any]]:
    try:
        card: dict[str, Any] = json.loads((folder / _CARD).read_text(encoding="utf-8"))
        digest = hashlib.sha256((folder / _WEIGHTS).read_bytes()).hexdigest()
        if digest != card["sha256"]:
            raise GenerationError(f"Expected {folder / _WEIGHTS} with sha256 {card['sha256']}, found {digest}.")
        network = DenoisingNetwork(NetworkShape(**{**card["shape"], "widths": tuple(card["shape"]["widths"])}))
        network.load_state_dict(load_file(folder / _WEIGHTS))
        provenance = Provenance.model_validate(card["provenance"])
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise GenerationError(f"The generator in {folder} cannot be read: {error}") from None
    return network.eval().to(memory_format=torch.channels_last), provenance, card


def _load_unet(folder: Path, steps: int, provenance: Provenance | None) -> DiffusionGenerator:
    try:
        unet = UNet2DModel.from_pretrained(folder, subfolder="unet", local_files_only=True).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise GenerationError(f"The diffusers model in {folder / 'unet'} cannot be read: {error}") from None
    folded, side, embedded = unet.config.in_channels, unet.config.sample_size, unet.config.num_class_embeds
    patch = 2
    if not embedded or folded % patch**2 or folded // patch**2 not in (1, 3) or not isinstance(side, int):
        raise GenerationError(
            f"Expected a class-conditional UNet on 2x2 space-to-depth pixels in {folder / 'unet'}, found "
            f"in_channels={folded}, sample_size={side}, num_class_embeds={embedded}."
        )
    unet.to(memory_format=torch.channels_last)
    shape = NetworkShape(channels=folded // patch**2, height=side * patch, width=side * patch, classes=embedded - 1)

    def velocity(images: Tensor, step: Tensor, labels: Tensor) -> Tensor:
        found = unet(functional.pixel_unshuffle(images, patch), step, class_labels=labels).sample
        return functional.pixel_shuffle(found, patch)

    weights = sorted((folder / "unet").glob("*.safetensors"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in weights)).hexdigest()
    return DiffusionGenerator(
        velocity, shape, name=folder.name, digest=digest, provenance=provenance or _UNSTATED, steps=steps
    )
