"""A text-to-image pipeline as a generator: a prompt per class, batches that fit the memory, refused images redrawn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aegis_cache.generation.request import expand_request
from aegis_cache.generation.stable_diffusion.pipeline import SamplingSettings, load_pipeline, require_diffusers
from aegis_cache.generation.stable_diffusion.prompt_template import PromptTemplate
from aegis_cache.generation.stable_diffusion.weights import find_files, find_folder, hash_files
from aegis_cache.store.manifest import GeneratorIdentity, Scalar
from aegis_cache.store.provenance import Provenance
from federation.errors import GenerationError
from federation.randomness import derive_seed

STABLE_DIFFUSION = "stable-diffusion"
# Stable Diffusion 2.0 with OpenCLIP ViT-H/14, the generator of arXiv 2609.38339.
DEFAULT_MODEL = "stabilityai/stable-diffusion-2"

_DEFAULTS = SamplingSettings()


class StableDiffusionGenerator:
    """Draws images by prompts. Each has a random stream of its own, so that the division into batches decides none."""

    def __init__(
        self,
        class_names: Sequence[str],
        prompts: PromptTemplate,
        *,
        model: str = DEFAULT_MODEL,
        settings: SamplingSettings = _DEFAULTS,
        provenance: Provenance | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Load the pipeline from this machine; nothing is downloaded.

        Args:
            class_names: in the order of the labels.
            prompts: how a class is put into words.
            model: a folder, or a name under which the weights lie in the Hugging Face cache.
            settings: how images are drawn.
            provenance: of the weights; None says that they are public.
            say: takes what a person should know, such as that the memory did not suffice.

        Raises:
            GenerationError: diffusers or weight files are missing, a class has no prompt, or the pipeline does not fit
                the settings.
        """
        self._class_names, self._prompts = tuple(class_names), prompts.fill(class_names)
        self._template, self._settings, self._say = prompts, settings, say
        require_diffusers()
        self._folder = find_folder(model)
        self._files = find_files(self._folder, settings.variant, model)
        self._name = self._folder.name if Path(model).is_dir() else model
        self._provenance = provenance or Provenance.public()
        self._pipeline = load_pipeline(self._folder, settings, needs_negative=bool(prompts.negative))
        self._batch_size = settings.batch_size

    @cached_property
    def identity(self) -> GeneratorIdentity:
        """Which weights, prompts and settings these are; the first time, every weight file is read.

        Raises:
            OSError: a file has gone.
        """
        settings: dict[str, Scalar] = {
            "template": self._template.template,
            "negative": self._template.negative,
            "steps": self._settings.steps,
            "guidance": self._settings.guidance,
            "height": self._settings.height,
            "width": self._settings.width,
            "scheduler": type(self._pipeline.scheduler).__name__,
            "dtype": str(self._settings.choose_dtype()).removeprefix("torch."),
        }
        terms = [hash_files(self._folder, self._files), self._class_names, self._prompts, settings]
        return GeneratorIdentity(
            kind=STABLE_DIFFUSION,
            name=self._name,
            digest=hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest(),
            settings=settings,
            provenance=self._provenance,
        )

    def generate(self, labels: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Return `n` images of each of `labels`, float32 in [0, 1] on the CPU, shape (L * n, C, H, W).

        An image that the pipeline's safety checker refuses is drawn again with other random numbers. Batches of another
        size change images by rounding only.

        Args:
            labels: int64 class indices, shape (L,).
            n: images per entry.
            generator: CPU generator; each image's seed comes from it.

        Raises:
            GenerationError: a label names no class, the checker refused every attempt, the memory does not suffice for
                one image, or the pipeline returned NaN.
        """
        wanted = expand_request(labels, n, self._class_names).tolist()
        seeds = torch.randint(2**63 - 1, (len(wanted),), generator=generator).tolist()
        images: dict[int, Tensor] = {}
        for attempt in range(self._settings.attempts):
            pending = [place for place in range(len(wanted)) if place not in images]
            jobs = [(self._prompts[wanted[place]], derive_seed(seeds[place], "attempt", attempt)) for place in pending]
            drawn = zip(pending, self._draw_all(jobs), strict=True)
            images |= {place: image for place, image in drawn if image is not None}
        if refused := sorted({self._class_names[wanted[place]] for place in range(len(wanted)) if place not in images}):
            raise GenerationError(
                f"Expected images that the pipeline's safety checker lets through, found none of {refused} in "
                f"{self._settings.attempts} attempts: change the prompts of these classes."
            )
        return torch.stack([images[place] for place in range(len(wanted))])

    def _draw_all(self, jobs: Sequence[tuple[str, int]]) -> Iterator[Tensor | None]:
        """Yield the image of each prompt and seed, None where it was refused, in batches that fit the memory."""
        done = 0
        while done < len(jobs):
            batch = jobs[done : done + self._batch_size]
            drawn = self._draw(batch)
            if drawn is None:
                self._shrink(len(batch))
            else:
                yield from drawn
                done += len(batch)

    def _draw(self, batch: Sequence[tuple[str, int]]) -> list[Tensor | None] | None:
        """Return the images of one batch, or None where the memory does not suffice for it."""
        arguments: dict[str, Any] = {
            "prompt": [prompt for prompt, _ in batch],
            "generator": [torch.Generator().manual_seed(seed) for _, seed in batch],
            "num_inference_steps": self._settings.steps,
            "guidance_scale": self._settings.guidance,
            "output_type": "pt",
        }
        if self._template.negative:
            arguments["negative_prompt"] = [self._template.negative] * len(batch)
        if self._settings.height:
            arguments |= {"height": self._settings.height, "width": self._settings.width}
        try:
            result = self._pipeline(**arguments)
        except torch.OutOfMemoryError:
            return None
        images = result.images.float().cpu()
        if not images.isfinite().all():
            raise GenerationError("Expected finite pixels, found NaN: take dtype 'bfloat16' or 'float32'.")
        flags = getattr(result, "nsfw_content_detected", None) or [False] * len(batch)
        return [None if flag else image for flag, image in zip(flags, images.clamp(0, 1), strict=True)]

    def _shrink(self, size: int) -> None:
        torch.cuda.empty_cache()
        if size == 1:
            raise GenerationError(
                "Expected memory for one image at a time, found too little: choose a smaller height and width, dtype "
                "'float16', or a GPU with more memory."
            )
        self._batch_size = size // 2
        self._say(f"The memory does not suffice for {size} images at a time: going on with {self._batch_size}.")
