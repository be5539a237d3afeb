"""Whole masked runs on the virtual grid: every mode, mechanism and rule goes together, and any run can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from client_app.main import app
from federation.config import parse_configuration
from federation.datasets.sites import load_site
from federation.errors import RunFailedError
from server_app import checkpoint as checkpoint_module
from server_app.engine import Engine
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from server_app.summary import RunStatus, Summary
from tests.client_app.calls import flat_configuration
from tests.client_app.masking.made_up_caches import make_cache
from tests.server_app.killing import Point, break_off
from tests.server_app.runs import final_digest, final_parameters, read_summary

IMAGES, SIZE = 30, 12
MODES = ("none", "sequential", "lambda", "joint", "interleaved")
MECHANISMS: dict[str, dict[str, Any]] = {
    "none": {},
    "dp-sgd": {"privacy__mechanism": "dp-sgd", "privacy__account": "rdp", "privacy__noise_multiplier": 5.0},
    "update-gaussian": {"privacy__mechanism": "update-gaussian", "privacy__noise_multiplier": 24.22},
}
RULES: dict[str, dict[str, Any]] = {
    "fedavg": {"aggregation__rounds": 2},
    "fedasync": {"aggregation__rule": "fedasync", "aggregation__rounds": 3},
    "buffered": {
        "aggregation__rule": "buffered", "aggregation__buffer_size": 2, "aggregation__release": "two-phase",
        "aggregation__rounds": 2,
    },
}  # fmt: skip
TIMINGS = [SiteTiming(train_s=10.0), SiteTiming(train_s=13.0)]


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the cache of either hospital, made without a private image."""
    root = tmp_path_factory.mktemp("caches")
    configuration = parse_configuration(flat_configuration(root))
    for index in range(len(TIMINGS)):
        info = load_site(configuration.data, site=index, sites=len(TIMINGS), seed=0).info
        make_cache(
            root / f"hospital-{index:03d}",
            images=IMAGES,
            hospital_id=f"hospital-{index:03d}",
            data_set="phantom",
            class_names=info.class_names,
            shape=(info.channels, info.height, info.width),
            seed=index,
        )
    return root


def run(folder: Path, caches: Path, mode: str, mechanism: str, rule: str, **settings: Any) -> Summary:
    """Run a federation of two hospitals, both of which must contribute."""
    masking = {
        "masking__mode": mode, "masking__size": str(SIZE), "masking__micro_batch": 8, "masking__cache": str(caches),
    }  # fmt: skip
    plan = {"training__threads": 1, "training__batch_size": 16, "run__central_evaluation": False}
    quiet = {"run__hospital_evaluation": False}
    chosen = {**masking, **plan, **quiet, **MECHANISMS[mechanism], **RULES[rule], **settings}
    return simulate(parse_configuration(flat_configuration(folder, **chosen)), app, TIMINGS)


def spent(summary: Summary) -> dict[str, Any]:
    """Return what every hospital paid, by every account, and what it says of it."""
    return {name: (row.epsilon_spent, row.delta, row.ledger) for name, row in summary.per_hospital.items()}


@pytest.fixture(scope="module")
def unmasked(caches: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[Path, Summary]]:
    """Give folder and summary of the run without masking, made once for each mechanism and rule."""

    @cache
    def make(mechanism: str, rule: str) -> tuple[Path, Summary]:
        folder = tmp_path_factory.mktemp("unmasked")
        return folder, run(folder, caches, "none", mechanism, rule)

    return make


