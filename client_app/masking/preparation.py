"""Whether and with what a training task is masked: everything is checked here, before any training step.

Nothing here depends on what private images show, but for the cache itself, which was built of them or not: what that
means for a claim of differential privacy is decided here, too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aegis_cache.store.cache import Cache, open_cache, read_manifest
from aegis_cache.store.manifest import Purpose
from aegis_cache.store.provenance import Source
from client_app.granting import require_masking
from client_app.ledger.release import describe_masking
from client_app.masking.rotation import next_block
from client_app.masking.synthetic import SyntheticImages
from client_app.site import DeployedHospital, Site
from federation.accounting.events import Event, event_from_dict
from federation.config import Configuration, MaskingConfig
from federation.config.masking_table import MaskingMode
from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import SiteError, SiteErrorCode
from federation.occupancy import expected_verbatim_share, smallest_size
from federation.preprocessing import PREPROCESSING
from federation.randomness import numpy_stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """What one update is masked with.

    Attributes:
        mode: how synthetic images take part; not "none".
        synthetic: the M images of this update.
        micro_batch: images in memory at a time.
        batch_statistics: "refuse" or "freeze".
        expected_share: of the real images that would leave verbatim at the assumed capacity; a count, not a bound.
    """

    mode: MaskingMode
    synthetic: SyntheticImages
    micro_batch: int
    batch_statistics: str
    expected_share: float

    @property
    def size(self) -> int:
        """M, the number of synthetic images."""
        return len(self.synthetic)

    @property
    def record(self) -> str:
        """What the ledger says of it, always of the same length."""
        return describe_masking(self.mode, self.size, self.synthetic.cache.digest)


def prepare_masking(
    site: Site, configuration: Configuration, info: DatasetInfo, *, examples: int, version: int, seed: int
) -> Masking | None:
    """Return what the next update is masked with, or None for a run without masking.

    Args:
        site: whose cache, and whose policy.
        configuration: what the server asks for.
        info: of the hospital's own data.
        examples: n, training images.
        version: of the model that is trained; decides the turn of `rotate` at a simulated site.
        seed: of the draw of `subset`.

    Raises:
        SiteError: the policy demands masking or more of it, the cache cannot be used, or it has too few images.
        CacheError: there is no cache, it is damaged, or made for other images or labels.
    """
    wanted = configuration.masking
    require_masking(site.policy, wanted.mode)
    if not wanted.is_on:
        return None
    if site.cache_dir is None:
        raise SiteError(
            SiteErrorCode.MASKING_CACHE,
            "Expected the folder of a cache: masking.cache in the site policy, or for a simulated hospital in the run "
            "configuration; `aegis cache build` makes one.",
        )
    cache = _open(site, site.cache_dir, info)
    size = wanted.images or smallest_size(examples, wanted.capacity, wanted.target)
    require_masking(site.policy, wanted.mode, size=size)
    return Masking(
        mode=wanted.mode,
        synthetic=SyntheticImages(
            cache=cache,
            chosen=_choose(site, cache, wanted, size=size, version=version, seed=seed),
            varied="augment" in wanted.refreshes,
        ),
        micro_batch=wanted.micro_batch,
        batch_statistics=wanted.batch_statistics,
        expected_share=expected_verbatim_share(examples, size, wanted.capacity),
    )


def require_claimable(masking: Masking | None, mechanism: str, booked: Collection[Event]) -> None:
    """Check that an epsilon may still be claimed for an update under `mechanism` that is masked.

    Under "dp-sgd" the synthetic gradients stand outside the mechanism: if private images chose or shaped the synthetic
    ones, they leave with them at a cost that no account knows. Under "update-gaussian" everything that is in the
    update, the synthetic part included, is clipped and noised together. Without a mechanism nothing is claimed.

    Args:
        masking: of the update.
        mechanism: of the update.
        booked: events in the hospital's ledger for this data set.

    Raises:
        SiteError: the claim would not hold; the message names the manifest's field.
    """
    if masking is None or mechanism != "dp-sgd":
        return
    provenance = masking.synthetic.cache.manifest.provenance
    if provenance.is_private:
        raise SiteError(
            SiteErrorCode.MASKING_PROVENANCE,
            "Expected provenance.source = 'public' or 'dp' in the cache's manifest under privacy.mechanism = 'dp-sgd', "
            f"found {provenance.source.value!r}: {'; '.join(provenance.uses)}. No epsilon can be claimed for updates "
            "that are masked with these images; build a cache without private images, or with --dp-epsilon.",
        )
    if provenance.source is Source.DP and (provenance.event is None or event_from_dict(provenance.event) not in booked):
        raise SiteError(
            SiteErrorCode.MASKING_PROVENANCE,
            "Expected the release in provenance.event of the cache's manifest to be booked in this hospital's ledger, "
            "found no such entry: what the generator cost would be missing from the epsilon that is claimed.",
        )


def _open(site: Site, folder: Path, info: DatasetInfo) -> Cache:
    if info.task is not Task.MULTICLASS:
        raise SiteError(
            SiteErrorCode.MASKING_CACHE,
            f"Expected one label per image to mask, found the task {info.task.value!r}: synthetic images have one.",
        )
    expected = Purpose(
        hospital_id=site.hospital_id,
        data_set=site.data_set,
        modality=read_manifest(folder).purpose.modality,
        class_names=info.class_names,
        channels=info.channels,
        height=info.height,
        width=info.width,
        preprocessing=PREPROCESSING,
    )
    return open_cache(folder, expected=expected)


def _choose(
    site: Site, cache: Cache, wanted: MaskingConfig, *, size: int, version: int, seed: int
) -> NDArray[np.int64]:
    """Return the places in `cache` of the `size` images of this update."""
    there, ways = len(cache), wanted.refreshes
    least = size + 1 if "subset" in ways else 2 * size if "rotate" in ways else size
    if there < least:
        raise SiteError(
            SiteErrorCode.MASKING_CACHE,
            f"Expected at least {least} synthetic images for masking.size={wanted.size} (M={size}) and masking.refresh="
            f"{wanted.refresh!r}, found {there} in the cache: build a larger one, or ask for fewer.",
        )
    if "subset" in ways:
        return np.sort(numpy_stream(seed, "masking", "subset").choice(there, size, replace=False))
    order = numpy_stream(0, "masking", cache.digest).permutation(there)
    block = 0
    if "rotate" in ways:
        blocks = there // size
        deployed = isinstance(site, DeployedHospital)
        block = next_block(site.state_dir, site.hospital_id, cache.digest, blocks) if deployed else version % blocks
    return np.sort(order[block * size : (block + 1) * size])
