"""Shares are taken exactly as they are written, sum to exactly one, and every mistake names the key."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.config import parse_configuration
from federation.config.layer_shares import LayerShare, parse_layer_shares
from federation.errors import ConfigurationError


def test_groups_are_read_in_order_with_exact_shares() -> None:
    assert parse_layer_shares(" output.* = 0.8 ,conv?.w|b*=0.1,*=1/10") == (
        LayerShare(("output.*",), Fraction(4, 5)),
        LayerShare(("conv?.w", "b*"), Fraction(1, 10)),
        LayerShare(("*",), Fraction(1, 10)),
    )


def test_empty_text_is_one_group_of_everything() -> None:
    assert parse_layer_shares("") == (LayerShare(("*",), Fraction(1)),)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_shares_that_sum_to_one_are_accepted_however_they_round_in_binary(parts: list[int]) -> None:
    text = ",".join(f"layer{number}.*={part}/{sum(parts)}" for number, part in enumerate(parts))

    assert [group.share for group in parse_layer_shares(text)] == [Fraction(part, sum(parts)) for part in parts]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=0.8,b=0.1", r"sum to 1 in privacy.layer-shares='a=0.8,b=0.1', found 0.9"),
        ("a=0.8,b=0.3", "found 1.1"),
        ("a=0.333333,b=0.333333,c=0.333333", "found 0.999999"),
        ("a=1,b=0", "above 0 and at most 1 in privacy.layer-shares, found 'b=0'"),
        ("a=1.5", "found 'a=1.5'"),
        ("a=-1", "found 'a=-1'"),
        ("a=nan", "found 'a=nan'"),
        ("a=inf", "found 'a=inf'"),
        ("a=1e-1,b=0.9", "found 'a=1e-1'"),
        ("a=1/0", "found 'a=1/0'"),
        ("a=" + "9" * 1000, "at most 1"),
        ("a=", "found 'a='"),
        ("a", "pattern=share in privacy.layer-shares, found 'a'"),
        ("=1", "found '=1'"),
        ("a|=1", r"found 'a\|=1'"),
        ("a=1,", "found ''"),
    ],
)
def test_mistakes_are_errors_that_name_the_key(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_layer_shares(text)


def test_configuration_refuses_shares_that_cannot_be_read() -> None:
    with pytest.raises(ConfigurationError, match=r"privacy.layer-shares='a=0.5': Expected shares that sum to 1"):
        parse_configuration({"privacy.layer-shares": "a=0.5"})
