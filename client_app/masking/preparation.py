"""Whether and with what a training task is masked: everything is checked here, before any training step.

Nothing here depends on what private images show, but for the cache itself, which was built of them or not: what that
means for a claim of differential privacy is decided here, too. How many training images there are does count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aegis_cache.store.cache import Cache, open_cache, read_manifest
from aegis_cache.store.manifest import Purpose
from aegis_cache.store.provenance import Provenance, Source
from client_app.granting import grant_size, require_beside, require_masking
from client_app.ledger.release import ReleaseRequest, describe_masking
from client_app.masking.rotation import Rotation
from client_app.masking.schedule import count_beside
from client_app.masking.synthetic import SyntheticImages
from client_app.site import DeployedHospital, Site
from federation.accounting.events import Relation, Unit, event_from_dict
from federation.config import Configuration, MaskingConfig, TrainingConfig
from federation.config.masking_table import MaskingMode
from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import SiteError, SiteErrorCode
from federation.occupancy import automatic_size
from federation.randomness import numpy_stream

_SPARE = 2
"""How many times M a cache must hold for updates to differ in their images: with less, most of them come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What has to be written down before the images of an update are used, where they are used in turn.

    Attributes:
        rotation: the hospital's count.
        since: images used before this update.
        used: images used once it has been made.
    """

    rotation: Rotation
    since: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """What one update is masked with.

    Attributes:
        mode: how synthetic images take part; not "none".
        synthetic: the M images of this update.
        micro_batch: images in memory at a time.
        batch_statistics: "refuse" or "freeze".
        turn: of a deployed hospital that uses its images in turn.
    """

    mode: MaskingMode
    synthetic: SyntheticImages
    micro_batch: int
    batch_statistics: str
    turn: Turn | None = None

    @property
    def size(self) -> int:
        """M, the number of synthetic images."""
        return len(self.synthetic)

    @property
    def record(self) -> str:
        """What the ledger says of it, always of the same length."""
        return describe_masking(self.mode, self.size, self.synthetic.cache.digest)

    def take_turn(self) -> None:
        """Write down that the images are used now; nothing where they are not used in turn.

        Raises:
            CacheError: the count cannot be written, or another task has used the same images.
        """
        if self.turn is not None:
            self.turn.rotation.note(self.synthetic.cache.digest, self.turn.used, since=self.turn.since)


def prepare_masking(
    site: Site,
    configuration: Configuration,
    plan: TrainingConfig,
    info: DatasetInfo,
    *,
    examples: int,
    version: int,
    seed: int,
    batches: int | None = None,
) -> Masking | None:
    """Return what the next update is masked with, or None for a run without masking; nothing is written.

    Args:
        site: whose cache, and whose policy.
        configuration: what the server asks for.
        plan: how it asks to train.
        info: of the hospital's own data.
        examples: n, training images.
        version: of the model that is trained; decides the turn of "rotate" at a simulated site.
        seed: of the draw of "subset".
        batches: S, optimizer steps of an epoch with real images, see `client_app.mini_batches`; by default n over B.

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
    size = _settle_size(site, wanted, plan, examples, -(-examples // plan.batch_size) if batches is None else batches)
    chosen, turn = _choose(site, cache, wanted, size=size, version=version, seed=seed)
    varied = _is_varied(site, wanted, info)
    return Masking(
        mode=wanted.mode,
        synthetic=SyntheticImages(cache=cache, chosen=chosen, varied=varied),
        micro_batch=wanted.piece_of(size, batch_size=plan.batch_size, pixels=info.height * info.width),
        batch_statistics=wanted.batch_statistics,
        turn=turn,
    )


def require_claimable(masking: Masking | None, configuration: Configuration, booked: Sequence[ReleaseRequest]) -> None:
    """Check that the epsilons that a run claims may still be claimed for updates that are masked.

    Under "dp-sgd" the synthetic gradients stand outside the mechanism: if private images chose or shaped the synthetic
    ones, they leave with them at a cost that no account knows. Under "update-gaussian" everything that is in the
    update, the synthetic part included, is clipped and noised together; but where scores of other splits are booked by
    themselves, images of these splits must not be in updates, too, and a cache may have been calibrated on them.
    Without a mechanism nothing is claimed.

    Args:
        masking: of the update.
        configuration: of the run.
        booked: what the hospital's ledger holds of generators trained on this data set.

    Raises:
        SiteError: a claim would not hold; the message names the manifest's field.
    """
    mechanism = configuration.privacy.mechanism
    if masking is None or mechanism == "none":
        return
    provenance = masking.synthetic.cache.manifest.provenance
    if provenance.is_private and (mechanism == "dp-sgd" or configuration.run.hospital_evaluation):
        remedy = "" if mechanism == "dp-sgd" else ", or set run.hospital-evaluation = false"
        raise SiteError(
            SiteErrorCode.MASKING_PROVENANCE,
            "Expected provenance.source = 'public' or 'dp' in the cache's manifest under privacy.mechanism = "
            f"{mechanism!r}, found {provenance.source.value!r}: {'; '.join(provenance.uses)}. What is claimed for "
            "updates and scores would not hold; build a cache without private images, or with --dp-epsilon" + remedy,
        )
    if mechanism == "dp-sgd" and provenance.source is Source.DP:
        _require_booked(provenance, Unit(configuration.privacy.unit), booked)


def _require_booked(provenance: Provenance, unit: Unit, booked: Sequence[ReleaseRequest]) -> None:
    event = None if provenance.event is None else event_from_dict(provenance.event)
    fitting = (Relation.ADD_REMOVE, unit)
    if event is None or not any(
        item.event == event and (item.mechanism.relation, item.mechanism.unit) == fitting for item in booked
    ):
        raise SiteError(
            SiteErrorCode.MASKING_PROVENANCE,
            "Expected the training in provenance.event of the cache's manifest to stand in this hospital's ledger, of "
            f"unit {unit.value!r} as in the run, found no such entry: what the generator cost would be missing from "
            "the epsilon that is claimed.",
        )


def _open(site: Site, folder: Path, info: DatasetInfo) -> Cache:
    """Return the cache in `folder`, made for this hospital's images; its modality goes unchecked, no data name one."""
    if info.task is not Task.MULTICLASS:
        raise SiteError(
            SiteErrorCode.MASKING_CACHE,
            f"Expected one label per image to mask, found the task {info.task.value!r}: synthetic images have one.",
        )
    modality = read_manifest(folder).purpose.modality
    expected = Purpose.of(info, hospital_id=site.hospital_id, data_set=site.data_set, modality=modality)
    return open_cache(folder, expected=expected)


def _settle_size(site: Site, wanted: MaskingConfig, plan: TrainingConfig, examples: int, batches: int) -> int:
    """Return M: at least one synthetic image in every step of "interleaved", which would have none to hide in."""
    least = batches if wanted.mode == "interleaved" else 1
    demanded = 0 if site.policy is None else site.policy.masking.min_per_step
    counted = max(automatic_size(examples, wanted.capacity, wanted.target, steps=least), demanded * least)
    size = grant_size(site.policy, wanted.images, counted)
    if size < least:
        raise SiteError(
            SiteErrorCode.PLAN_REFUSED,
            f"Expected masking.size={size} >= {least}, the mini-batches of an epoch here (training.batch-size="
            f"{plan.batch_size}): a step without synthetic images hides nothing.",
        )
    require_beside(site.policy, count_beside(wanted.mode, size, batches))
    return size


def _is_varied(site: Site, wanted: MaskingConfig, info: DatasetInfo) -> bool:
    """Return whether images change a little each time; rows of a table, whose columns have no neighbours, never do."""
    is_table = info.height == 1
    if is_table and "augment" in wanted.refreshes:
        raise SiteError(
            SiteErrorCode.PLAN_REFUSED,
            f"Expected masking.refresh without 'augment' for rows of a table, found {wanted.refresh!r}: moved by a "
            "column, a row means something else.",
        )
    return not is_table and ("augment" in wanted.refreshes or (site.policy is not None and site.policy.masking.vary))


def _choose(
    site: Site, cache: Cache, wanted: MaskingConfig, *, size: int, version: int, seed: int
) -> tuple[NDArray[np.int64], Turn | None]:
    """Return the places in `cache` of the `size` images of this update, and whose turn that was.

    Deviation: at a simulated site the turn follows from the model's version, so that a resumed run repeats it, not from
    the hospital's own count: a hospital that trains only some versions skips images, and with a cache of 2M and every
    other version it has the same ones each time.
    """
    there, ways = len(cache), wanted.refreshes
    least = _SPARE * size if ways & {"subset", "rotate"} else size
    if there < least:
        raise SiteError(
            SiteErrorCode.MASKING_CACHE,
            f"Expected at least {least} synthetic images for masking.size={wanted.size} (M={size}) and masking.refresh="
            f"{wanted.refresh!r}, found {there} in the cache: build a larger one, or ask for fewer.",
        )
    if "subset" in ways:
        return np.sort(numpy_stream(seed, "masking", "subset").choice(there, size, replace=False)), None
    order, start, turn = numpy_stream(0, "masking", cache.digest).permutation(there), 0, None
    if "rotate" in ways and isinstance(site, DeployedHospital):
        rotation = Rotation.of(site.state_dir, site.hospital_id)
        start = rotation.used(cache.digest)
        turn = Turn(rotation=rotation, since=start, used=start + size)
    elif "rotate" in ways:
        start = version * size
    return np.sort(order[(start + np.arange(size)) % there]), turn
