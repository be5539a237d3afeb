"""How many steps of an epoch take real images: by images, or under DP-SGD by whom it protects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from client_app.mini_batches import count_batches
from federation.config import parse_configuration
from federation.datasets.image_set import ImageSet
from tests.client_app.calls import flat_configuration

IMAGES = ImageSet(images=np.zeros((60, 1, 8, 8), np.uint8), labels=np.zeros(60, np.int64), patients=np.arange(60) % 5)
DP_SGD = {"privacy__mechanism": "dp-sgd", "privacy__account": "rdp", "privacy__noise_multiplier": 5.0}


@pytest.mark.parametrize(
    ("settings", "batch_size", "expected"),
    [
        ({}, 7, 9),
        ({**DP_SGD}, 7, 9),
        ({**DP_SGD}, 8, 8),  # 7.5, rounded
        ({**DP_SGD, "privacy__unit": "patient"}, 3, 2),  # of five patients
        ({**DP_SGD, "privacy__unit": "patient"}, 100, 1),
    ],
)
def test_steps_follow_from_images_or_from_units_of_privacy(
    tmp_path: Path, settings: dict[str, object], batch_size: int, expected: int
) -> None:
    configuration = parse_configuration(
        flat_configuration(
            tmp_path,
            masking__mode="interleaved",
            masking__cache=str(tmp_path),
            run__hospital_evaluation=False,
            **settings,
        )
    )
    plan = configuration.training.model_copy(update={"batch_size": batch_size})

    assert count_batches(configuration, plan, IMAGES) == expected
