"""The cost of DP-SGD is measured against stock Opacus doing the same work, and told as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from deploy.experiments import privacy_dp_sgd
from deploy.experiments.privacy_dp_sgd import dp_sgd_cells, dp_sgd_claims
from deploy.experiments.stock_opacus import time_stock_epoch
from federation.config import ModelConfig
from federation.datasets.image_set import DatasetInfo, Task
from federation.models import build_model


@pytest.mark.parametrize("number", [0, 1])
def test_cell_times_both_epochs_in_pairs_and_leaves_the_threads_as_they_were(tmp_path: Path, number: int) -> None:
    cell = dp_sgd_cells(images=24, repetitions=2)[number]
    settings = {**cell.settings, "model": "mlp", "batch_size": 8}
    torch.set_num_threads(2)

    result = cell.compute(settings, tmp_path)

    assert torch.get_num_threads() == 2
    assert cell.alone
    assert [pair["ours_s"] / pair["stock_s"] for pair in result["pairs"]] == result["ratios"]
    assert len(result["ratios"]) == 2
    assert json.loads(json.dumps(result)) == result


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_baseline_trains_the_network_in_as_many_steps_as_an_epoch_has(mode: str) -> None:
    info = DatasetInfo(name="n", task=Task.MULTICLASS, class_names=("a", "b"), channels=1, height=6, width=6)
    model = build_model(ModelConfig(name="mlp"), info, seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    seconds, steps = time_stock_epoch(
        model,
        torch.randint(0, 256, (40, 1, 6, 6), dtype=torch.uint8),
        torch.randint(0, 2, (40,)),
        batch_size=8,
        learning_rate=0.1,
        noise_multiplier=1.0,
        clip_norm=1.0,
        mode=mode,
    )

    assert seconds > 0
    assert steps == 5
    assert all(not torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_claim_is_the_median_ratio_of_hooks() -> None:
    results = {
        "dp-sgd-epoch-hooks": {"ratios": [0.9, 1.0, 5.0]},
        "dp-sgd-epoch-ghost": {"ratios": [2.0, 1.5, 1.25]},
    }

    (found,) = dp_sgd_claims(results)

    assert (found.id, found.value, found.target, found.met) == ("dpsgd_epoch_ratio", 1.0, "<= 1.10", True)
    assert found.cells == ["dp-sgd-epoch-hooks", "dp-sgd-epoch-ghost"]
    assert "median 1.50 under ghost clipping" in found.note


def test_unmeasured_claim_is_not_met() -> None:
    (found,) = dp_sgd_claims({})

    assert found.value is None
    assert not found.met
    assert found.command == privacy_dp_sgd._COMMAND
