"""The Adult census rows: their encoding by public levels, their own split, mistakes in files, and the real files."""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from federation.config import DataConfig, ModelConfig
from federation.datasets import Task, load_dataset
from federation.datasets.adult_encoding import CATEGORIES, COLUMNS, NUMBERS, encode_rows
from federation.datasets.sites import load_site
from federation.errors import ConfigurationError, DataError
from federation.models import build_model

TEST_DATA = os.environ.get("AEGIS_TEST_DATA", "")
needs_data = pytest.mark.skipif(not TEST_DATA, reason="AEGIS_TEST_DATA does not name the folder with real data")

ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K"
)


def make_row(number: int = 0, **cells: str) -> tuple[str, ...]:
    usual = dict(zip(COLUMNS, (cell.strip() for cell in ROW.split(",")), strict=True))
    changed = {name.replace("_", "-"): text for name, text in cells.items()}
    return tuple({**usual, "fnlwgt": str(number), "age": str(20 + number % 60), **changed}.values())


def write(path: Path, rows: list[tuple[str, ...]], ending: str = "") -> Path:
    path.write_text("".join(f"{', '.join(row)}{ending}\n" for row in rows), encoding="utf-8")
    return path


def write_pair(folder: Path, train: int = 60, test: int = 7) -> Path:
    write(folder / "adult.data", [make_row(number) for number in range(train)])
    write(folder / "adult.test", [make_row(1000 + number) for number in range(test)], ending=".")
    return folder


def load(root: Path, seed: int = 0, **settings: Any):
    return load_dataset(DataConfig(name="adult", root=str(root), **settings), seed=seed)


def encode(**cells: str) -> np.ndarray:
    return encode_rows([make_row(0, **cells)], ["line 1"])[0]


def columns_of(part: object) -> slice:
    """Return where an encoder's inputs lie."""
    position = 0
    for other in (*NUMBERS, *CATEGORIES):
        width = width_of(other)
        if other is part:
            return slice(position, position + width)
        position += width
    raise AssertionError(part)


def width_of(part: object) -> int:
    for name, more in (("levels", 0), ("steps", 0), ("edges", 1)):
        if hasattr(part, name):
            return len(getattr(part, name)) + more
    return 1


def block(inputs: np.ndarray, column: str, kind: str) -> list[int]:
    (part,) = [
        part for part in (*NUMBERS, *CATEGORIES) if part.column == column and type(part).__name__.lower() == kind
    ]
    return inputs[columns_of(part)].tolist()


def test_every_row_has_75_inputs_between_0_and_255():
    inputs = encode_rows([make_row(number) for number in range(5)], [""] * 5)

    assert inputs.shape == (5, 75)
    assert inputs.dtype == np.uint8


@pytest.mark.parametrize(
    ("column", "text", "level"),
    [
        ("age", "17", 0), ("age", "90", 255), ("age", "3", 0), ("age", "120", 255), ("age", "50", round(33 / 73 * 255)),
        ("education_num", "1", 0), ("education_num", "16", 255), ("education_num", "9", round(8 / 15 * 255)),
        ("hours_per_week", "1", 0), ("hours_per_week", "99", 255), ("hours_per_week", "40", round(39 / 98 * 255)),
    ],
)  # fmt: skip
def test_numbers_are_levels_between_public_bounds_and_cut_off_there(column, text, level):
    assert block(encode(**{column: text}), column.replace("_", "-"), "scale") == [level]


@pytest.mark.parametrize(("age", "place"), [("24", 0), ("25", 1), ("29", 1), ("30", 2), ("64", 8), ("65", 9)])
def test_age_is_in_one_interval(age, place):
    found = block(encode(age=age), "age", "intervals")

    assert found == [255 if number == place else 0 for number in range(10)]


@pytest.mark.parametrize(("hours", "place"), [("19", 0), ("39", 3), ("40", 4), ("41", 5), ("60", 7)])
def test_hours_are_in_one_interval_and_forty_is_its_own(hours, place):
    found = block(encode(hours_per_week=hours), "hours-per-week", "intervals")

    assert found == [255 if number == place else 0 for number in range(8)]


@pytest.mark.parametrize(
    ("gain", "reached"), [("0", 0), ("1", 1), ("2999", 1), ("3000", 2), ("7000", 4), ("20000", 6), ("99999", 6)]
)
def test_capital_gain_reaches_steps(gain, reached):
    found = block(encode(capital_gain=gain), "capital-gain", "steps")

    assert found == [255] * reached + [0] * (6 - reached)


