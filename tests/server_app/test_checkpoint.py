"""A checkpoint gives back every bit that was saved, or says that it is damaged or foreign."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, get_args

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from federation.config import describe_keys, flatten
from federation.durable import write_durably
from federation.errors import CheckpointError
from federation.parameters import Parameters, digest
from server_app.checkpoint import _MAY_CHANGE, Checkpoint, CheckpointStore, is_written
from server_app.progress import Contribution, OpenEvaluation, OpenTask, Progress
from server_app.summary import CurvePoint
from tests.doubles import configure

PROGRESS = Progress(
    model_version=3,
    updates_applied=6,
    elapsed_s=0.1 + 0.2,
    bytes_up=2**40,
    resumed=1,
    contributions={"north": Contribution(examples=5, dispatched=3, updates=2, refused={"non-finite": 1})},
    refused={"non-finite": 1},
)
TENSORS = arrays("float32", array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)).map(
    lambda array: torch.from_numpy(array.copy())
)


def store_at(folder: Path, **changes: Any) -> CheckpointStore:
    return CheckpointStore(folder, configure(folder, **changes))


def small_checkpoint(version: int = 3) -> Checkpoint:
    parameters = {"z": torch.arange(6.0).reshape(2, 3), "a": torch.ones(2)}
    return Checkpoint(
        parameters=parameters,
        progress=PROGRESS.model_copy(update={"model_version": version}),
        optimizer_state={"momentum/z": torch.full((2, 3), 0.1), "momentum/a": torch.tensor([1e-30, -2.0])},
    )


def saved_file(folder: Path) -> Path:
    store_at(folder).save(small_checkpoint())
    (path,) = folder.glob("*.safetensors")
    return path


NAMED_TENSORS = st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), TENSORS, max_size=5)


@given(NAMED_TENSORS, NAMED_TENSORS)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tensors_survive_bit_by_bit_and_in_their_order(
    tmp_path: Path, parameters: Parameters, state: Parameters
) -> None:
    parameters.pop("__metadata__", None)
    store = store_at(tmp_path)

    store.save(Checkpoint(parameters=parameters, progress=PROGRESS, optimizer_state=state))
    found = store.load_newest()

    assert (list(found.parameters), list(found.optimizer_state)) == (list(parameters), list(state))
    assert digest(found.parameters) == digest(parameters)
    assert digest(found.optimizer_state) == digest(state)


def test_progress_survives_exactly(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    point = CurvePoint(version=1, elapsed_s=1 / 3, central=None, hospitals={})
    progress = PROGRESS.model_copy(update={"curve": [point, point]})

    store.save(Checkpoint(parameters={"w": torch.zeros(1)}, progress=progress))

    assert store.load_newest().progress == progress


def test_newest_version_is_loaded_by_its_number(tmp_path: Path) -> None:
    store = store_at(tmp_path, run__keep_checkpoints=20)
    for version in (9, 10, 2):
        store.save(small_checkpoint(version))

    assert store.load_newest().progress.model_version == 10


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    store = store_at(tmp_path, run__keep_checkpoints=2)
    for version in range(5):
        store.save(small_checkpoint(version))
    store.finish()

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "version-00000003.safetensors", "version-00000004.safetensors",
    ]  # fmt: skip


def open_task(version: int, number: int = 1) -> OpenTask:
    return OpenTask(
        number=number, hospital_id="north", kind="train", version=version, split="", sent_at=0.5, began_at=0.5
    )  # fmt: skip


def versions_in(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("version-")) for path in folder.glob("version-*"))


def test_versions_that_hospitals_work_on_or_score_are_kept_until_they_have_answered(tmp_path: Path) -> None:
    store = store_at(tmp_path, run__keep_checkpoints=1)
    kept = []
    for version in range(8):
        made = small_checkpoint(version)
        tasks = [open_task(1, 1), open_task(3, 2)] if version < 5 else [open_task(3, 2)]
        made.progress.in_flight = tasks if version < 7 else []
        made.progress.evaluation = OpenEvaluation(version=2, split="validation") if 2 <= version < 4 else None
        store.save(made)
        store.finish()
        kept.append(versions_in(tmp_path))

    assert kept == [[0], [1], [1, 2], [1, 2, 3], [1, 3, 4], [3, 5], [3, 6], [7]]


def test_parameters_of_a_version_that_a_hospital_works_on_are_given_back(tmp_path: Path) -> None:
    store = store_at(tmp_path, run__keep_checkpoints=2)
    for version in (4, 5):
        made = small_checkpoint(version)
        made.parameters["z"].fill_(version)
        store.save(made)
    store.finish()

    assert [store.has_version(version) for version in (3, 4, 5)] == [False, True, True]
    assert [float(store.load_version(version)["z"].mean()) for version in (4, 5)] == [4.0, 5.0]
    with pytest.raises(CheckpointError, match="version-00000003"):
        store.load_version(3)


@pytest.mark.parametrize(
    ("version", "every", "written"), [(1, 1, True), (2, 3, False), (3, 3, True), (9, 4, False), (10, 4, True)]
)
def test_every_so_many_versions_and_the_last_are_written(
    tmp_path: Path, version: int, every: int, written: bool
) -> None:
    configuration = configure(tmp_path, run__checkpoint_every=every, aggregation__rounds=10)

    assert is_written(configuration, version) is written


def test_open_tasks_and_scores_survive_exactly(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    progress = PROGRESS.model_copy(
        update={
            "tasks": 9,
            "in_flight": [open_task(2), open_task(3, 8)],
            "consumed": [4, 7],
            "evaluation": OpenEvaluation(version=2, split="validation", opened_at=1 / 3, wanted=["a"], asked=["b"]),
            "longest_task_s": 0.1 + 0.2,
            "least_variance": 1e-7,
        }
    )
    progress.norms.note("north", variance=9.0, norm=1 / 7)

    store.save(Checkpoint(parameters={"w": torch.zeros(1)}, progress=progress))

    assert store.load_newest().progress == progress


def test_older_file_is_deleted_only_after_the_newer_one_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(tmp_path, run__keep_checkpoints=1)
    store.save(small_checkpoint(1))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("server_app.checkpoint.write_durably", fail)
    with pytest.raises(OSError, match="No space"):
        store.save(small_checkpoint(2))

    assert store.load_newest().progress.model_version == 1


def test_file_that_cannot_be_deleted_costs_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, unlink = store_at(tmp_path, run__keep_checkpoints=1), Path.unlink
    refused: list[Path] = []

    def refuse_once(path: Path, **options: Any) -> None:
        if path.name == "version-00000001.safetensors" and not refused:
            refused.append(path)
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refuse_once)
    found = []
    for version in range(1, 4):
        store.save(small_checkpoint(version))
        store.finish()
        found.append(versions_in(tmp_path))

    assert refused
    assert found == [[1], [1, 2], [3]]


def test_empty_folder_says_how_to_start(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"found none: start without run\.resume"):
        store_at(tmp_path).load_newest()


def test_folder_that_is_not_there_holds_no_checkpoint_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="found none"):
        store_at(tmp_path / "absent").load_newest()

    assert list(tmp_path.iterdir()) == []


def test_any_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = saved_file(tmp_path)
    content = path.read_bytes()
    store = store_at(tmp_path)

    for position, bit in itertools.product(range(0, len(content), 9), (0, 5)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << bit
        path.write_bytes(bytes(damaged))
        with pytest.raises(CheckpointError, match=path.name):
            store.load_newest()


@pytest.mark.parametrize("keep", [0, 1, 8, 100, -1])
def test_shortened_file_is_noticed(tmp_path: Path, keep: int) -> None:
    path = saved_file(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])

    with pytest.raises(CheckpointError, match=f"{path.name} cannot be read"):
        store_at(tmp_path).load_newest()


@pytest.mark.parametrize("metadata", [None, {"format": "aegis-checkpoint-1"}, {"names": "[]"}, {"names": '["w"]'}])
def test_foreign_file_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "version-00000001.safetensors"
    write_durably(path, safetensors.torch.save({"w": torch.zeros(2)}, metadata))

    with pytest.raises(CheckpointError, match=path.name):
        store_at(tmp_path).load_newest()


def test_other_values_of_the_named_keys_may_be_resumed_with(tmp_path: Path) -> None:
    store_at(tmp_path).save(small_checkpoint())
    changes = {"run__resume": True, "run__keep_checkpoints": 9, "run__wait_s": 1.5, "aggregation__rounds": 99}

    assert store_at(tmp_path, **changes).load_newest().progress.model_version == 3


# Keys whose other values need a second key changed, or a form of their own.
BOUND_TO_OTHERS = {"privacy.calibration"}
FORMS = {"privacy.layer-shares": "*=1", "training.class-prior": "0.5,0.5", "aggregation.shifts": "north=0.5"}
FORMS |= {"masking.size": "512", "masking.refresh": "augment", "masking.micro-batch": "64"}


def other_value(key: str, value: Any) -> Any:
    """Return a value that `key` may take besides `value`, or `value` itself where there is no other."""
    if key in FORMS:
        return FORMS[key]
    table, _, name = key.partition(".")
    field = dict(describe_keys())[table].model_fields[name.replace("-", "_")]
    if choices := get_args(field.annotation):
        return next((choice for choice in choices if choice != value), value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    return value + 1 if isinstance(value, int) else value / 2 or 0.25


FIXED = sorted(
    key
    for key, value in flatten(configure(Path("x"))).items()
    if key not in _MAY_CHANGE | BOUND_TO_OTHERS and other_value(key, value) != value
)


def test_nearly_every_key_has_another_value_to_try() -> None:
    assert len(FIXED) > 25
    assert {"training.optimizer", "data.name", "run.seed", "model.name"} <= set(FIXED)


@pytest.mark.parametrize("key", FIXED)
def test_change_of_any_other_key_is_named(tmp_path: Path, key: str) -> None:
    value = flatten(configure(tmp_path))[key]
    other = other_value(key, value)
    store_at(tmp_path).save(small_checkpoint())

    with pytest.raises(CheckpointError, match="configuration changed") as caught:
        store_at(tmp_path, **{key.replace(".", "__").replace("-", "_"): other}).load_newest()

    assert f"{key}: checkpoint {value!r}, now {other!r}" in str(caught.value)
