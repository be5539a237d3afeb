"""Virtual seconds of one hospital."""

from __future__ import annotations

import math

import pytest

from server_app.simulation.timing import SiteTiming


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [("train", 60.0), ("train.release", 0.0), ("train.discard", 0.0), ("evaluate", 5.0), ("query", 0.0)],
)
def test_kind_of_task_decides_how_long_it_takes(kind: str, seconds: float) -> None:
    assert SiteTiming(train_s=60.0, evaluate_s=5.0).compute_s(kind) == seconds


def test_bytes_take_their_number_over_the_speed_of_the_link() -> None:
    assert SiteTiming(bytes_per_s=250.0).transfer_s(1000) == 4.0
    assert SiteTiming().transfer_s(10**12) == 0.0


def test_slower_hospital_computes_longer_on_the_same_link() -> None:
    slower = SiteTiming(train_s=10.0, evaluate_s=2.0, bytes_per_s=7.0).slower(3.0)

    assert slower == SiteTiming(train_s=30.0, evaluate_s=6.0, bytes_per_s=7.0)
    assert SiteTiming().bytes_per_s == math.inf
