"""A signal ends a run at once, and Flower's own handler comes when the results are written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from server_app.interruption import interrupted_at_once


@pytest.fixture
def flower() -> Iterator[list[str]]:
    """Stand in for Flower's handler; the list says in which order things happened."""
    story: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: story.append("flower"))
    yield story
    signal.signal(signal.SIGINT, before)


def test_signal_interrupts_at_once_and_reaches_flower_when_the_results_are_written(flower: list[str]) -> None:
    @interrupted_at_once()
    def run() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGTERM)
            flower.append("written")

    with pytest.raises(KeyboardInterrupt):
        run()

    assert flower == ["written", "flower"]


def test_handlers_are_back_after_a_run_that_nobody_interrupted(flower: list[str]) -> None:
    with interrupted_at_once():
        pass
    signal.raise_signal(signal.SIGINT)

    assert flower == ["flower"]


def test_run_outside_the_main_thread_leaves_signals_alone(flower: list[str]) -> None:
    def run() -> None:
        with interrupted_at_once():
            flower.append("run")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert flower == ["run"]
