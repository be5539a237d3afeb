"""Labels come out of the last bias: one exactly, those present from the sign, counts where the prediction is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attacks.linear_leakage.label_recovery import (
    estimate_label_counts,
    recover_present_labels,
    recover_single_label,
)
from federation.config import ModelConfig
from federation.errors import DataError
from federation.models import build_model
from tests.attacks.linear_leakage.made_up_victims import gradients_of, make_images, make_info

INFO = make_info(classes=5)
NETWORK = build_model(ModelConfig.model_validate({"name": "mlp", "hidden-units": 8}), INFO, seed=0)


def bias_of(labels: list[int]) -> tuple[torch.Tensor, np.ndarray]:
    """Return the gradient of the last bias, and the mean prediction."""
    images = make_images(len(labels), 1, INFO)
    probabilities = NETWORK(torch.from_numpy(images)).softmax(dim=1).mean(dim=0).detach().numpy()
    return gradients_of(NETWORK, images, np.array(labels))["output.bias"], probabilities


@pytest.mark.parametrize("label", range(5))
def test_single_label_is_the_negative_one_whatever_the_multiple(label: int) -> None:
    gradient, _ = bias_of([label])

    assert recover_single_label(gradient) == label
    assert recover_single_label(1e-3 * gradient) == label


def test_present_labels_are_the_negative_ones() -> None:
    gradient, _ = bias_of([4, 1])

    assert recover_present_labels(gradient).tolist() == [1, 4]


@pytest.mark.parametrize("labels", [[0], [1, 1, 1, 4], [0, 1, 2, 3, 4, 4, 4, 0], [2] * 9])
def test_counts_are_exact_where_the_mean_prediction_is_known(labels: list[int]) -> None:
    gradient, probabilities = bias_of(labels)

    counts = estimate_label_counts(gradient, probabilities, len(labels))

    assert counts.tolist() == np.bincount(labels, minlength=5).tolist()


def test_counts_from_a_wrong_prediction_still_sum_to_the_images() -> None:
    gradient, _ = bias_of([0, 1, 2, 3, 4, 4, 4])

    counts = estimate_label_counts(gradient, np.array([0.9, 0.025, 0.025, 0.025, 0.025]), 7)

    assert counts.sum() == 7
    assert (counts >= 0).all()


def test_remainders_go_to_the_greatest() -> None:
    probabilities = np.array([0.34, 0.32, 0.34])

    assert estimate_label_counts(torch.zeros(3), probabilities, 5).tolist() == [2, 1, 2]


@pytest.mark.parametrize(("classes", "images"), [(4, 3), (5, 0)])
def test_shapes_that_differ_and_no_image_are_refused(classes: int, images: int) -> None:
    with pytest.raises(DataError, match="as many probabilities as classes"):
        estimate_label_counts(torch.zeros(5), np.full(classes, 1 / classes), images)
