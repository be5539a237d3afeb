"""`parse_configuration` accepts exactly what the tables describe, and explains everything else."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import annotated_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from federation.config import Configuration, describe_keys, flatten, parse_configuration
from federation.errors import ConfigurationError


def problems_of(flat: dict[str, Any]) -> list[str]:
    """Return the lines of the error that `flat` raises."""
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(flat)
    return str(caught.value).splitlines()


def test_nothing_set_gives_the_defaults() -> None:
    assert parse_configuration({}) == Configuration()


def test_defaults_survive_flattening_and_parsing() -> None:
    assert parse_configuration(flatten(Configuration())) == Configuration()


def test_flat_keys_are_dotted_kebab_case_with_scalars() -> None:
    flat = flatten(Configuration())

    assert flat["training.batch-size"] == 64
    assert all("_" not in key and key.count(".") == 1 for key in flat)
    assert {type(value) for value in flat.values()} == {str, int, float, bool}


def test_value_lands_in_its_field() -> None:
    configuration = parse_configuration({"training.batch-size": 32, "model.name": "mlp", "run.resume": True})

    assert configuration.training.batch_size == 32
    assert configuration.model.name == "mlp"
    assert configuration.run.resume is True
    assert configuration.training.local_epochs == Configuration().training.local_epochs


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("training.batchsize", "training.batch-size"),
        ("training.batch_size", "training.batch-size"),
        ("trainig.batch-size", "training.batch-size"),
        ("server.rounds", "aggregation.rounds"),
        ("run.deadline", "aggregation.deadline-s"),
        ("data.root.path", "data.root"),
        ("rounds", "aggregation.rounds"),
        ("batch-size", "training.batch-size"),
        ("deadline", "aggregation.deadline-s"),
    ],
)
def test_unknown_key_is_answered_with_the_nearest_known_one(key: str, nearest: str) -> None:
    assert problems_of({key: 1}) == [f"Unknown key {key!r}: the nearest known key is {nearest!r}."]


@pytest.mark.parametrize("key", ["", ".", "training", "training.", ".batch-size"])
def test_key_that_is_no_key_is_unknown(key: str) -> None:
    (problem,) = problems_of({key: 1})

    assert problem.startswith(f"Unknown key {key!r}")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("training.learning-rate", "0.1", "Input should be a valid number."),
        ("training.learning-rate", True, "Input should be a valid number."),
        ("training.batch-size", 64.0, "Input should be a valid integer."),
        ("training.batch-size", True, "Input should be a valid integer."),
        ("training.batch-size", "64", "Input should be a valid integer."),
        ("run.resume", 1, "Input should be a valid boolean."),
        ("run.resume", "true", "Input should be a valid boolean."),
        ("run.name", 5, "Input should be a valid string."),
        ("model.name", "vit", "Input should be 'cnn', 'mlp', 'linear' or 'resnet18'."),
        ("training.learning-rate", float("inf"), "Input should be a finite number."),
        ("training.learning-rate", float("nan"), "Input should be a finite number."),
        ("training.learning-rate", 0.0, "Input should be greater than 0."),
        ("training.momentum", 1.0, "Input should be less than 1."),
        ("training.batch-size", 0, "Input should be greater than or equal to 1."),
        ("data.phantom-classes", 9, "Input should be less than or equal to 8."),
    ],
)
def test_value_of_wrong_type_or_bound_is_shown_with_what_was_expected(key: str, value: object, expected: str) -> None:
    assert problems_of({key: value}) == [f"{key}={value!r}: {expected}"]


@pytest.mark.parametrize("name", ["", "..", "../runs", "a/b", "-a", "a b", "a\n", "é", "x" * 65])
def test_run_name_that_is_no_plain_folder_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"run\.name=.*Expected 1 to 64 letters"):
        parse_configuration({"run.name": name})


def test_fractions_that_leave_nothing_to_train_on_are_refused_in_one_short_line() -> None:
    problems = problems_of({"data.validation-fraction": 0.5, "data.test-fraction": 0.6})

    assert problems == ["data: Expected validation-fraction + test-fraction = 1.1 < 1."]


@pytest.mark.parametrize(
    ("flat", "expected"),
    [
        ({"run.hospitals": 3, "run.min-hospitals": 4}, "min-hospitals=4 <= hospitals=3"),
        ({"run.hospitals": 1, "run.hospital-ids": "a,b"}, "at most hospitals=1 hospital-ids"),
        ({"run.hospital-ids": "a, b/c"}, "found ['b/c']"),
        ({"aggregation.sample-count": 2, "aggregation.min-updates": 3}, "min-updates=3 <= sample-count=2"),
        ({"aggregation.deadline-s": 9.0, "aggregation.give-up-s": 8.0}, "deadline-s=9 <= give-up-s=8"),
        ({"run.hospitals": 4, "aggregation.sample-fraction": 0.5, "aggregation.min-updates": 3}, "2 hospitals sampled"),
        ({"run.hospitals": 3, "aggregation.sample-count": 4}, "run.hospitals=3, found 4"),
        ({"run.hospitals": 3, "aggregation.min-updates": 5}, "run.hospitals=3, found 5"),
        ({"training.learning-rate-decay": 1e-9, "aggregation.rounds": 9}, "in the last round"),
    ],
)
def test_values_that_cannot_go_together_are_refused(flat: dict[str, Any], expected: str) -> None:
    assert expected in "\n".join(problems_of(flat))


def test_all_problems_are_reported_together() -> None:
    flat = {
        "training.batch-size": 0,
        "training.lr": 0.1,
        "model.name": "vit",
        "nonsense": 1,
        "data.validation-fraction": 0.5,
        "data.test-fraction": 0.5,
    }

    problems = problems_of(flat)

    assert sorted(problem.split("=")[0].split(":")[0] for problem in problems) == [
        "Unknown key 'nonsense'",
        "Unknown key 'training.lr'",
        "data",
        "model.name",
        "training.batch-size",
    ]


def test_whole_number_is_accepted_for_a_float_and_becomes_one() -> None:
    configuration = parse_configuration({"aggregation.deadline-s": 30})

    assert type(configuration.aggregation.deadline_s) is float
    assert configuration.aggregation.deadline_s == 30.0


def test_configuration_is_frozen() -> None:
    configuration = Configuration()

    with pytest.raises(ValidationError, match="frozen"):
        configuration.training = Configuration().training  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        configuration.training.batch_size = 1  # type: ignore[misc]


def test_input_is_left_as_it_was() -> None:
    flat = {"training.batch-size": 8}

    parse_configuration(flat)

    assert flat == {"training.batch-size": 8}


def test_configured_ids_are_sorted_without_blanks() -> None:
    configuration = parse_configuration({"run.hospital-ids": " north, ,east,north "})

    assert configuration.run.configured_ids == ("east", "north")


def values_of(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Return a strategy for the values that `field` allows."""
    if get_origin(field.annotation) is Literal:
        return st.sampled_from(get_args(field.annotation))
    if field.annotation is bool:
        return st.booleans()
    if field.annotation is str:
        return st.text("abcXYZ09._-", min_size=1, max_size=20).map(lambda text: f"r{text}")
    bounds = {type(constraint): constraint for constraint in field.metadata}
    low, high = bounds.get(annotated_types.Ge), bounds.get(annotated_types.Le)
    if field.annotation is int:
        return st.integers(low.ge if low else None, high.le if high else 10**6)
    above, below = bounds.get(annotated_types.Gt), bounds.get(annotated_types.Lt)
    return st.floats(
        low.ge if low else above.gt if above else None,
        high.le if high else below.lt if below else 1e6,
        exclude_min=above is not None,
        exclude_max=below is not None,
        allow_nan=False,
        allow_infinity=False,
    )


