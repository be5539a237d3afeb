"""Whether and with what a task is masked: wrong input is told before any training step, and nothing is booked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aegis_cache.store.cache import read_manifest
from client_app import main
from client_app.masking.preparation import Masking, prepare_masking
from client_app.site import identify_site
from federation.config import TrainingConfig, parse_configuration
from federation.datasets.sites import load_site
from federation.errors import SiteError, SiteErrorCode
from federation.models import build_model
from federation.parameters import read_parameters
from federation.records.tasks import encode_training_task
from federation.records.tensors import encode_parameters
from tests.client_app.answers import DP_SGD, UPDATE
from tests.client_app.calls import flat_configuration, make_context, make_message
from tests.client_app.clinic import Clinic
from tests.client_app.masking.made_up_caches import make_cache

SIZE = 20
MECHANISMS: dict[str, dict[str, Any]] = {"none": {}, "update-gaussian": UPDATE, "dp-sgd": DP_SGD}
ASKED: dict[str, Any] = {"masking__mode": "interleaved", "masking__size": str(SIZE), "masking__micro_batch": 16}
CACHE, POLICY = SiteErrorCode.MASKING_CACHE, SiteErrorCode.POLICY_MASKING
CONFIGURATION = SiteErrorCode.CONFIGURATION


def masked_clinic(
    folder: Path,
    *,
    cache: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
    policy: dict[str, Any] | None = None,
    **settings: Any,
) -> Clinic:
    """Return a deployed hospital with a cache of 50 images, of which the server asks for 20, interleaved.

    Its policy varies no image on its own account, unless `own` says so.

    Args:
        folder: where it lies.
        cache: for `make_cache`.
        own: keys of the table `masking` of its policy.
        policy: further tables of it.
        settings: of the request, for `Clinic`.
    """
    make_cache(folder / "cache", **{"images": 50, **(cache or {})})
    tables = {"masking": {"cache": str(folder / "cache"), "vary": False, **(own or {})}, **(policy or {})}
    return Clinic(folder, policy=tables, **{**ASKED, **settings})


def require_refusal(
    hospital: Clinic, monkeypatch: pytest.MonkeyPatch, code: SiteErrorCode, words: str
) -> None:  # fmt: skip
    """Check that a training task is refused with `code`, and that nothing was trained, booked or told beside it."""
    monkeypatch.setattr(main, "compute_update", lambda *_, **__: pytest.fail("trained"))

    reply = hospital.train()

    assert reply.has_error()
    assert (reply.error.code, reply.error.reason) == (code, code.sentence)
    assert words in hospital.log()
    assert hospital.rows() in ([], ["genesis"])
    assert not hospital.slot.exists()


@pytest.fixture
def home(_own_home: Path) -> Path:
    """The home of whoever runs the hospital, where one that cannot be identified logs."""
    return _own_home


def prepare(hospital: Clinic, *, version: int = 0, seed: int = 0) -> Masking | None:
    site = identify_site(hospital.context(), hospital.configuration)
    plan = hospital.configuration.training
    return prepare_masking(
        site, hospital.configuration, plan, hospital.data.info, examples=60, version=version, seed=seed
    )


def chosen(hospital: Clinic, **options: int) -> list[int]:
    """Return the places in the cache of the images of the next update."""
    masking = prepare(hospital, **options)
    assert masking is not None
    assert (len(masking.synthetic), masking.size) == (SIZE, SIZE)
    return [int(place) for place in masking.synthetic.chosen]


WRONG_CACHES: dict[str, tuple[dict[str, Any], str]] = {
    "larger images": ({"shape": (1, 28, 28)}, "height=8, found 28; width=8, found 28"),
    "colours": ({"shape": (3, 8, 8)}, "channels=1, found 3"),
    "other classes": ({"class_names": ("class-0", "class-2", "class-1")}, "class_names=("),
    "fewer classes": ({"class_names": ("class-0", "class-1")}, "class_names=("),
    "another hospital": ({"hospital_id": "south"}, "hospital-id='north', found 'south'"),
    "another data set": ({"data_set": "other"}, "data-set='scans', found 'other'"),
    "too few": ({"images": SIZE - 1}, "Expected at least 20 synthetic images"),
}


@pytest.mark.parametrize("wrong", WRONG_CACHES)
def test_cache_made_for_anything_else_is_refused_before_anything_is_done(
    volume: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    changes, words = WRONG_CACHES[wrong]
    hospital = masked_clinic(volume, cache=changes)

    require_refusal(hospital, monkeypatch, CACHE, words.replace("class_names", "class-names"))


TOO_MUCH: dict[str, tuple[int, dict[str, Any], str]] = {
    "all of it": (SIZE, {}, "Expected at least 20"),
    "a subset": (2 * SIZE, {"masking__refresh": "subset"}, "Expected at least 40"),
    "a varied subset": (2 * SIZE, {"masking__refresh": "subset+augment"}, "Expected at least 40"),
    "two turns": (2 * SIZE, {"masking__refresh": "rotate"}, "Expected at least 40"),
    "two varied turns": (2 * SIZE, {"masking__refresh": "augment+rotate"}, "Expected at least 40"),
    "as many as counting says": (30, {"masking__size": "auto", "masking__capacity": 30}, "(M=30)"),
}


@pytest.mark.parametrize("asked", TOO_MUCH)
def test_cache_of_one_image_too_few_is_refused_and_of_just_enough_is_not(
    volume: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    least, settings, words = TOO_MUCH[asked]
    enough = masked_clinic(volume / "enough", cache={"images": least}, **settings)
    fewer = masked_clinic(volume / "fewer", cache={"images": least - 1}, **settings)

    reply = enough.train()

    assert reply.has_content(), reply.error
    require_refusal(fewer, monkeypatch, CACHE, words)
    assert f"found {least - 1} in the cache" in fewer.log()


def test_auto_takes_the_fewest_images_with_which_the_expected_share_meets_the_target(volume: Path) -> None:
    hospital = masked_clinic(volume, masking__size="auto", masking__capacity=30, masking__target=0.05)

    masking = prepare(hospital)

    assert masking is not None
    assert (1 - 1 / 30) ** (60 + masking.size - 1) <= 0.05 < (1 - 1 / 30) ** (60 + masking.size - 2)


@pytest.mark.parametrize(("mode", "size"), [("interleaved", 20), ("joint", 1)])
def test_auto_takes_an_image_for_every_step_among_which_they_are_divided(volume: Path, mode: str, size: int) -> None:
    hospital = masked_clinic(
        volume, masking__size="auto", masking__capacity=2, masking__mode=mode, training__batch_size=3
    )

    masking = prepare(hospital)

    assert masking is not None
    assert masking.size == size


@pytest.mark.parametrize(("mode", "size"), [("interleaved", 20), ("joint", 9)])
def test_auto_takes_as_many_in_a_step_as_the_policy_demands(volume: Path, mode: str, size: int) -> None:
    demanded: dict[str, Any] = {"masking__size": "auto", "masking__capacity": 2, "masking__mode": mode}

    masking = prepare(
        masked_clinic(
            volume, own={"min-per-step": 10 if mode == "interleaved" else 9}, training__batch_size=30, **demanded
        )
    )

    assert masking is not None
    assert masking.size == size


@pytest.mark.parametrize(
    ("settings", "pieces"),
    [
        ({}, 16),
        ({"masking__micro_batch": "auto"}, SIZE),
        ({"masking__size": "auto", "masking__capacity": 30, "masking__micro_batch": 99}, 30),
    ],
)
def test_pieces_are_those_that_the_server_asked_for(volume: Path, settings: dict[str, Any], pieces: int) -> None:
    masking = prepare(masked_clinic(volume, **settings))

    assert masking is not None
    assert masking.micro_batch == pieces


def test_folder_without_a_cache_and_no_folder_at_all_are_told_apart_in_the_log_only(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = masked_clinic(volume / "missing", own={"cache": str(volume / "nowhere")})
    unnamed = masked_clinic(volume / "unnamed", own={"cache": ""})

    require_refusal(missing, monkeypatch, CACHE, "nowhere/manifest.json")
    require_refusal(unnamed, monkeypatch, CACHE, "masking.cache in the site policy")


@pytest.mark.parametrize("damage", ["altered", "cut", "removed"])
@pytest.mark.parametrize("file", ["manifest.json", "images"])
def test_damaged_cache_is_refused_by_the_name_of_its_file(
    volume: Path, monkeypatch: pytest.MonkeyPatch, file: str, damage: str
) -> None:
    hospital = masked_clinic(volume)
    names = [shard.name for shard in read_manifest(volume / "cache").shards]
    (path,) = (volume / "cache").rglob(names[-1] if file == "images" else file)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if damage != "removed":
        path.write_bytes(content if damage == "altered" else content[:-1])

    require_refusal(hospital, monkeypatch, CACHE, path.name)


def test_images_with_several_labels_are_not_masked(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospital = masked_clinic(volume)
    own = dict(np.load(volume / "own.npz"))
    several = {name: np.eye(3, dtype=np.int64)[value] for name, value in own.items() if name.endswith("labels")}
    np.savez(volume / "own.npz", **{**own, **several})

    require_refusal(hospital, monkeypatch, CACHE, "Expected one label per image to mask, found the task 'multilabel'")


DEMANDS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "required and off": ({"required": True}, {"masking__mode": "none"}, "found 'none'"),
    "required and sequential": ({"required": True}, {"masking__mode": "sequential"}, "found 'sequential'"),
    "required in another mode": ({"required": True, "modes": ["joint"]}, {}, "found 'interleaved'"),
    "required and smaller": (
        {"required": True, "min-size": SIZE + 1},
        {},
        "masking.min-size=21 synthetic images, found 20",
    ),
    "required and smaller than is usual": ({"required": True}, {}, "masking.min-size=2048 synthetic images, found 20"),
    "smaller, though not required": ({"min-size": SIZE + 1}, {}, "masking.min-size=21 synthetic images, found 20"),
    "fewer in a step": (
        {"min-per-step": 7},
        {},
        "masking.min-per-step=7 synthetic images of equal weight in every step",
    ),
    "none in a step": ({"min-per-step": 1}, {"masking__mode": "lambda"}, "in every step, found 0"),
    "required and lambda": ({"required": True}, {"masking__mode": "lambda"}, "found 'lambda'"),
}


@pytest.mark.parametrize("demand", DEMANDS)
def test_less_masking_than_the_policy_demands_is_refused(
    volume: Path, monkeypatch: pytest.MonkeyPatch, demand: str
) -> None:
    own, settings, words = DEMANDS[demand]
    hospital = masked_clinic(volume, own=own, **settings)

    require_refusal(hospital, monkeypatch, POLICY, words)


@pytest.mark.parametrize("mode", ["interleaved", "joint"])
def test_as_much_masking_as_the_policy_demands_is_trained(volume: Path, mode: str) -> None:
    hospital = masked_clinic(volume, own={"required": True, "min-size": SIZE}, masking__mode=mode)

    reply = hospital.train()

    assert reply.has_content(), reply.error


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"masking.mode": "gaussian"}, "masking.mode"),
        ({"masking.size": "0"}, "masking.size"),
        ({"masking.size": "-20"}, "masking.size"),
        ({"masking.size": 0.5}, "masking.size"),
        ({"masking.micro-batch": SIZE + 1}, "micro-batch=21 <= size=20"),
        ({"masking.micro-batch": 0}, "masking.micro-batch"),
        ({"masking.refresh": "subset+rotate"}, "masking.refresh"),
        ({"masking.modes": "joint"}, "masking.modes"),
    ],
)
def test_request_that_makes_no_sense_is_refused_whatever_the_cache(
    volume: Path, monkeypatch: pytest.MonkeyPatch, home: Path, change: dict[str, Any], named: str
) -> None:
    hospital = masked_clinic(volume)
    hospital.flat |= change
    monkeypatch.setattr(main, "compute_update", lambda *_, **__: pytest.fail("trained"))

    reply = hospital.train()

    assert reply.error.code == CONFIGURATION
    assert named in (home / ".aegis" / "unidentified.log").read_text()
    assert hospital.rows() == []


class Share:
    """A simulated hospital whose cache, if there is one, lies below the folder that the run names."""

    def __init__(self, folder: Path, root: str, **settings: Any) -> None:
        self.flat = flat_configuration(folder, masking__cache=root, **{**ASKED, **settings})
        self.configuration = parse_configuration(self.flat)
        self.info = load_site(self.configuration.data, site=1, sites=2, seed=0).info
        self.context = make_context(self.flat, partition_id=1, num_partitions=2)

    def make_cache(self, root: Path, **changes: Any) -> None:
        shape = (self.info.channels, self.info.height, self.info.width)
        given = {"hospital_id": "hospital-001", "data_set": "phantom", "class_names": self.info.class_names}
        make_cache(root / "hospital-001", **{"images": 50, "shape": shape, **given, **changes})

    def train(self) -> Any:
        arrays = encode_parameters(read_parameters(build_model(self.configuration.model, self.info, seed=0)))
        task = encode_training_task(arrays, model_version=0, plan=TrainingConfig(device="cpu"), seed=1, run="run")
        return main.app(make_message(task), self.context)

    def chosen(self, **options: int) -> list[int]:
        site = identify_site(self.context, self.configuration)
        options = {"version": 0, "seed": 0, **options}
        plan = self.configuration.training
        masking = prepare_masking(site, self.configuration, plan, self.info, examples=42, **options)
        assert masking is not None
        return [int(place) for place in masking.synthetic.chosen]


def test_simulated_hospital_takes_the_cache_in_the_subfolder_of_its_id(volume: Path) -> None:
    share = Share(volume, str(volume / "caches"))
    share.make_cache(volume / "caches")

    reply = share.train()

    assert reply.has_content(), reply.error


@pytest.mark.parametrize(
    ("root", "code", "words"),
    [
        ("caches", CONFIGURATION, "masking.cache='caches' as an absolute path"),
        ("", CACHE, "for a simulated hospital in the run configuration"),
        ("/nowhere", CACHE, "/nowhere/hospital-001/manifest.json"),
    ],
)
def test_simulated_hospital_without_its_cache_trains_nothing(
    volume: Path, monkeypatch: pytest.MonkeyPatch, home: Path, root: str, code: SiteErrorCode, words: str
) -> None:
    monkeypatch.setattr(main, "compute_update", lambda *_, **__: pytest.fail("trained"))

    reply = Share(volume, root).train()

    assert reply.error.code == code
    logs = [path.read_text() for folder in (volume, home) for path in folder.rglob("*.log")]
    assert words in "".join(logs)
    assert not list(volume.rglob("*.ledger"))


@pytest.mark.parametrize("hospital_id", ["hospital-000", "north"])
def test_simulated_hospital_takes_no_cache_of_another_one(volume: Path, hospital_id: str) -> None:
    share = Share(volume, str(volume / "caches"))
    share.make_cache(volume / "caches", hospital_id=hospital_id)

    assert share.train().error.code == CACHE


def test_request_cannot_name_the_cache_of_a_deployed_hospital(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    make_cache(volume / "other" / "north", images=50)
    hospital = masked_clinic(volume, own={"cache": ""}, masking__cache=str(volume / "other"))

    require_refusal(hospital, monkeypatch, CACHE, "Expected the folder of a cache")


def test_nothing_is_prepared_and_no_cache_opened_for_a_run_without_masking(volume: Path) -> None:
    hospital = masked_clinic(volume, own={"cache": str(volume / "nowhere")}, masking__mode="none")

    masking = prepare(hospital)
    reply = hospital.train()

    assert masking is None
    assert reply.has_content(), reply.error


def test_refused_task_leaves_the_result_that_is_kept(volume: Path) -> None:
    hospital = masked_clinic(volume, aggregation__release="two-phase", **MECHANISMS["update-gaussian"])
    hospital.train("m1")
    kept = hospital.slot.read_bytes()
    hospital.flat["masking.size"] = "51"

    reply = hospital.train("m2", version=1)

    assert reply.error.code == CACHE
    assert hospital.slot.read_bytes() == kept


def test_images_of_an_update_are_distinct_and_stay_the_same_without_refresh(volume: Path) -> None:
    hospital = masked_clinic(volume)

    first, later = chosen(hospital), chosen(hospital, version=5, seed=9)

    assert first == later == sorted(set(first))
    assert 0 <= first[0] <= first[-1] < 50
    assert first != list(range(SIZE))  # They are spread over the cache, whose first images may be of one class.


def prepare_rows(volume: Path, **settings: Any) -> Masking | None:
    """Return how rows of a table, images of height 1, would be masked at a hospital that varies what it can."""
    hospital = masked_clinic(volume, cache={"shape": (1, 1, 64)}, own={"vary": True}, **settings)
    site = identify_site(hospital.context(), hospital.configuration)
    info = replace(hospital.data.info, height=1, width=64)
    return prepare_masking(
        site, hospital.configuration, hospital.configuration.training, info, examples=60, version=0, seed=0
    )


def test_rows_of_a_table_are_never_moved(volume: Path) -> None:
    masking = prepare_rows(volume)

    assert masking is not None
    assert not masking.synthetic.varied


def test_rows_of_a_table_cannot_be_asked_to_be_moved(volume: Path) -> None:
    with pytest.raises(SiteError, match="rows of a table"):
        prepare_rows(volume, masking__refresh="augment")


def test_subset_is_another_one_for_every_seed_and_the_same_for_the_same(volume: Path) -> None:
    hospital = masked_clinic(volume, masking__refresh="subset")

    drawn = [chosen(hospital, seed=seed) for seed in (1, 2, 1, 3)]

    assert drawn[0] == drawn[2]
    assert len({tuple(places) for places in drawn}) == 3
    assert all(len(set(places)) == SIZE for places in drawn)


def turns_of(volume: Path, kind: str, count: int) -> list[list[int]]:
    """Return the places in a cache of 50 of the images of `count` updates in turn."""
    if kind == "simulated":
        share = Share(volume, str(volume / "caches"), masking__refresh="rotate")
        share.make_cache(volume / "caches")
        return [share.chosen(version=version) for version in range(count)]
    hospital, turns = masked_clinic(volume, masking__refresh="rotate"), []
    for _ in range(count):
        masking = prepare(hospital, version=7)
        assert masking is not None
        masking.take_turn()
        turns.append([int(place) for place in masking.synthetic.chosen])
    return turns


@pytest.mark.parametrize("kind", ["deployed", "simulated"])
def test_rotation_shows_no_image_twice_before_all_had_their_turn(volume: Path, kind: str) -> None:
    used = np.zeros(50, dtype=int)

    for places in turns_of(volume, kind, 8):
        used += np.bincount(places, minlength=50)

        assert len(set(places)) == SIZE
        assert used.max() - used.min() <= 1


def other_shapes(hospital: Clinic) -> dict[str, Any]:
    """Return parameters of other shapes than the hospital's."""
    return {"parameters": {name: value[:1] for name, value in hospital.build().items()}}


