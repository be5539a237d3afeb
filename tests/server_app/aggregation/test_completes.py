"""An update that makes a version alone need not wait on the disk; with others it would be one more in memory."""

from __future__ import annotations

import pytest

from federation.config import AggregationConfig
from server_app.aggregation.buffered import Buffered
from server_app.aggregation.fedasync import FedAsync
from server_app.aggregation.fedavg import FedAvg
from server_app.aggregation.rule import Situation, Update
from server_app.aggregation.semi_synchronous import SemiSynchronous


def situation(*names: str) -> Situation:
    return Situation(now=0.0, version=0, idle=list(names), given=dict.fromkeys(names, 0))


def update_of(name: str) -> Update:
    return Update(number=1, hospital_id=name, base_version=0, examples=1, load=dict)


def test_update_under_fedasync_is_alone_if_its_hospital_was_asked() -> None:
    rule = FedAsync(AggregationConfig(rule="fedasync"), seed=0)
    rule.choose(situation("a", "b"))

    assert rule.completes("a")
    assert not rule.completes("c")


@pytest.mark.parametrize("size", [2, 3])
def test_update_that_fills_a_buffer_is_not_alone(size: int) -> None:
    rule = Buffered(AggregationConfig(rule="buffered"), seed=0, size=size)
    names = [f"hospital-{number}" for number in range(size)]
    rule.choose(situation(*names))

    for name in names:
        assert not rule.completes(name)
        rule.offer(update_of(name))


def test_update_at_a_tick_is_not_alone_for_all_that_is_known() -> None:
    rule = SemiSynchronous(AggregationConfig(rule="semi-synchronous"), seed=0)
    rule.choose(situation("a"))

    assert not rule.completes("a")


def test_last_update_of_a_round_is_alone_in_a_round_of_one_only() -> None:
    settings = AggregationConfig()
    alone, together = (FedAvg(settings, seed=0, first_round=0) for _ in range(2))
    alone.choose(situation("a"))
    together.choose(situation("a", "b"))
    assert not together.completes("b")
    together.offer(update_of("a"))

    assert alone.completes("a")
    assert not together.completes("b")


def test_update_beside_one_that_waited_for_a_restart_is_not_alone() -> None:
    rule = FedAvg(AggregationConfig(), seed=0, first_round=0)
    rule.restore(update_of("a"))
    rule.choose(situation("a", "b"))

    assert not rule.completes("b")
