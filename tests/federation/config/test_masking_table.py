"""What a server may ask for in masking, in either form that Flower carries, and how everything else is refused."""

from __future__ import annotations

from itertools import permutations
from typing import Any, get_args

import pytest

from federation.config import Configuration, MaskingConfig, flatten, parse_configuration
from federation.config.masking_table import REFRESHES, MaskingMode
from federation.errors import ConfigurationError


def problem_of(**settings: Any) -> str:
    """Return the one line of the error that keys of the `masking` table raise."""
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration({f"masking.{key.replace('_', '-')}": value for key, value in settings.items()})
    (line,) = str(caught.value).splitlines()
    return line


def accepted(**settings: Any) -> MaskingConfig:
    flat = {f"masking.{key.replace('_', '-')}": value for key, value in settings.items()}
    return parse_configuration(flat).masking


@pytest.mark.parametrize(
    "size", [0, -1, -2048, "0", "-5", "", "12x", "x12", "1.5", "1e3", " 12", "12\n", "007", "Auto"]
)
def test_size_that_is_no_whole_number_of_images_is_refused_with_what_it_may_be(size: object) -> None:
    assert problem_of(size=size) == f"masking.size={size!r}: Expected a whole number from 1 to 9999999, or 'auto'."


@pytest.mark.parametrize("size", [10**7, "10000000", 2048.0, True, "1\u0663"])
def test_size_of_another_kind_or_beyond_its_bound_is_refused(size: object) -> None:
    assert "Expected a whole number from 1 to 9999999" in problem_of(size=size)


@pytest.mark.parametrize("images", [1, 32, 2048, 9_999_999])
def test_size_may_be_a_number_or_its_text(images: int) -> None:
    number, text = accepted(size=images), accepted(size=str(images))

    assert number == text
    assert (number.images, number.size) == (images, str(images))


def test_automatic_size_is_no_number_yet() -> None:
    assert accepted(size="auto").images is None


@pytest.mark.parametrize("images", [32, "32", "auto"])
def test_size_and_micro_batch_survive_flattening_and_parsing(images: object) -> None:
    configuration = parse_configuration(
        {"masking.size": images, "masking.mode": "joint", "masking.micro-batch": images}
    )

    assert parse_configuration(flatten(configuration)) == configuration


@pytest.mark.parametrize("mode", ["", "paralel", "Joint", "lamda", None])
def test_unknown_mode_is_refused_with_all_that_are_known(mode: object) -> None:
    problem = problem_of(mode=mode)

    assert problem.startswith(f"masking.mode={mode!r}: Input should be ")
    assert all(repr(known) in problem for known in get_args(MaskingMode))


@pytest.mark.parametrize("mode", get_args(MaskingMode))
def test_every_mode_is_accepted_and_all_but_none_are_on(mode: str) -> None:
    assert accepted(mode=mode).is_on is (mode != "none")


def test_masking_is_off_unless_asked_for() -> None:
    assert not Configuration().masking.is_on


def test_misspelt_key_is_told_the_nearest_one() -> None:
    assert problem_of(microbatch=4) == (
        "Unknown key 'masking.microbatch': the nearest known key is 'masking.micro-batch'."
    )


@pytest.mark.parametrize("mode", [mode for mode in get_args(MaskingMode) if mode != "none"])
def test_micro_batch_larger_than_the_size_is_refused_in_every_mode(mode: str) -> None:
    assert "Expected micro-batch=33 <= size=32." in problem_of(mode=mode, size=32, micro_batch=33)


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "joint", "size": 32, "micro_batch": 32},
        {"mode": "joint", "size": "1", "micro_batch": 1},
        {"mode": "joint", "size": "auto", "micro_batch": 65536},
        {"mode": "none", "size": 32, "micro_batch": 33},
    ],
)
def test_micro_batch_up_to_a_known_size_is_accepted_and_any_where_nothing_is_masked(settings: dict[str, Any]) -> None:
    assert accepted(**settings).micro_batch == str(settings["micro_batch"])


@pytest.mark.parametrize(
    ("micro_batch", "size", "side", "pieces"),
    [
        ("auto", 100, 28, 100),
        ("auto", 2048, 64, 160),
        ("auto", 2048, 65, 48),
        ("auto", 40, 224, 40),
        (32, 2048, 28, 32),
        (96, 2048, 224, 96),
    ],
)
def test_pieces_are_as_large_as_asked_for_or_as_is_fast_but_never_larger_than_the_size(
    micro_batch: object, size: int, side: int, pieces: int
) -> None:
    for asked in (size, "auto"):
        wanted = accepted(mode="joint", micro_batch=micro_batch, size=asked)

        assert wanted.piece_of(size, batch_size=48, pixels=side * side) == pieces


@pytest.mark.parametrize("micro_batch", [0, -64, 65537, "65537", 0.5, True, "", "Auto", "064", " 64", "6\u0664", None])
def test_micro_batch_that_is_no_number_of_images_is_refused_with_what_it_may_be(micro_batch: object) -> None:
    expected = f"masking.micro-batch={micro_batch!r}: Expected a whole number from 1 to 65536, or 'auto'."
    assert problem_of(micro_batch=micro_batch) == expected


@pytest.mark.parametrize(
    ("key", "value", "bound"),
    [
        ("target", 0.0, "greater than 0"),
        ("target", 1.0, "less than 1"),
        ("target", -0.05, "greater than 0"),
        ("target", float("nan"), "finite number"),
        ("capacity", 1, "greater than or equal to 2"),
        ("capacity", 100_000_001, "less than or equal to 100000000"),
        ("batch-statistics", "keep", "'refuse' or 'freeze'"),
        ("cache", 3, "valid string"),
    ],
)
def test_value_out_of_bounds_is_refused_with_its_key_and_its_bound(key: str, value: object, bound: str) -> None:
    problem = problem_of(**{key: value})

    assert problem.startswith(f"masking.{key}={value!r}: Input should be ")
    assert bound in problem


@pytest.mark.parametrize(
    ("refresh", "ways"),
    [
        ("none", set()),
        ("subset", {"subset"}),
        ("augment", {"augment"}),
        ("rotate", {"rotate"}),
        ("subset+augment", {"subset", "augment"}),
        ("augment+subset", {"subset", "augment"}),
        ("rotate+augment", {"rotate", "augment"}),
        ("augment+rotate", {"rotate", "augment"}),
    ],
)
def test_ways_to_refresh_can_be_joined_where_they_do_not_choose_the_same_thing(refresh: str, ways: set[str]) -> None:
    assert accepted(refresh=refresh).refreshes == ways


@pytest.mark.parametrize(
    "refresh",
    [
        *["+".join(pair) for way in REFRESHES if way != "none" for pair in permutations(["none", way])],
        *["+".join([way] * 2) for way in REFRESHES],
        *["+".join(three) for three in permutations(["subset", "augment", "rotate"])],
        *["subset+rotate", "rotate+subset", "", "+", "augment+", "+augment", "subset,augment", "subset augment"],
        *["Augment", "often", "augment+often", "subset + augment"],
    ],
)
def test_other_ways_to_refresh_are_refused_with_those_there_are(refresh: str) -> None:
    assert problem_of(refresh=refresh) == (
        f"masking.refresh={refresh!r}: Expected one of none, subset, augment, rotate, or augment joined with subset or "
        "rotate by '+'."
    )
