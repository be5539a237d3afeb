"""Two-phase release from the server's side: what is not wanted costs nothing, and what was granted is used."""

from __future__ import annotations

from pathlib import Path

from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from server_app.summary import Summary
from tests.doubles import Hospitals, configure

SLOW = "hospital-002"


def run(folder: Path, hospitals: Hospitals, slow: SiteTiming, *, limit: int, release: str) -> Summary:
    """Run FedAsync with two hospitals that take a minute, and a third one that is `slow`."""
    configuration = configure(
        folder,
        aggregation__rule="fedasync",
        aggregation__rounds=40,
        aggregation__max_staleness=limit,
        aggregation__release=release,
        run__hospital_evaluation=False,
        run__allow_silent_hospitals=True,
    )
    return simulate(configuration, hospitals.app(), [SiteTiming(), SiteTiming(), slow])


def test_result_that_is_too_old_when_it_is_ready_is_discarded(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(), SiteTiming(train_s=600.0), limit=5, release="two-phase")

    assert summary.refused == {"discarded": 2}
    assert summary.per_hospital[SLOW].updates == 0


def test_result_that_is_too_old_when_it_arrives_is_refused_without_a_question(tmp_path: Path) -> None:
    summary = run(tmp_path, Hospitals(), SiteTiming(train_s=600.0), limit=5, release="immediate")

    assert summary.refused == {"too-stale": 2}


def test_update_whose_release_was_granted_counts_however_long_it_travels(tmp_path: Path) -> None:
    slow = SiteTiming(train_s=1.0, bytes_per_s=4.0)

    summary = run(tmp_path, Hospitals(), slow, limit=10, release="two-phase")

    assert summary.per_hospital[SLOW].updates == 2
    assert summary.staleness is not None
    assert summary.staleness.max > 10
    assert "too-stale" not in summary.refused
