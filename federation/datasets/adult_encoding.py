"""How one row of the Adult census data becomes 75 network inputs: fixed public levels and bounds, nothing learnt.

Bounds, steps and categories are written down here once. They follow the published description of the data set (its
categories, and the codes at which the census cuts off: age 90, 99 hours, a gain of 99,999) and round numbers, never
the rows that are read. A minimum, a mean or a vocabulary taken from a hospital's rows would be a release of its own:
it would reveal single people's values, and no mechanism here accounts for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from federation.errors import DataError

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip
UNKNOWN = "?"
_FULL = 255

Numbers = NDArray[np.float64]
Inputs = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Scale:
    """One input: a number in 256 levels between two bounds, cut off at both."""

    column: str
    low: float
    high: float

    def encode(self, numbers: Numbers) -> Inputs:
        """Return the levels of `numbers`, shape (N, 1)."""
        share = (np.clip(numbers, self.low, self.high) - self.low) / (self.high - self.low)
        return np.rint(share * _FULL).astype(np.uint8)[:, None]


@dataclass(frozen=True, slots=True)
class Intervals:
    """One input per interval between `edges`, each closed below: 255 where the number lies, 0 elsewhere."""

    column: str
    edges: tuple[float, ...]

    def encode(self, numbers: Numbers) -> Inputs:
        """Return the membership of `numbers`, shape (N, edges + 1)."""
        return _one_hot(np.digitize(numbers, self.edges), len(self.edges) + 1)


@dataclass(frozen=True, slots=True)
class Steps:
    """One input per step: 255 where the number reaches it, 0 below. A long tail costs a few inputs only."""

    column: str
    steps: tuple[float, ...]

    def encode(self, numbers: Numbers) -> Inputs:
        """Return which steps `numbers` reach, shape (N, steps)."""
        reached = numbers[:, None] >= np.array(self.steps)
        return np.where(reached, _FULL, 0).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Categories:
    """One input per level, 255 where the row's category belongs to it; an unknown category is 0 everywhere."""

    column: str
    levels: tuple[tuple[str, ...], ...]

    def encode(self, texts: Sequence[str], where: Sequence[str]) -> Inputs:
        """Return the membership of `texts`, shape (N, levels); `where` says in words where each text stands.

        Raises:
            DataError: a text is in no level.
        """
        level_of = {text: number for number, level in enumerate(self.levels) for text in level}
        level_of[UNKNOWN] = len(self.levels)
        for text, place in zip(texts, where, strict=True):
            if text not in level_of:
                raise DataError(
                    f"Expected {self.column} to be one of {list(level_of)} in {place}, found {text!r}: correct the row."
                )
        numbers = np.array([level_of[text] for text in texts], dtype=np.int64)
        return _one_hot(numbers, len(self.levels) + 1)[:, :-1]


def _each(*texts: str) -> tuple[tuple[str, ...], ...]:
    return tuple((text,) for text in texts)


# Rare categories stand with their nearest relative. Left out: fnlwgt, a weight of the census and not of the person;
# race and native-country, which the prediction does without.
NUMBERS: tuple[Scale | Intervals | Steps, ...] = (
    Scale("age", 17, 90),
    Intervals("age", (25, 30, 35, 40, 45, 50, 55, 60, 65)),
    Scale("education-num", 1, 16),
    Scale("hours-per-week", 1, 99),
    Intervals("hours-per-week", (20, 30, 35, 40, 41, 50, 60)),
    Steps("capital-gain", (1, 3000, 5000, 7000, 10000, 20000)),
    Steps("capital-loss", (1, 1500, 1800, 2000, 2300)),
)
CATEGORIES: tuple[Categories, ...] = (
    Categories(
        "workclass",
        (
            *_each("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov"),
            ("Without-pay", "Never-worked"),
        ),
    ),
    Categories(
        "education",
        (
            ("Preschool", "1st-4th", "5th-6th", "7th-8th"),
            ("9th", "10th", "11th", "12th"),
            *_each("HS-grad", "Some-college"),
            ("Assoc-voc", "Assoc-acdm"),
            *_each("Bachelors", "Masters", "Prof-school", "Doctorate"),
        ),
    ),
    Categories(
        "marital-status",
        (
            ("Married-civ-spouse", "Married-AF-spouse"),
            *_each("Never-married", "Divorced", "Separated", "Widowed", "Married-spouse-absent"),
        ),
    ),
    Categories(
        "occupation",
        (
            *_each("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty"),
            *_each("Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving"),
            *_each("Priv-house-serv"),
            ("Protective-serv", "Armed-Forces"),
        ),
    ),
    Categories(
        "relationship",
        _each("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    ),
    Categories("sex", _each("Female", "Male")),
)


def encode_rows(rows: Sequence[Sequence[str]], where: Sequence[str]) -> Inputs:
    """Return the network inputs of `rows`, uint8 of shape (N, 75): levels of numbers first, then categories.

    Args:
        rows: texts in the order of `COLUMNS`.
        where: for every row, in words, where it stands; for messages.

    Raises:
        DataError: a number cannot be read or is negative, or a category is not known.
    """
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    numbers = {name: _read_numbers(name, columns[name], where) for name in {part.column for part in NUMBERS}}
    encoded = [part.encode(numbers[part.column]) for part in NUMBERS]
    encoded += [part.encode(columns[part.column], where) for part in CATEGORIES]
    return np.concatenate(encoded, axis=1)


def _read_numbers(name: str, texts: Sequence[str], where: Sequence[str]) -> Numbers:
    for text, place in zip(texts, where, strict=True):
        if not text.isdecimal():
            raise DataError(f"Expected {name} to be a whole number of at least 0 in {place}, found {text!r}.")
    return np.array([float(text) for text in texts])


def _one_hot(numbers: NDArray[np.int64] | NDArray[np.intp], width: int) -> Inputs:
    return np.asarray(np.eye(width, dtype=np.uint8)[numbers] * _FULL, dtype=np.uint8)
