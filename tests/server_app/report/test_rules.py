from __future__ import annotations

import pytest

from federation.config import AggregationConfig
from server_app.report.rules import Setting, describe_rule


def describe(**settings: Setting) -> str:
    return " ".join(describe_rule({f"aggregation.{key.replace('_', '-')}": value for key, value in settings.items()}))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rule": "fedasync"}, "Every update made a version as it arrived."),
        ({"rule": "buffered", "buffer_size": 3}, "of every 3 updates"),
        ({"rule": "semi-synchronous", "period_s": 90.0}, "every 90 s"),
        ({"rule": "fedavg"}, "when all sampled hospitals had answered"),
        ({"staleness": "constant"}, "as much as a fresh one."),
        ({"staleness": "exponential", "staleness_alpha": 0.9}, "weighed 0.9^s of"),
        ({"staleness": "polynomial", "staleness_exponent": 2.0}, "weighed (1 + s)^-2 of"),
        ({"staleness": "hinge", "staleness_grace": 3, "staleness_slope": 0.5}, "1 / (0.5 (s - 3) + 1)"),
        ({"max_staleness": 7}, "One more than 7 versions old was refused."),
        ({"max_lead": 2}, "2 updates ahead of the median one waited"),
        ({"balance": 0.5, "balance_limit": 3.0}, "^0.5, at most 3 times"),
        ({"release": "immediate"}, "left the hospitals at once"),
        ({"release": "two-phase"}, "was never released"),
    ],
)
def test_rule_is_told_in_words_with_its_numbers(settings: dict[str, Setting], expected: str) -> None:
    assert expected in describe(**settings)


def test_what_is_off_is_not_told() -> None:
    assert "waited." not in describe(max_lead=0)
    assert "seldom heard" not in describe(balance=0.0)


def test_key_that_a_run_does_not_name_counts_with_its_default() -> None:
    assert f"One more than {AggregationConfig().max_staleness} versions old" in describe()


def test_every_rule_staleness_and_release_has_its_own_words() -> None:
    fields = AggregationConfig.model_fields
    for key in ("rule", "staleness", "release"):
        values = fields[key].annotation.__args__  # type: ignore[union-attr]
        assert len({describe(**{key: value}) for value in values}) == len(values)
        assert f" {key} was " not in " ".join(describe(**{key: value}) for value in values)


def test_values_of_a_later_version_are_told_as_they_are() -> None:
    told = describe(rule="{gossip}", staleness="cubic", release="never")

    assert "The rule was {gossip}." in told
    assert "Age counted by cubic." in told
    assert "Results left by never." in told