@pytest.mark.parametrize(("mode", "mechanism", "rule"), list(product(MODES, MECHANISMS, RULES)))
def test_masked_run_ends_with_all_hospitals_at_the_price_of_the_unmasked_one(
    tmp_path: Path,
    caches: Path,
    unmasked: Callable[[str, str], tuple[Path, Summary]],
    mode: str,
    mechanism: str,
    rule: str,
) -> None:
    whole, plain = unmasked(mechanism, rule)

    summary = run(tmp_path, caches, mode, mechanism, rule)

    assert (summary.status, summary.model_version) == (RunStatus.COMPLETED, RULES[rule]["aggregation__rounds"])
    assert (summary.silent_hospitals, summary.refused) == ([], {})
    assert all(row.updates for row in summary.per_hospital.values())
    assert spent(summary) == spent(plain)
    assert (summary.bytes_up, summary.virtual_s) == (plain.bytes_up, plain.virtual_s)
    assert (final_digest(tmp_path) == final_digest(whole)) is (mode == "none")
    assert all((row.epsilon_spent is None) == (mechanism == "none") for row in summary.per_hospital.values())


BROKEN = [
    ("joint", "none", "fedavg", "subset", Point(Engine, "_record_application", 1, True)),
    ("interleaved", "dp-sgd", "buffered", "augment", Point(Engine, "_apply", 2, False)),
    ("lambda", "update-gaussian", "fedasync", "rotate", Point(Engine, "_send_training", 3, True)),
    ("sequential", "none", "buffered", "subset+augment", Point(checkpoint_module, "write_durably", 3, True)),
    ("interleaved", "update-gaussian", "buffered", "rotate+augment", Point(Engine, "_record_application", 1, True)),
    ("interleaved", "none", "fedavg", "rotate", Point(Engine, "_send_training", 4, True)),
    ("joint", "dp-sgd", "fedasync", "subset", Point(Engine, "_apply", 2, True)),
]


@pytest.mark.parametrize(("mode", "mechanism", "rule", "refresh", "point"), BROKEN)
def test_masked_run_that_is_killed_midway_resumes_to_the_same_bits(
    tmp_path: Path,
    caches: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    mechanism: str,
    rule: str,
    refresh: str,
    point: Point,
) -> None:
    def start(folder: str, **settings: Any) -> Summary:
        return run(
            tmp_path / folder,
            caches,
            mode,
            mechanism,
            rule,
            masking__refresh=refresh,
            aggregation__rounds=3,
            **settings,
        )

    whole = start("unbroken")
    break_off(monkeypatch, point, lambda: start("broken"))

    summary = start("broken", run__resume=True)

    assert final_digest(tmp_path / "broken") == final_digest(tmp_path / "unbroken")
    assert (summary.resumed, summary.model_version, spent(summary)) == (1, 3, spent(whole))


@pytest.mark.parametrize("refresh", ["subset", "augment", "rotate"])
def test_refresh_shows_other_images_from_one_version_to_the_next(tmp_path: Path, caches: Path, refresh: str) -> None:
    digests = set()
    for way in ("none", refresh):
        run(tmp_path / way, caches, "joint", "none", "fedavg", masking__refresh=way)
        digests.add(final_digest(tmp_path / way))

    assert len(digests) == 2


@pytest.mark.parametrize("micro_batch", [1, SIZE])
def test_run_ends_at_nearly_the_same_model_whatever_fits_into_memory(
    tmp_path: Path, caches: Path, micro_batch: int
) -> None:
    models = []
    for size in (8, micro_batch):
        folder = tmp_path / str(size)
        run(
            folder, caches, "interleaved", "none", "fedavg",
            masking__micro_batch=size, masking__refresh="augment", training__optimizer="sgd",
        )  # fmt: skip
        models.append(final_parameters(folder))

    for name, value in models[0].items():
        assert float((models[1][name] - value).abs().max()) < 1e-6


def test_hospital_without_its_cache_is_refused_by_its_code_and_the_run_says_so(tmp_path: Path, caches: Path) -> None:
    with pytest.raises(RunFailedError):
        run(tmp_path, caches / "nowhere", "joint", "none", "fedavg")

    hospitals = read_summary(tmp_path).per_hospital.values()
    assert [(row.updates, row.refused) for row in hospitals] == [(0, {"site-error:masking-cache": 3})] * 2
