"""From the command line to a generator: loaded, fitted to, or trained on the permitted images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aegis_cache.generation.generator import Generator
from aegis_cache.store.provenance import Provenance, Source
from deploy.cache.permitted import PermittedImages
from deploy.cache.request import BuildRequest
from federation.errors import ConfigurationError, GenerationError
from federation.randomness import derive_seed

_UNKNOWN = Provenance(
    source=Source.PRIVATE_ADAPTED, uses=("the weights' origin was not stated, so private images count as used",)
)


def make_generator(
    request: BuildRequest,
    permitted: PermittedImages,
    folder: Path,
    *,
    fresh: bool,
    say: Callable[[str], None],
    show: Callable[[float, str], None],
) -> Generator:
    """Return the generator that `request` describes.

    Args:
        request: which.
        permitted: what it may learn from.
        folder: of the cache; a generator that is trained here is kept below it.
        fresh: whether a kept generator of other images or settings is replaced.
        say: told what a person should know.
        show: told how much of the training is done, from 0 to 1, and its state in words.

    Raises:
        ConfigurationError: weights are not named, the policy does not allow what would have to be done, or phantoms are
            asked for by a hospital with other images.
        GenerationError: weights are missing or damaged, a class cannot be made, or there are too few images to match
            moments.
    """
    if not request.match_moments:
        return _make(request, permitted, folder, fresh=fresh, say=say, show=show)
    from aegis_cache.generation.matched import SAMPLE, MatchedGenerator

    images = permitted.require_for_training()
    made = _make(request, permitted, folder, fresh=fresh, say=say, show=show)
    show(0.0, f"matching moments, on {SAMPLE} generated images")
    return MatchedGenerator(made, images, seed=derive_seed(request.seed, "cache", "moments"))


def _make(
    request: BuildRequest,
    permitted: PermittedImages,
    folder: Path,
    *,
    fresh: bool,
    say: Callable[[str], None],
    show: Callable[[float, str], None],
) -> Generator:
    provenance = Provenance.public() if request.weights_are_public else _UNKNOWN
    if request.generator == "folder":
        return _open_folder(request, permitted, provenance)
    if request.generator == "gaussian":
        return _fit_gaussian(request, permitted)
    if request.generator == "phantom":
        return _draw_phantoms(permitted)
    if request.generator == "stable-diffusion":
        return _open_stable_diffusion(request, permitted, provenance, say)
    with _diffusers_needed():
        from deploy.cache.training import load_or_train

    return load_or_train(request, permitted, folder, provenance, fresh=fresh, show=show)


def _open_folder(request: BuildRequest, permitted: PermittedImages, provenance: Provenance) -> Generator:
    from aegis_cache.generation.folder import FolderGenerator

    return FolderGenerator.read(_require_weights(request), permitted.info.class_names, provenance=provenance)


def _fit_gaussian(request: BuildRequest, permitted: PermittedImages) -> Generator:
    from aegis_cache.generation.gaussian import GaussianGenerator

    if request.weights is not None:
        return GaussianGenerator.load(request.weights)
    images = permitted.require_for_training()
    return GaussianGenerator.fit(images, permitted.info.class_names)


def _draw_phantoms(permitted: PermittedImages) -> Generator:
    from aegis_cache.generation.phantom import PhantomGenerator

    return PhantomGenerator(permitted.require_phantom(), stream=permitted.hospital_id)


def _open_stable_diffusion(
    request: BuildRequest, permitted: PermittedImages, provenance: Provenance, say: Callable[[str], None]
) -> Generator:
    from aegis_cache.generation.stable_diffusion.generator import DEFAULT_MODEL, StableDiffusionGenerator
    from aegis_cache.generation.stable_diffusion.pipeline import SamplingSettings
    from aegis_cache.generation.stable_diffusion.prompt_template import PromptTemplate

    wanted = request.prompts or request.modality
    own = Path(wanted)
    prompts = PromptTemplate.read(own) if own.suffix == ".toml" else PromptTemplate.of_modality(wanted)
    return StableDiffusionGenerator(
        permitted.info.class_names,
        prompts,
        model=str(request.weights) if request.weights is not None else DEFAULT_MODEL,
        settings=SamplingSettings(
            steps=request.steps or SamplingSettings().steps,
            scheduler=request.scheduler,
            batch_size=request.draw_at_once or SamplingSettings().batch_size,
        ),
        provenance=None if request.weights is None else provenance,
        say=say,
    )


def _require_weights(request: BuildRequest) -> Path:
    if request.weights is None:
        raise ConfigurationError(
            f"Expected --weights for --generator {request.generator}: a folder or file on this machine."
        )
    return request.weights


@contextmanager
def _diffusers_needed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise GenerationError(
            f"Expected diffusers to generate images, found {error}: pip install 'aegis-fl[generate]'."
        ) from None