# Keys whose values are also checked against those of other keys; each such check has a test of its own.
BOUND_TO_OTHERS = {
    "data.validation-fraction",
    "data.test-fraction",
    "run.hospitals",
    "aggregation.min-updates",
    "aggregation.deadline-s",
    "aggregation.give-up-s",
    "training.learning-rate",
    "training.learning-rate-decay",
    "privacy.calibration",
    "training.class-prior",
    "training.label-skew",
    "aggregation.average-last",
    "privacy.release-epsilon",
    "privacy.grad-sample",
    "privacy.unit",
    "privacy.layer-shares",
    "aggregation.shifts",
    "run.checkpoint-every",
    "training.precision",
    "masking.mode",
    "masking.size",
    "masking.micro-batch",
    "masking.refresh",
}
ALL_KEYS = st.fixed_dictionaries(
    {},
    optional={
        f"{table}.{field.alias}": values_of(field)
        for table, model in describe_keys()
        for field in model.model_fields.values()
        if f"{table}.{field.alias}" not in BOUND_TO_OTHERS
    },
)


@given(flat=ALL_KEYS)
def test_every_allowed_value_survives_parsing_and_flattening(flat: dict[str, Any]) -> None:
    configuration = parse_configuration(flat)

    assert flatten(configuration) == flatten(Configuration()) | flat
    assert parse_configuration(flatten(configuration)) == configuration