@pytest.mark.parametrize("part", CATEGORIES, ids=lambda part: part.column)
def test_every_category_lights_its_own_level_and_unknown_none(part):
    cell = part.column.replace("-", "_")
    for number, level in enumerate(part.levels):
        for text in level:
            found = block(encode(**{cell: text}), part.column, "categories")
            assert found == [255 if place == number else 0 for place in range(len(part.levels))]

    assert set(block(encode(**{cell: "?"}), part.column, "categories")) == {0}


def test_columns_that_are_left_out_change_nothing():
    assert np.array_equal(encode(), encode(fnlwgt="1", race="Black", native_country="?"))


def test_encoding_of_a_row_does_not_depend_on_the_others():
    rows = [make_row(number) for number in range(20)] + [make_row(age="90", capital_gain="99999")]

    together = encode_rows(rows, [""] * len(rows))

    for number, row in enumerate(rows):
        assert np.array_equal(together[number], encode_rows([row], [""])[0])


def test_a_folder_gives_its_own_test_split_and_holds_out_a_part_of_the_rest(tmp_path):
    dataset = load(write_pair(tmp_path, train=400), validation_fraction=0.2)

    assert len(dataset.test) == 7
    assert len(dataset.train) + len(dataset.validation) == 400
    assert 50 < len(dataset.validation) < 110
    assert (dataset.info.task, dataset.info.class_names) == (Task.MULTICLASS, ("<=50K", ">50K"))
    assert (dataset.info.channels, dataset.info.height, dataset.info.width) == (1, 1, 75)
    assert dataset.train.images.shape[1:] == (1, 1, 75)


def test_a_file_is_split_in_three_with_or_without_a_header(tmp_path):
    rows = [make_row(number) for number in range(400)]
    plain = load(write(tmp_path / "plain.csv", rows), test_fraction=0.25, validation_fraction=0.1)
    headed = load(write(tmp_path / "headed.csv", [COLUMNS, *rows]), test_fraction=0.25, validation_fraction=0.1)

    for split in ("train", "validation", "test"):
        assert np.array_equal(getattr(plain, split).images, getattr(headed, split).images)
    assert 70 < len(plain.test) < 130
    assert 20 < len(plain.validation) < 65
    assert len(plain.train) + len(plain.validation) + len(plain.test) == 400


def test_quoted_cells_are_read_like_others(tmp_path):
    rows = [make_row(number) for number in range(60)]
    quoted = [tuple(f'"{cell}"' for cell in row) for row in rows]

    plain, other = load(write(tmp_path / "plain.csv", rows)), load(write(tmp_path / "quoted.csv", quoted))

    assert np.array_equal(plain.train.images, other.train.images)


def test_a_row_stays_in_its_split_whatever_rows_stand_beside_it(tmp_path):
    rows = [make_row(number) for number in range(100)]
    newcomer = make_row(500)

    before = load(write(tmp_path / "a.csv", rows))
    after = load(write(tmp_path / "b.csv", [newcomer, *reversed(rows)]))

    added = 0
    for split in ("train", "validation", "test"):
        old = Counter(map(bytes, getattr(before, split).images))
        new = Counter(map(bytes, getattr(after, split).images))
        assert not old - new
        added += (new - old).total()
    assert added == 1


def test_copies_of_a_row_stay_together(tmp_path):
    rows = [make_row(number) for number in range(50)]

    dataset = load(write(tmp_path / "a.csv", rows * 2))

    for split in (dataset.train, dataset.validation, dataset.test):
        assert all(count % 2 == 0 for count in Counter(map(bytes, split.images)).values())


def test_another_seed_holds_out_other_rows(tmp_path):
    write_pair(tmp_path, train=200)

    first, again, other = (load(tmp_path, seed=seed) for seed in (1, 1, 2))

    assert np.array_equal(first.validation.images, again.validation.images)
    assert not np.array_equal(first.validation.images, other.validation.images)
    assert np.array_equal(first.test.images, other.test.images)


def test_labels_are_read_with_and_without_a_dot(tmp_path):
    write_pair(tmp_path)
    write(tmp_path / "adult.test", [make_row(1, income=">50K"), make_row(2)], ending=".")

    assert load(tmp_path).test.labels.tolist() == [1, 0]


def test_comments_and_blank_lines_are_passed_over(tmp_path):
    write_pair(tmp_path)
    text = (tmp_path / "adult.test").read_text(encoding="utf-8")
    (tmp_path / "adult.test").write_text(f"|1x3 Cross validator\n{text}\n\n", encoding="utf-8")

    assert len(load(tmp_path).test) == 7


@pytest.mark.parametrize("missing", ["adult.data", "adult.test"])
def test_missing_file_is_named_with_where_to_get_it(tmp_path, missing):
    write_pair(tmp_path)
    (tmp_path / missing).unlink()

    with pytest.raises(DataError, match=rf"found no {missing}: get both from https://archive\.ics\.uci\.edu"):
        load(tmp_path)


