"""The training task of a hospital and a version: what it is sent, and the seed that a simulation trains it with."""

from __future__ import annotations

from federation.config import Configuration
from federation.randomness import derive_seed
from federation.records.fields import Records
from federation.records.tasks import encode_training_task
from federation.records.tensors import EncodedParameters


def encode_task(settings: Configuration, arrays: EncodedParameters, *, version: int, hospital_id: str) -> Records:
    """Return the task of `hospital_id` for the model `version`, encoded as `arrays`; the same whenever it is made."""
    return encode_training_task(
        arrays,
        model_version=version,
        plan=settings.training.at_version(version),
        seed=derive_seed(settings.run.seed, "training", version, hospital_id),
        run=settings.run.name,
    )
