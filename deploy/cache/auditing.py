"""The memorization audit of a published cache against the images that its hospital permits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from aegis_cache.audit.membership import audit_membership
from aegis_cache.audit.memorization import audit_memorization
from aegis_cache.audit.report import as_dict, write_report
from aegis_cache.store.cache import Cache
from deploy.cache.construction import make_extractor
from deploy.cache.permitted import PermittedImages
from federation.datasets.image_set import ImageSet


def audit_cache(opened: Cache, permitted: PermittedImages, features: str, folder: Path) -> dict[str, Any]:
    """Return what the audit found, without any image, and write `audit.html`, which shows some, and `audit.json`.

    Args:
        opened: the cache.
        permitted: training images that it may have seen, and held-out ones that it has not.
        features: as for `make_extractor`.
        folder: where they go.

    Raises:
        ConfigurationError: the policy lets no image be used.
        DataError: there are too few images, or they are of another shape.
        GenerationError: the features cannot be loaded.
    """
    train, held_out = permitted.require("to look for copies of training images")
    synthetic = ImageSet(images=opened.take(np.arange(len(opened))), labels=np.array(opened.labels))
    extractors = [] if features == "pixels" else [make_extractor(features, permitted)]
    memorization = audit_memorization(
        synthetic, train, held_out, extractors, class_names=permitted.info.class_names, seed=0
    )
    membership = audit_membership(synthetic, train, held_out, extractors, seed=0)
    write_report(
        folder,
        title=f"Memorization audit: {permitted.hospital_id}, {permitted.data_set}",
        memorization=memorization,
        membership=membership,
        synthetic=synthetic,
        train=train,
    )
    return as_dict(memorization, membership)