def test_missing_root_says_so(tmp_path):
    with pytest.raises(DataError, match="found nothing there"):
        load(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=r"data\.root"):
        load_dataset(DataConfig(name="adult"), seed=0)


@pytest.mark.parametrize("text", ["", "\n\n", "|only a comment\n", ", ".join(COLUMNS) + "\n"])
def test_empty_file_is_refused(tmp_path, text):
    path = tmp_path / "empty.csv"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(DataError, match=f"Expected rows in {path}, found none"):
        load(path)


def test_split_without_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"at least one (train|validation|test) row, found none"):
        load(write(tmp_path / "short.csv", [make_row(0)]))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"income": "50K"}, r"label <=50K or >50K in line 4 of .*, found '50K'"),
        ({"income": ""}, "found ''"),
        ({"workclass": "private"}, r"workclass to be one of \['Private', .* in line 4 of .*, found 'private'"),
        ({"sex": "F"}, "sex to be one of"),
        ({"age": "old"}, "age to be a whole number of at least 0 in line 4 of .*, found 'old'"),
        ({"age": "-3"}, "found '-3'"),
        ({"age": "?"}, r"found '\?'"),
        ({"capital_gain": "nan"}, "capital-gain to be a whole number"),
        ({"hours_per_week": "40.5"}, "hours-per-week to be a whole number"),
    ],
)
def test_wrong_cell_is_named_with_its_line(tmp_path, cells, message):
    rows = [make_row(number) for number in range(50)]
    rows[3] = make_row(3, **cells)

    with pytest.raises(DataError, match=message):
        load(write(tmp_path / "wrong.csv", rows))


@pytest.mark.parametrize("wrong", [make_row()[:-1], (*make_row(), "more"), ("one",)], ids=len)
def test_wrong_number_of_columns_is_named_with_its_line(tmp_path, wrong):
    rows = [make_row(number) for number in range(20)]
    rows[5] = wrong

    with pytest.raises(DataError, match=r"Expected 15 columns \(age, workclass.*\) in line 6 of .*, found (14|16|1):"):
        load(write(tmp_path / "wrong.csv", rows))


def test_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "image.csv"
    path.write_bytes(bytes(range(256)))

    with pytest.raises(DataError, match="readable CSV file"):
        load(path)


def test_intensity_shift_of_a_table_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"data.site-shift=0 with data.name='adult', found 0.15"):
        load(write_pair(tmp_path), site_shift=0.15)


def test_rows_fit_the_network_for_tables(tmp_path):
    info = load(write_pair(tmp_path)).info

    network = build_model(ModelConfig(name="mlp", hidden_units=8), info, seed=0)

    assert network.state_dict()["hidden.weight"].shape == (8, 75)


@pytest.mark.data
@needs_data
def test_official_files_have_their_published_sizes_and_shares():
    dataset = load(Path(TEST_DATA) / "adult")

    assert len(dataset.train) + len(dataset.validation) == 32561
    assert len(dataset.test) == 16281
    assert abs(len(dataset.validation) - 3256) < 200
    assert dataset.test.labels.sum() == 3846
    assert dataset.train.labels.sum() + dataset.validation.labels.sum() == 7841


@pytest.mark.data
@needs_data
def test_official_rows_are_encoded_as_an_independent_count_says():
    dataset = load(Path(TEST_DATA) / "adult")
    with (Path(TEST_DATA) / "adult" / "adult.test").open(encoding="utf-8") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if len(row) == 15]
    images = dataset.test.images[:, 0, 0]

    for part in CATEGORIES:
        position = COLUMNS.index(part.column)
        expected = [sum(row[position] in level for row in rows) for level in part.levels]
        assert (images[:, columns_of(part)] == 255).sum(axis=0).tolist() == expected
    gains = np.array([int(row[10]) for row in rows])
    (steps,) = [part for part in NUMBERS if part.column == "capital-gain"]
    assert (images[:, columns_of(steps)] == 255).sum(axis=0).tolist() == [
        int((gains >= step).sum()) for step in (1, 3000, 5000, 7000, 10000, 20000)
    ]


@pytest.mark.data
@needs_data
def test_official_rows_are_divided_among_hospitals():
    data = DataConfig(name="adult", root=str(Path(TEST_DATA) / "adult"), partition="iid")

    sites = [load_site(data, site=site, sites=5, seed=0) for site in range(5)]

    assert sum(len(site.train) + len(site.validation) + len(site.test) for site in sites) == 32561 + 16281


def test_split_that_fractions_decide_is_no_split_of_the_data(tmp_path: Path) -> None:
    dataset = load(write_pair(tmp_path))

    assert not dataset.given_split
    assert not load(write(tmp_path / "one.csv", [make_row(number) for number in range(60)])).given_split
