"""Loading a diffusers pipeline from disk: settings that are checked first, and an allow-list of schedulers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from federation.errors import GenerationError

SCHEDULERS = (
    "DDIMScheduler",
    "DDPMScheduler",
    "DPMSolverMultistepScheduler",
    "DPMSolverSinglestepScheduler",
    "EulerAncestralDiscreteScheduler",
    "EulerDiscreteScheduler",
    "HeunDiscreteScheduler",
    "PNDMScheduler",
    "UniPCMultistepScheduler",
)
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_SIDE_UNIT = 8
_ARGUMENTS = {"prompt", "num_inference_steps", "guidance_scale", "height", "width", "generator", "output_type"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How images are drawn.

    Attributes:
        steps: denoising steps.
        guidance: scale of classifier-free guidance (arXiv 2207.12598); 1 is none in most pipelines.
        height: in pixels, a multiple of 8; 0 leaves the size to the pipeline.
        width: likewise; 0 exactly where `height` is.
        scheduler: one of `SCHEDULERS`; "" leaves it to the pipeline.
        variant: of the weight files, such as "fp16"; "" for the plain ones.
        device: "auto" for a GPU where there is one, else a torch device.
        dtype: "float32", "float16" or "bfloat16"; "auto" for float16 on a GPU and float32 on a CPU.
        batch_size: images at a time; halved when the memory does not suffice.
        attempts: draws per image until the pipeline's safety checker lets one through.
    """

    steps: int = 50
    guidance: float = 7.5
    height: int = 0
    width: int = 0
    scheduler: str = ""
    variant: str = ""
    device: str = "auto"
    dtype: str = "auto"
    batch_size: int = 8
    attempts: int = 5

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            GenerationError: naming the first of them.
        """
        for name in ("steps", "batch_size", "attempts"):
            if getattr(self, name) < 1:
                raise GenerationError(f"Expected {name}={getattr(self, name)} >= 1.")
        if not 0 <= self.guidance < float("inf"):
            raise GenerationError(f"Expected guidance={self.guidance} >= 0 and finite.")
        sides = (self.height, self.width)
        if min(sides) < 0 or any(side % _SIDE_UNIT for side in sides) or (0 in sides and any(sides)):
            raise GenerationError(f"Expected height and width as multiples of {_SIDE_UNIT}, or both 0, found {sides}.")
        if self.scheduler and self.scheduler not in SCHEDULERS:
            raise GenerationError(f"Expected a scheduler of {list(SCHEDULERS)}, found {self.scheduler!r}.")
        if self.dtype not in ("auto", *_DTYPES):
            raise GenerationError(f"Expected dtype 'auto' or one of {list(_DTYPES)}, found {self.dtype!r}.")
        try:
            torch.empty(0, device=self.choose_device())
        except (RuntimeError, AssertionError) as error:
            raise GenerationError(f"Expected a device of this machine, found {self.device!r}: {error}") from None

    def choose_device(self) -> torch.device:
        """Return where the pipeline runs."""
        if self.device != "auto":
            return torch.device(self.device)
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def choose_dtype(self) -> torch.dtype:
        """Return the type of its weights."""
        if self.dtype != "auto":
            return _DTYPES[self.dtype]
        return torch.float32 if self.choose_device().type == "cpu" else torch.float16


def require_diffusers() -> None:
    """Check that the optional libraries are there.

    Raises:
        GenerationError: they are not.
    """
    try:
        import diffusers  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise GenerationError(
            f"Expected diffusers and transformers, found: {error}: pip install 'aegis-fl[generate]'."
        ) from None


def load_pipeline(folder: Path, settings: SamplingSettings, *, needs_negative: bool) -> Any:
    """Return the text-to-image pipeline in `folder`, on its device, with its own safety checker.

    Args:
        folder: with `model_index.json`; no other place is looked at.
        settings: how it will be used.
        needs_negative: whether it must take a negative prompt.

    Raises:
        GenerationError: the files are damaged or of another kind, or the pipeline lacks something it must have.
    """
    from diffusers import AutoPipelineForText2Image

    device, dtype = settings.choose_device(), settings.choose_dtype()
    options: dict[str, Any] = {"variant": settings.variant} if settings.variant else {}
    try:
        with _quiet():
            pipeline = AutoPipelineForText2Image.from_pretrained(
                str(folder), local_files_only=True, use_safetensors=True, dtype=dtype, **options
            )
    except (OSError, ValueError, KeyError, AttributeError, RuntimeError, ImportError, SafetensorError) as error:
        raise GenerationError(f"The text-to-image pipeline in {folder} cannot be read: {error}") from None
    needed = _ARGUMENTS | ({"negative_prompt"} if needs_negative else set())
    lacking = sorted(needed - inspect.signature(pipeline.__call__).parameters.keys())
    if lacking:
        raise GenerationError(
            f"Expected a pipeline that takes {sorted(needed)}, found {type(pipeline).__name__} without {lacking}"
            f"{': leave negative out of the prompt file.' if lacking == ['negative_prompt'] else '.'}"
        )
    if settings.scheduler:
        pipeline.scheduler = _swap_scheduler(pipeline.scheduler, settings.scheduler)
    pipeline.set_progress_bar_config(disable=True)
    # Older versions of diffusers pass over dtype when they load.
    return pipeline.to(device) if pipeline.dtype == dtype else pipeline.to(device, dtype)


def _swap_scheduler(current: Any, name: str) -> Any:
    import diffusers

    chosen = getattr(diffusers, name)
    if not isinstance(current, chosen) and chosen not in current.compatibles:
        raise GenerationError(f"Expected a scheduler that can replace {type(current).__name__}, found {name}.")
    return chosen.from_config(current.config)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries from drawing progress bars."""
    from diffusers.utils import logging as of_diffusers
    from transformers.utils import logging as of_transformers

    shown = [library for library in (of_diffusers, of_transformers) if library.is_progress_bar_enabled()]
    for library in shown:
        library.disable_progress_bar()
    try:
        yield
    finally:
        for library in shown:
            library.enable_progress_bar()