@pytest.mark.parametrize(
    ("prior", "expected"),
    [("0.5,0.6", "shares that sum to 1"), ("1.0,0.0", "shares that sum to 1"), ("a,b", "numbers with commas between")],
)
def test_class_prior_that_is_no_distribution_is_refused(prior: str, expected: str) -> None:
    assert expected in problems_of({"training.class-prior": prior})[0]


def test_class_prior_and_label_skew_exclude_each_other() -> None:
    flat = {"training.class-prior": "0.5,0.5", "training.label-skew": "logit-adjustment"}

    assert "found both" in problems_of(flat)[0]


def test_class_prior_is_read_as_numbers() -> None:
    configuration = parse_configuration({"training.class-prior": "0.26, 0.74"})

    assert configuration.training.public_prior == (0.26, 0.74)
    assert parse_configuration({}).training.public_prior == ()


def test_averaging_more_versions_than_there_are_is_refused() -> None:
    assert "average-last=6 <= rounds=5" in problems_of({"aggregation.average-last": 6})[0]


@pytest.mark.parametrize(
    ("flat", "expected"),
    [
        ({"privacy.calibration": "classic"}, "0 < release-epsilon=0 <= 1"),
        ({"privacy.calibration": "classic", "privacy.release-epsilon": 1.5}, "whose proof holds there only"),
        ({"privacy.release-epsilon": 0.2, "privacy.noise-multiplier": 2.0}, "found both"),
        ({"privacy.release-epsilon": 0.2, "privacy.mechanism": "dp-sgd"}, "no release-epsilon under dp-sgd"),
        ({"privacy.grad-sample": "ghost", "privacy.augmentation-multiplicity": 2}, "ghost clipping cannot"),
        ({"privacy.epsilon": 0.0}, "greater than 0"),
        ({"privacy.epsilon": -1.0}, "greater than 0"),
        ({"privacy.delta": 1.0}, "less than 1"),
        ({"privacy.delta": 0.0}, "greater than 0"),
    ],
)
def test_impossible_privacy_is_refused(flat: dict[str, Any], expected: str) -> None:
    assert expected in problems_of(flat)[0]


def test_scores_are_refused_where_patients_are_to_be_protected() -> None:
    flat = {"privacy.mechanism": "dp-sgd", "privacy.unit": "patient"}

    assert "run.hospital-evaluation=false" in problems_of(flat)[0]
    assert parse_configuration(flat | {"run.hospital-evaluation": False}).privacy.unit == "patient"


def test_private_class_frequencies_are_refused_under_dp_sgd() -> None:
    flat = {"privacy.mechanism": "dp-sgd", "training.label-skew": "logit-adjustment"}

    assert "training.class-prior takes public ones" in problems_of(flat)[0]
