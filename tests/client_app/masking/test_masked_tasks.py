"""A masked task at a hospital: the server is told what it is told of an unmasked one, and pays and reads the same."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Message

from aegis_cache.store.cache import open_cache
from client_app.ledger import Ledger
from client_app.ledger.release import NO_MASKING
from federation.errors import SiteErrorCode
from federation.records.answers import decode_model_update
from federation.records.tasks import DISCARD, RELEASE
from tests.client_app.answers import values
from tests.client_app.calls import wire_bytes
from tests.client_app.clinic import Clinic
from tests.client_app.masking.made_up_caches import make_cache
from tests.client_app.masking.test_preparation import MECHANISMS, SIZE, masked_clinic, prepare

MODES = ["sequential", "lambda", "joint", "interleaved"]
UPDATE = MECHANISMS["update-gaussian"]
TWO_PHASE: dict[str, Any] = {"aggregation__release": "two-phase"}


def pair(volume: Path, mechanism: str, mode: str = "interleaved", **settings: Any) -> tuple[Clinic, Clinic]:
    """Return two hospitals that differ in their folder, and in whether the server asks for masking."""
    chosen = {**MECHANISMS[mechanism], **settings}
    plain = masked_clinic(volume / "plain", masking__mode="none", **chosen)
    return plain, masked_clinic(volume / "masks", masking__mode=mode, **chosen)


def shape_of(reply: Message) -> dict[str, Any]:
    """Return everything of a reply but its values: records, keys, types, and of arrays shape and dtype."""
    assert reply.has_content(), reply.error
    found: dict[str, Any] = {}
    for name, record in reply.content.items():
        if isinstance(record, ArrayRecord):
            found[name] = [(key, array.dtype, array.shape, array.stype) for key, array in record.items()]
        else:
            found[name] = [(key, type(value)) for key, value in record.items()]
    return found


def require_alike(plain: Message, masked: Message) -> None:
    assert shape_of(masked) == shape_of(plain)
    assert len(wire_bytes(masked)) == len(wire_bytes(plain))


def stored_rows(hospital: Clinic) -> list[tuple[str, dict[str, Any], int]]:
    """Return kind, content and size of every row of the ledger."""
    with closing(sqlite3.connect(hospital.ledger)) as database:
        rows = database.execute("SELECT kind, body FROM rows ORDER BY seq").fetchall()
    return [(kind, json.loads(body), len(body)) for kind, body in rows]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_reply_and_ledger_row_of_a_masked_task_are_as_long_as_those_of_an_unmasked_one(
    volume: Path, mechanism: str, mode: str
) -> None:
    plain, masked = pair(volume, mechanism, mode)

    require_alike(plain.train(), masked.train())

    rows = [stored_rows(hospital) for hospital in (plain, masked)]
    assert [(kind, size) for kind, _, size in rows[1]] == [(kind, size) for kind, _, size in rows[0]]
    assert plain.ledger.stat().st_size == masked.ledger.stat().st_size


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_all_answers_of_a_two_phase_release_are_those_of_an_unmasked_one(volume: Path, mechanism: str) -> None:
    plain, masked = pair(volume, mechanism, **TWO_PHASE)

    for number, decision in enumerate((RELEASE, DISCARD)):
        require_alike(*(hospital.train(f"m{number}", version=number) for hospital in (plain, masked)))
        require_alike(*(hospital.decide(decision, number) for hospital in (plain, masked)))

    readiness = [hospital.train("m2", version=2).content for hospital in (plain, masked)]
    assert readiness[1].config_records == readiness[0].config_records
    assert masked.rows() == plain.rows() == ["genesis", "reserve", "commit"]


def test_task_that_masking_refuses_is_told_in_the_same_fixed_words_whatever_the_reason(volume: Path) -> None:
    few = masked_clinic(volume / "few", cache={"images": 3})
    damaged = masked_clinic(volume / "damaged")
    (volume / "damaged" / "cache" / "manifest.json").write_text("{}")

    replies = [hospital.train() for hospital in (few, damaged)]

    assert [reply.error.code for reply in replies] == [SiteErrorCode.MASKING_CACHE] * 2
    assert len({len(wire_bytes(reply)) for reply in replies}) == 1
    assert len({reply.error.reason for reply in replies}) == 1


@pytest.mark.parametrize("release", ["immediate", "two-phase"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_ledger_says_what_an_update_was_masked_with(volume: Path, mechanism: str, release: str) -> None:
    hospital = masked_clinic(volume, **MECHANISMS[mechanism], aggregation__release=release, masking__mode="joint")
    digest = open_cache(volume / "cache").digest

    hospital.train()
    if release == "two-phase":
        hospital.decide(RELEASE)

    ((_, content, _),) = [row for row in stored_rows(hospital) if row[0] == "reserve"]
    assert content["masking"] == f"joint       {SIZE:08d} {digest[:16]}"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_ledger_says_that_an_update_was_not_masked(volume: Path, mechanism: str) -> None:
    plain, _ = pair(volume, mechanism)

    plain.train()

    ((_, content, _),) = [row for row in stored_rows(plain) if row[0] == "reserve"]
    assert content["masking"] == f"none        {0:08d} {'0' * 16}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mechanism", ["update-gaussian", "dp-sgd"])
def test_masking_costs_nothing_and_saves_nothing(volume: Path, mechanism: str, mode: str) -> None:
    both = pair(volume, mechanism, mode)

    declared = [decode_model_update(hospital.train().content).declaration for hospital in both]

    assert declared[0] is not None
    assert declared[1] == declared[0]
    assert both[1].spend() == both[0].spend()


def test_budget_ends_after_as_many_updates_with_masking_as_without(volume: Path) -> None:
    hospitals = [
        masked_clinic(volume / mode, policy={"privacy": {"max-epsilon": 0.5}}, masking__mode=mode, **UPDATE)
        for mode in ("none", "interleaved")
    ]

    codes = [
        [reply.error.code if reply.has_error() else 0 for reply in (hospital.train(f"m{turn}") for turn in range(4))]
        for hospital in hospitals
    ]

    assert codes[1] == codes[0] == [0, 0, SiteErrorCode.BUDGET_EXHAUSTED, SiteErrorCode.BUDGET_EXHAUSTED]


@pytest.mark.parametrize("mode", MODES)
def test_update_without_a_mechanism_holds_the_synthetic_images(volume: Path, mode: str) -> None:
    updates = []
    for fill in (0, 255):
        folder = volume / str(fill)
        hospital = masked_clinic(folder, cache={"fill": fill}, masking__mode=mode)
        updates.append(values(decode_model_update(hospital.train(batch_size=60, optimizer="sgd").content).update))

    # One mini-batch of everything: the order of images, which the hospital draws, plays no part.
    assert not torch.allclose(updates[0], updates[1], rtol=1e-2, atol=1e-5)


def test_result_that_was_masked_otherwise_than_is_asked_for_now_is_not_released(volume: Path) -> None:
    hospital = masked_clinic(volume, **UPDATE, **TWO_PHASE)
    hospital.train()
    hospital.flat["masking.mode"] = "none"

    reply = hospital.decide(RELEASE)

    assert reply.error.code == SiteErrorCode.NOTHING_PENDING
    assert hospital.rows() == ["genesis"]
    assert not hospital.slot.exists()


def test_release_needs_no_cache_any_more(volume: Path) -> None:
    hospital = masked_clinic(volume, **UPDATE, **TWO_PHASE)
    digest = open_cache(volume / "cache").digest
    hospital.train()
    make_cache(volume / "cache", images=50, seed=1)

    reply = hospital.decide(RELEASE)

    assert reply.has_content(), reply.error
    ((_, content, _),) = [row for row in stored_rows(hospital) if row[0] == "reserve"]
    assert content["masking"].endswith(digest[:16])


def test_message_that_is_asked_again_with_masking_is_answered_no_second_time(volume: Path) -> None:
    plain = masked_clinic(volume, masking__mode="none", **UPDATE)
    plain.train("m1")
    plain.flat["masking.mode"] = "interleaved"

    reply = plain.train("m1")

    assert reply.error.code == SiteErrorCode.ALREADY_RELEASED
    assert plain.rows() == ["genesis", "reserve", "commit"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_masked_task_in_the_middle_of_which_its_client_died_stays_booked_with_its_masking(
    volume: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    hospital = masked_clinic(volume, **MECHANISMS[mechanism])

    class Death(BaseException):
        pass

    def die(*_: object) -> None:
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", die)
        patch.setattr(Ledger, "cancel", lambda *_: None)
        with pytest.raises(Death):
            hospital.train("m1")
    hospital.train("m2")

    found = [content["masking"].split()[0] for kind, content, _ in stored_rows(hospital) if kind == "reserve"]
    assert found == ["interleaved"] * 2
    assert hospital.rows() == ["genesis", "reserve", "expire", "reserve", "commit"]


def test_record_says_mode_size_and_the_start_of_the_digest_and_is_as_long_as_that_of_nothing(volume: Path) -> None:
    masking = prepare(masked_clinic(volume))

    assert masking is not None
    assert masking.record == f"interleaved 00000020 {masking.synthetic.cache.digest[:16]}"
    assert len(masking.record) == len(NO_MASKING)


def test_digest_follows_images_and_labels_alone(volume: Path) -> None:
    makers: dict[str, Callable[[Path], object]] = {
        "one": lambda folder: make_cache(folder, images=50, fill=1, labels=[0] * 50),
        "same": lambda folder: make_cache(folder, images=50, fill=1, labels=[0] * 50),
        "labels": lambda folder: make_cache(folder, images=50, fill=1, labels=[1] * 50),
        "images": lambda folder: make_cache(folder, images=50, fill=2, labels=[0] * 50),
    }
    records = {}
    for name, maker in makers.items():
        hospital = masked_clinic(volume / name, own={"cache": str(volume / name / "own-cache")})
        maker(volume / name / "own-cache")
        masking = prepare(hospital)
        assert masking is not None
        records[name] = masking.record

    assert records["one"] == records["same"]
    assert len(set(records.values())) == 3
