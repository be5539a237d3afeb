"""What a masked simulation says before it begins, and what keeps it from beginning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from aegis_cache.store.cache import open_cache
from aegis_cache.store.provenance import Provenance, Source
from deploy.cli import main
from deploy.masking_plan import describe_plan, plan_masking
from federation.config import Configuration, flatten, parse_configuration
from federation.datasets.sites import load_site
from federation.errors import ConfigurationError
from federation.occupancy import largest_verbatim_share
from tests.client_app.masking.made_up_caches import make_cache

PHANTOM = ("phantom-0", "phantom-1")
FAST = {
    "model.name": "mlp",
    "data.phantom-examples": 90,
    "data.phantom-classes": 2,
    "data.partition": "iid",
    "aggregation.rounds": 2,
    "masking.mode": "interleaved",
    "masking.size": "24",
    "masking.micro-batch": 16,
}
FILTERED = Provenance(source=Source.PRIVATE_FILTERED, uses=("images were compared with private ones",))


def settings_of(folder: Path, **settings: Any) -> Configuration:
    own = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    flat = {**flatten(Configuration()), **FAST, "masking.cache": str(folder / "caches"), "run.root": str(folder), **own}
    return parse_configuration(flat)


def make_caches(folder: Path, *, images: int = 24, provenance: Provenance | None = None) -> None:
    data = settings_of(folder).data
    for site in range(2):
        info = load_site(data, site=site, sites=2, seed=0).info
        make_cache(
            folder / "caches" / f"hospital-{site:03d}",
            images=images,
            hospital_id=f"hospital-{site:03d}",
            data_set="phantom",
            class_names=info.class_names,
            shape=(info.channels, info.height, info.width),
            provenance=provenance,
        )


def simulate(folder: Path, *extra: str) -> Any:
    flat = {**FAST, "masking.cache": str(folder / "caches"), "run.root": str(folder)}
    pairs = [part for key, value in flat.items() for part in ("--set", f"{key}={value}")]
    return CliRunner().invoke(main, ["simulate", "--hospitals", "2", "--app", str(folder), *pairs, *extra])


def test_plan_counts_the_share_that_a_server_is_expected_to_read(tmp_path: Path) -> None:
    make_caches(tmp_path)

    plans = plan_masking(settings_of(tmp_path), 2)

    assert [plan.hospital_id for plan in plans] == ["hospital-000", "hospital-001"]
    for plan in plans:
        assert plan.size == 24
        assert plan.share == pytest.approx((1 - 1 / 1024) ** (plan.examples + 23))
        assert plan.stronger_share == pytest.approx((1 - 1 / 16384) ** (plan.examples + 23))
        assert plan.uneven_share == plan.share


@pytest.mark.parametrize(("mode", "beside"), [("interleaved", 3), ("joint", 24), ("sequential", 0)])
def test_plan_counts_the_first_step_and_every_class_by_themselves(tmp_path: Path, mode: str, beside: int) -> None:
    make_caches(tmp_path)
    configuration = settings_of(tmp_path, masking__mode=mode, training__batch_size=5, masking__capacity=16)

    plans = plan_masking(configuration, 2)

    for site, plan in enumerate(plans):
        own = load_site(configuration.data, site=site, sites=2, seed=0).train.labels
        cached = open_cache(tmp_path / "caches" / plan.hospital_id).labels if mode != "sequential" else np.empty(0)
        assert -(-plan.examples // 5) == 7
        assert plan.step_share == pytest.approx(largest_verbatim_share(5, beside, 16))
        assert plan.class_share == pytest.approx(
            max(largest_verbatim_share(int((own == a).sum()), int((cached == a).sum()), 16) for a in set(own.tolist()))
        )
        assert plan.uneven_share >= plan.share


def test_share_is_rounded_up_and_never_told_as_nothing(tmp_path: Path) -> None:
    make_caches(tmp_path)
    configuration = settings_of(tmp_path, masking__capacity=2)

    line = describe_plan(configuration.masking, configuration.training, plan_masking(configuration, 2))[0]

    assert "where it is largest: 0.1 % (hospital-00" in line
    assert " 0.0 %" not in line


def test_run_without_masking_has_no_plan(tmp_path: Path) -> None:
    configuration = settings_of(tmp_path, masking__mode="none")

    assert plan_masking(configuration, 2) == []
    assert describe_plan(configuration.masking, configuration.training, []) == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "masking.size=auto would reach it"),
        ({"masking__mode": "sequential"}, "under sequential with adam synthetic images do not weigh as much"),
        ({}, "cancel in their difference"),
    ],
)
def test_plan_warns_of_what_is_weak(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    make_caches(tmp_path)
    configuration = settings_of(tmp_path, **settings)

    lines = describe_plan(configuration.masking, configuration.training, plan_masking(configuration, 2))

    assert "No bound, and no differential privacy." in lines[0]
    assert any(told in line for line in lines)


def test_plan_that_is_strong_warns_of_nothing(tmp_path: Path) -> None:
    make_caches(tmp_path)
    configuration = settings_of(tmp_path, masking__refresh="augment", masking__capacity=2)

    assert len(describe_plan(configuration.masking, configuration.training, plan_masking(configuration, 2))) == 1


def test_hospital_without_a_cache_is_named_before_the_run_begins(tmp_path: Path) -> None:
    make_caches(tmp_path)
    (tmp_path / "caches" / "hospital-001" / "manifest.json").unlink()

    result = simulate(tmp_path)

    assert result.exit_code == 2
    assert "hospital-001" in result.stderr
    assert not (tmp_path / "run" / "events.jsonl").exists()


def test_cache_that_private_images_had_a_part_in_stops_a_private_run(tmp_path: Path) -> None:
    make_caches(tmp_path, provenance=FILTERED)

    with pytest.raises(ConfigurationError, match=re.escape("provenance.source")):
        plan_masking(settings_of(tmp_path, privacy__mechanism="dp-sgd"), 2)

    assert len(plan_masking(settings_of(tmp_path, privacy__mechanism="none"), 2)) == 2


def test_masked_simulation_tells_its_plan_and_runs(tmp_path: Path) -> None:
    make_caches(tmp_path)

    result = simulate(tmp_path)

    assert result.exit_code == 0, result.output
    assert "masking: interleaved, M=24" in result.stderr
    assert "<h2>Masking</h2>" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_relative_folder_of_caches_counts_from_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_caches(tmp_path)
    monkeypatch.chdir(tmp_path)

    assert simulate(tmp_path, "--set", "masking.cache=caches").exit_code == 0