@pytest.mark.parametrize("wrong", [other_shapes, lambda _: {"class_prior": "0.5,0.5"}], ids=["shapes", "classes"])
def test_task_that_is_refused_does_not_move_the_hospital_on_in_its_cache(
    volume: Path, wrong: Callable[[Clinic], dict[str, Any]]
) -> None:
    hospital = masked_clinic(volume, masking__refresh="rotate")

    before = chosen(hospital)
    refused = hospital.train("m1", **wrong(hospital))

    assert refused.has_error()
    assert chosen(hospital) == before
    assert hospital.train("m2").has_content()
    assert not set(chosen(hospital)) & set(before)


def test_hospital_has_moved_on_in_its_cache_before_it_trains(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospital, counts = masked_clinic(volume, masking__refresh="rotate"), list[str]()

    def stop(*_: object, **__: object) -> None:
        counts.extend(path.read_text() for path in volume.rglob("*.rotation"))
        raise RuntimeError

    before = chosen(hospital)
    monkeypatch.setattr("client_app.updating.train_locally", stop)
    assert hospital.train("m1").has_error()

    assert len(counts) == 1
    assert str(SIZE) in counts[0]
    assert not set(chosen(hospital)) & set(before)


def test_step_without_synthetic_images_is_refused(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospital = masked_clinic(volume)
    monkeypatch.setattr(main, "compute_update", lambda *_, **__: pytest.fail("trained"))

    reply = hospital.train(batch_size=2)

    assert reply.error.code == SiteErrorCode.PLAN_REFUSED
    assert "Expected masking.size=20 >= 30, the mini-batches of an epoch here" in hospital.log()


def test_simulated_hospital_that_is_asked_again_for_a_version_takes_the_same_block(volume: Path) -> None:
    share = Share(volume, str(volume / "caches"), masking__refresh="rotate")
    share.make_cache(volume / "caches")

    turns = [share.chosen(version=version) for version in (0, 1, 1, 0)]

    assert turns[1] == turns[2] != turns[0] == turns[3]


@pytest.mark.parametrize(
    ("refresh", "vary", "varied"),
    [
        ("none", False, False),
        ("subset", False, False),
        ("augment", False, True),
        ("rotate+augment", False, True),
        ("none", True, True),
        ("subset", True, True),
    ],
)
def test_images_are_varied_where_the_request_or_the_policy_wants_it(
    volume: Path, refresh: str, vary: bool, varied: bool
) -> None:
    masking = prepare(masked_clinic(volume, own={"vary": vary}, masking__refresh=refresh))

    assert masking is not None
    assert masking.synthetic.varied is varied
