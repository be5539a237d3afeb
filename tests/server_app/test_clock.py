"""The engine's clock: the grid's own if it carries one, else real time in short naps."""

from __future__ import annotations

import pytest

from server_app.clock import WallClock, clock_of
from server_app.simulation.virtual_grid import VirtualClock


class GridWithClock:
    def __init__(self) -> None:
        self.clock = VirtualClock()


def test_clock_of_a_grid_is_the_one_it_carries() -> None:
    grid = GridWithClock()

    assert clock_of(grid) is grid.clock
    assert clock_of(grid).engine == "virtual"


def test_clock_of_any_other_grid_is_the_wall_clock() -> None:
    assert isinstance(clock_of(object()), WallClock)
    assert clock_of(object()).engine == "flower"


def test_wall_clock_counts_from_the_start_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1000.0, 1012.5])
    monkeypatch.setattr("server_app.clock.time.monotonic", lambda: next(times))

    assert WallClock().now() == 12.5


def test_wall_clock_of_a_resumed_run_leaves_out_the_time_between_its_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1000.0, 1003.0, 1004.5])
    monkeypatch.setattr("server_app.clock.time.monotonic", lambda: next(times))
    clock = WallClock()

    clock.set(500.0)

    assert clock.now() == 501.5


def test_only_hospitals_of_a_virtual_clock_begin_again_with_the_server() -> None:
    assert (VirtualClock().replays, WallClock().replays) == (True, False)


@pytest.mark.parametrize(("at_most_s", "nap_s"), [(10.0, 0.1), (0.1, 0.1), (0.03, 0.03), (0.0, 0.0), (-5.0, 0.0)])
def test_wall_clock_naps_for_the_poll_interval_at_most(
    monkeypatch: pytest.MonkeyPatch, at_most_s: float, nap_s: float
) -> None:
    naps: list[float] = []
    monkeypatch.setattr("server_app.clock.time.sleep", naps.append)

    WallClock().wait(at_most_s)

    assert naps == [nap_s]


def test_poll_interval_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr("server_app.clock.time.sleep", naps.append)

    WallClock(poll_interval_s=2.0).wait(10.0)

    assert naps == [2.0]
