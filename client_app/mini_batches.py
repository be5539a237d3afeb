"""How many optimizer steps of an epoch take real images, among which "interleaved" masking divides synthetic ones."""

from __future__ import annotations

from federation.accounting.sampling_plan import plan_sampling
from federation.config import Configuration, TrainingConfig
from federation.datasets.image_set import ImageSet


def count_batches(configuration: Configuration, plan: TrainingConfig, images: ImageSet) -> int:
    """Return S, how many optimizer steps of an epoch take real images; under DP-SGD its units, not images, decide.

    Raises:
        SiteError: patients are to be protected in a masked run, and no image has a patient's number.
    """
    if configuration.privacy.mechanism != "dp-sgd" or not configuration.masking.is_on:
        return -(-len(images) // plan.batch_size)
    from client_app.dp_sgd.units import count_units

    units = count_units(images, configuration.privacy)
    return plan_sampling(units, batch_size=plan.batch_size, local_epochs=1)[1]
