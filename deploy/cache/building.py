"""One cache, from what was asked for to what was published."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console

from aegis_cache.store.build import CacheBuild
from aegis_cache.store.cache import Cache, open_cache
from deploy.cache.auditing import remove_reports
from deploy.cache.construction import describe_build, make_builder
from deploy.cache.display import draw_sheet, show_build, show_training
from deploy.cache.generators import make_generator
from deploy.cache.permitted import PermittedImages
from deploy.cache.request import BuildRequest, Place
from federation.errors import GenerationError

if TYPE_CHECKING:
    from deploy.cache.private_training import PrivateTraining


def build_cache(request: BuildRequest, permitted: PermittedImages, place: Place, console: Console) -> Cache:
    """Return the cache that was built, published and opened.

    Args:
        request: what is to be built.
        permitted: for whom, and what may be looked at.
        place: where.
        console: where progress and warnings are shown.

    Raises:
        AegisError: nothing was published; the error says why.
        OSError: the volume refused.
    """
    say = warn_on(console)
    with show_training(console) as show:
        if training := _plan_private_training(request, permitted, place, console):
            training.run(place.folder, say=say, show=show)
    with show_training(console) as show:
        generator = make_generator(request, permitted, place.folder, fresh=place.fresh, say=say, show=show)
    builder = make_builder(generator, permitted, request)
    if place.fresh:
        CacheBuild.discard(place.folder)
    with show_build(console, request.images) as show_batch:
        builder.run(place.folder, resume=place.resume, show=show_batch)
    remove_reports(place.folder)
    opened = open_cache(place.folder)
    if place.sheet is not None:
        draw_sheet(place.sheet, opened, permitted)
    return opened


def describe_cache_build(
    request: BuildRequest, permitted: PermittedImages, place: Place, console: Console
) -> dict[str, Any]:
    """Return what `build_cache` would do; of a private training that is still to come, only what it would cost.

    Raises:
        AegisError: it would be refused.
    """
    if training := _plan_private_training(request, permitted, place, console):
        return {"private-training": training.describe()}
    return describe_build(request, permitted)


def warn_on(console: Console) -> Callable[[str], None]:
    """Return a function that shows a warning on `console`."""
    return lambda text: console.print(f"! {text}", style="yellow", markup=False)


def _plan_private_training(
    request: BuildRequest, permitted: PermittedImages, place: Place, console: Console
) -> PrivateTraining | None:
    """Return the private training that is still to come; None where none is asked for, or its generator is there."""
    if not request.dp_epsilon:
        return None
    try:
        from deploy.cache.private_training import PrivateTraining, find_private_generator
    except ImportError as error:
        raise GenerationError(
            f"Expected diffusers to train a generator, found {error}: pip install 'aegis-fl[generate]'."
        ) from None
    if find_private_generator(request, place.folder, place.policy, warn_on(console)):
        return None
    return PrivateTraining(request, permitted, place.policy)
