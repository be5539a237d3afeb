"""The Adult census income data of UCI: the official pair of files, or one CSV file with the same columns.

Rows become images of one line, so that everything made for images serves tables, too. Read next: `adult_encoding`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from federation.config.tables import DataConfig
from federation.datasets.adult_encoding import COLUMNS, encode_rows
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet, Task
from federation.datasets.root import absolute_root
from federation.errors import ConfigurationError, DataError
from federation.randomness import derive_seed

ADULT = "adult"
CLASS_NAMES = ("<=50K", ">50K")

_TRAIN_FILE, _TEST_FILE = "adult.data", "adult.test"
_COMMENT = "|"
_LARGEST_DRAW = float(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Rows of a file, in the order of `COLUMNS`, and in words where each of them stands."""

    rows: Sequence[tuple[str, ...]]
    where: Sequence[str]


def load_adult(data: DataConfig, *, seed: int) -> Dataset:
    """Return the Adult data at `data.root` as images: uint8, shape (N, 1, 1, 75); class 1 earns more than 50,000.

    A row's split is drawn from `seed` and the row itself, so that it does not depend on the other rows: one row more
    moves none of them, and copies of a row stay together. It is not a split that belongs to the data all the same:
    whoever chooses the fractions moves rows from one split to another.

    Args:
        data: `root` is the folder of adult.data and adult.test, or one CSV file. Of a folder, adult.test is the test
            split, and `validation_fraction` of adult.data is held out; of a file, `test_fraction` is as well.
        seed: decides what is held out.

    Raises:
        ConfigurationError: `data.root` is empty or relative, or a site shift is asked for.
        DataError: a file is missing or empty, or a row has the wrong columns, numbers, categories or label.
    """
    if data.site_shift:
        raise ConfigurationError(
            f"Expected data.site-shift=0 with data.name='{ADULT}', found {data.site_shift:g}: rows of a table have no "
            "scanner whose intensities could shift."
        )
    root = absolute_root(data)
    if root.is_dir():
        pool, test = _read(_member(root, _TRAIN_FILE)), _read(_member(root, _TEST_FILE))
        parts = {**_hold_out(pool, {"validation": data.validation_fraction}, seed), "test": test}
    else:
        parts = _hold_out(_read(root), {"validation": data.validation_fraction, "test": data.test_fraction}, seed)
    for name, part in parts.items():
        if not part.rows:
            raise DataError(f"Expected at least one {name} row, found none at {root}: add rows or raise its fraction.")
    splits = {name: _encode(part) for name, part in parts.items()}
    width = splits["train"].images.shape[3]
    info = DatasetInfo(name=ADULT, task=Task.MULTICLASS, class_names=CLASS_NAMES, channels=1, height=1, width=width)
    return Dataset.of_splits(info, splits, given_split=False)


def _member(root: Path, name: str) -> Path:
    path = root / name
    if not path.is_file():
        raise DataError(
            f"Expected {_TRAIN_FILE} and {_TEST_FILE} in {root}, found no {name}: get both from "
            "https://archive.ics.uci.edu/dataset/2/adult, or set data.root to one CSV file."
        )
    return path


def _read(path: Path) -> _Table:
    """Return the rows of `path` without blank lines, comments and a header."""
    rows: list[tuple[str, ...]] = []
    where: list[str] = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True)
            for cells in reader:
                row = tuple(cell.strip() for cell in cells)
                if any(row) and not row[0].startswith(_COMMENT) and row != COLUMNS:
                    rows.append(row)
                    where.append(f"line {reader.line_num} of {path}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"Expected a readable CSV file at {path}, found: {error}.") from error
    for row, place in zip(rows, where, strict=True):
        if len(row) != len(COLUMNS):
            raise DataError(
                f"Expected {len(COLUMNS)} columns ({', '.join(COLUMNS)}) in {place}, found {len(row)}: correct the row."
            )
    if not rows:
        raise DataError(f"Expected rows in {path}, found none: the file is empty.")
    return _Table(rows=rows, where=where)


def _hold_out(table: _Table, fractions: Mapping[str, float], seed: int) -> dict[str, _Table]:
    """Return "train" and the splits that `fractions` name; every row draws its own place."""
    names = ["train", *fractions]
    edges = np.cumsum([1 - sum(fractions.values()), *fractions.values()])[:-1]
    draws = [derive_seed(seed, "split", *row) / _LARGEST_DRAW for row in table.rows]
    places = np.digitize(draws, edges)
    return {name: _take(table, np.flatnonzero(places == number).tolist()) for number, name in enumerate(names)}


def _take(table: _Table, chosen: Sequence[int]) -> _Table:
    return _Table(rows=[table.rows[row] for row in chosen], where=[table.where[row] for row in chosen])


def _encode(table: _Table) -> ImageSet:
    labels = [_read_label(row[-1], place) for row, place in zip(table.rows, table.where, strict=True)]
    return ImageSet(
        images=encode_rows(table.rows, table.where)[:, None, None, :], labels=np.array(labels, dtype=np.int64)
    )


def _read_label(text: str, place: str) -> int:
    """Return the class; adult.test ends its labels with a dot."""
    label = text.removesuffix(".")
    if label not in CLASS_NAMES:
        raise DataError(f"Expected the label {' or '.join(CLASS_NAMES)} in {place}, found {text!r}: correct the row.")
    return CLASS_NAMES.index(label)
