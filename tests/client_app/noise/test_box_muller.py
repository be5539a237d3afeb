"""Box-Muller blocks against the definition, term by term, at chosen words."""

from __future__ import annotations

import math
import struct

import pytest
import torch

from client_app.noise.box_muller import TERMS, BoxMullerBlock

ZERO, LOWEST, HIGHEST = 0, -(2**63), 2**63 - 1
QUARTER, HALF_TURN = 2**30, -(2**31)


def load(block: BoxMullerBlock, radius_words: list[list[int]], angle_words: list[list[int]]) -> None:
    """Write the words, one list of columns for each term."""
    radii = [word for row in radius_words for word in row]
    angles = [word for row in angle_words for word in row]
    block.words[:] = struct.pack(f"={len(radii)}q{len(angles)}i", *radii, *angles)


def radius(word: int) -> float:
    """sqrt(-2 ln u) for u = |word| / 2^63, and u = 2^-64 for the word 0."""
    return math.sqrt(-2 * math.log1p(-(2**63 - abs(word)) / 2**63) if word else 128 * math.log(2))


def expected(radius_words: list[int], angle_words: list[int]) -> tuple[float, float]:
    """Half the sum of the four cosine normals and of the four sine normals, as Box and Muller define them."""
    polar = [(radius(word), angle * math.pi / 2**31) for word, angle in zip(radius_words, angle_words, strict=True)]
    return sum(r * math.cos(a) for r, a in polar) / 2, sum(r * math.sin(a) for r, a in polar) / 2


@pytest.mark.parametrize("stddev", [1.0, 0.37, 1e-30, 1e30])
def test_samples_are_half_the_sum_of_four_box_muller_normals(stddev: float) -> None:
    generator, columns = torch.Generator().manual_seed(5), 7
    radii = torch.randint(-(2**62), 2**62, (TERMS, columns), generator=generator).tolist()
    angles = torch.randint(-(2**31), 2**31, (TERMS, columns), generator=generator).tolist()
    block = BoxMullerBlock(columns)
    load(block, radii, angles)

    cosines, sines = block.combine(stddev)

    for column in range(columns):
        wanted = expected([row[column] for row in radii], [row[column] for row in angles])
        assert (cosines[column].item() / stddev, sines[column].item() / stddev) == pytest.approx(wanted, abs=1e-13)


@pytest.mark.parametrize(
    ("word", "angle", "cosine", "sine"),
    [
        (ZERO, 0, math.sqrt(128 * math.log(2)) / 2, 0.0),
        (ZERO, QUARTER, 0.0, math.sqrt(128 * math.log(2)) / 2),
        (ZERO, HALF_TURN, -math.sqrt(128 * math.log(2)) / 2, 0.0),
        (LOWEST, 12345, 0.0, 0.0),
        (HIGHEST, 12345, 0.0, 0.0),
        (2**62, 0, math.sqrt(2 * math.log(2)) / 2, 0.0),
        (-(2**62), 0, math.sqrt(2 * math.log(2)) / 2, 0.0),
        (2**33, QUARTER, 0.0, math.sqrt(60 * math.log(2)) / 2),
    ],
)
@pytest.mark.parametrize("term", range(TERMS))
def test_extreme_words_give_the_extremes_of_one_term(
    word: int, angle: int, cosine: float, sine: float, term: int
) -> None:
    block = BoxMullerBlock(1)
    load(
        block,
        [[word if row == term else LOWEST] for row in range(TERMS)],
        [[angle * (row == term)] for row in range(TERMS)],
    )

    found = [half.item() for half in block.combine(1.0)]

    assert found == pytest.approx([cosine, sine], abs=1e-8 if word == HIGHEST else 1e-14)


def test_no_words_give_more_than_the_stated_reach() -> None:
    block = BoxMullerBlock(1)
    load(block, [[ZERO]] * TERMS, [[0]] * TERMS)

    largest, _ = block.combine(1.0)

    assert largest.item() == pytest.approx(2 * math.sqrt(128 * math.log(2)), rel=1e-14)
    assert 18.8 < largest.item() < 18.9


def test_one_changed_word_moves_both_samples_of_its_column_alone() -> None:
    generator, columns = torch.Generator().manual_seed(6), 5
    block = BoxMullerBlock(columns)
    radii = torch.randint(-(2**62), 2**62, (TERMS, columns), generator=generator).tolist()
    angles = torch.randint(-(2**31), 2**31, (TERMS, columns), generator=generator).tolist()
    load(block, radii, angles)
    before = block.combine(1.0).clone()

    for term in range(TERMS):
        changed = [list(row) for row in radii]
        changed[term][3] //= 2
        load(block, changed, angles)
        moved = (block.combine(1.0) != before).tolist()
        assert moved == [[column == 3 for column in range(columns)]] * 2
