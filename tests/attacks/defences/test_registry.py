"""Every baseline is named as it is listed, says where it is from, and protects a network with planted bins."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from attacks.defences.defence import Defence
from attacks.defences.registry import BASELINES
from attacks.linear_leakage.bins import Bins
from attacks.linear_leakage.planted_network import FrontPlanted, plant_in_front
from federation.datasets.image_set import DatasetInfo, Task
from tests.attacks.defences.made_up_steps import SHAPE, gradient_of, make_step


def plant() -> FrontPlanted:
    """Return bins in front of a network for images of `SHAPE`."""
    channels, height, width = SHAPE
    info = DatasetInfo(
        name="made-up",
        task=Task.MULTICLASS,
        class_names=("a", "b", "c", "d"),
        channels=channels,
        height=height,
        width=width,
    )
    bins = Bins(direction=np.full(9, 1 / 9), thresholds=np.linspace(0.2, 0.7, 12), top=1.0)
    return plant_in_front(bins, "cumulative", info, model="mlp", seed=0)


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_baseline_protects_a_planted_network(name: str) -> None:
    defence = BASELINES[name]()
    network = defence.prepare(plant(), torch.Generator().manual_seed(0))
    step = make_step(network, count=8)
    step = dataclasses.replace(step, losses=defence.losses)
    gradient = gradient_of(step, defence)

    protected = defence.protect(gradient, step)

    assert defence.name == name
    assert defence.source
    assert [(key, value.shape) for key, value in protected.items()] == [
        (key, value.shape) for key, value in gradient.items()
    ]
    assert all(value.isfinite().all() and not value.requires_grad for value in protected.values())
    shaped = name in ("none", "eloul", "precode")
    assert shaped == all(torch.equal(protected[key], value) for key, value in gradient.items())


def test_each_call_makes_a_defence_of_its_own() -> None:
    assert all(BASELINES[name]() is not BASELINES[name]() for name in BASELINES)
    assert type(BASELINES["none"]()) is Defence
