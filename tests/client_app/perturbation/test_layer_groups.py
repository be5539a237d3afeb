"""Every parameter is in one group, the first that fits; everything else is an error that names the key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_app.perturbation.layer_groups import divide_layers
from federation.config.layer_shares import parse_layer_shares
from federation.errors import ConfigurationError

NAMES = ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]


def test_groups_keep_the_order_of_shares_and_of_parameters() -> None:
    groups = divide_layers(NAMES, parse_layer_shares("output.*=0.8, *=0.2"))

    assert [(group.names, group.share) for group in groups] == [
        (("output.weight", "output.bias"), 0.8),
        (("hidden.weight", "hidden.bias"), 0.2),
    ]


@pytest.mark.parametrize("text", ["", "  ", "*=1", "*=1.0", "hidden.*|output.*=1"])
def test_one_group_takes_everything(text: str) -> None:
    (group,) = divide_layers(NAMES, parse_layer_shares(text))

    assert (group.names, group.share) == (tuple(NAMES), 1.0)


def test_first_group_that_fits_decides_and_case_matters() -> None:
    groups = divide_layers(["Body.w", "body.w", "head.w"], parse_layer_shares("head.*|B*=0.5,*.w=0.5"))

    assert [group.names for group in groups] == [("Body.w", "head.w"), ("body.w",)]


@given(st.lists(st.sampled_from("abcd"), unique=True, min_size=1), st.permutations("abcd"))
def test_every_parameter_is_in_exactly_one_group(first: list[str], names: list[str]) -> None:
    text = f"{'|'.join(first)}=1/3, *=2/3" if len(first) < 4 else "*=1"

    groups = divide_layers(names, parse_layer_shares(text))

    assert sorted(name for group in groups for name in group.names) == sorted(names)


def test_parameter_without_a_group_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"privacy.layer-shares .* no group for \['hidden.weight', 'hidden"):
        divide_layers(NAMES, parse_layer_shares("output.*=1"))


@pytest.mark.parametrize("text", ["conv.*=0.5, *=0.5", "*=0.5, output.*=0.5", "output.*=0.5,*=0.3,output.*=0.2"])
def test_group_that_takes_no_parameter_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"every group of privacy.layer-shares, found none for \['"):
        divide_layers(NAMES, parse_layer_shares(text))
