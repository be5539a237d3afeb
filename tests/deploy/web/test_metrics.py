"""The text format of Prometheus, against what its documentation says of it."""

from __future__ import annotations

import math

import pytest

from deploy.web.metrics import Sample, render


def test_samples_of_a_name_stand_together_below_its_help_and_type() -> None:
    text = render(
        [
            Sample(name="a_total", value=3, help="How many.", kind="counter", labels={"code": "x"}),
            Sample(name="b", value=0.25, help="How much."),
            Sample(name="a_total", value=4, help="How many.", kind="counter", labels={"code": "y", "which": "z"}),
        ]
    )

    assert text == (
        "# HELP a_total How many.\n"
        "# TYPE a_total counter\n"
        'a_total{code="x"} 3\n'
        'a_total{code="y",which="z"} 4\n'
        "# HELP b How much.\n"
        "# TYPE b gauge\n"
        "b 0.25\n"
    )


def test_label_values_cannot_break_out_of_their_line() -> None:
    text = render([Sample(name="a", value=1, help="One\nline \\ of help.", labels={"x": 'a"} 9\nb{\\'})])

    assert text == '# HELP a One\\nline \\\\ of help.\n# TYPE a gauge\na{x="a\\"} 9\\nb{\\\\"} 1\n'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (True, "1"),
        (-2.0, "-2"),
        (1e300, "1e+300"),
        (0.1, "0.1"),
    ],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert render([Sample(name="a", value=value, help="h")]).splitlines()[-1] == f"a {text}"


@pytest.mark.parametrize("wrong", [{"name": "a-b"}, {"name": "1a"}, {"name": "a", "labels": {"b c": "x"}}])
def test_names_that_prometheus_would_refuse_are_errors(wrong: dict) -> None:
    with pytest.raises(ValueError, match="Expected a metric or label named like"):
        Sample(value=1, help="h", **wrong)
