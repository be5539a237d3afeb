"""The slot for one unreleased result: given back bit for bit or not at all, encrypted, and nobody else's to read."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client_app.ledger import keys
from client_app.pending import PendingStore
from client_app.releasing import Bill, unprotected
from client_app.site import ReleaseKey
from client_app.trained_update import (
    Received,
    TrainedUpdate,
    decode_trained_update,
    encode_trained_update,
    terms_of,
)
from federation.accounting.events import GaussianRelease, Relation, SampledGaussianRelease, Unit
from federation.accounting.mechanism import Mechanism
from federation.config import Configuration, MaskingConfig, PrivacyConfig
from federation.errors import LedgerError, SiteError, SiteErrorCode
from federation.parameters import Parameters, digest
from tests.federation.recorded_updates.made_up_records import ORIGIN

GAUSSIAN = Bill(
    data_set="scans",
    mechanism=Mechanism(name="update-gaussian", relation=Relation.ZERO_OUT, unit=Unit.UPDATE, clip_norm=1.0),
    event=GaussianRelease(noise_multiplier=24.22),
    delta=1e-5,
    cap=8.0,
    budget=4.0,
    account="linear",
)
SAMPLED = replace(
    GAUSSIAN,
    mechanism=Mechanism(name="dp-sgd", relation=Relation.ADD_REMOVE, unit=Unit.PATIENT, clip_norm=0.1),
    event=SampledGaussianRelease(noise_multiplier=1.1, sampling_probability=0.01, steps=300),
    account="rdp",
)
UPDATE: Parameters = {
    "z.weight": torch.arange(1.0, 7.0).reshape(2, 3) / 7,
    "a.bias": torch.tensor([-0.0, 3e-45, 3e38]),
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 3),
    "count": torch.tensor([3, 4]),
}


def trained(*, run: str = "run", version: int = 3, update: Parameters = UPDATE, bill: Bill = GAUSSIAN) -> TrainedUpdate:
    key = ReleaseKey(run="7", message=f"m{version}")
    return TrainedUpdate(
        run=run, key=key, model_version=version, examples=60, bill=bill, terms="ab" * 32, update=update
    )


class Slot:
    """The two folders of hospital "north" and of those that share them."""

    def __init__(self, root: Path) -> None:
        self.folder, self.keys = root / "state" / "pending", root / "keys"
        self.file, self.key = self.folder / "north.pending", self.keys / "north.pending-key"

    def store(self, hospital_id: str = "north") -> PendingStore:
        return PendingStore(self.folder, hospital_id=hospital_id, key_folder=self.keys)

    def files(self) -> list[Path]:
        return [path for path in self.folder.parent.parent.rglob("*") if path.is_file()]

    def load(self, *, run: str = "run", asked_by: str | None = "7", version: int = 3) -> TrainedUpdate:
        return self.store().load(run=run, asked_by=asked_by, model_version=version)


@pytest.fixture
def slot(volume: Path) -> Slot:
    return Slot(volume)


def require_same(found: TrainedUpdate, expected: TrainedUpdate) -> None:
    assert replace(found, update={}) == replace(expected, update={})
    assert list(found.update) == list(expected.update)
    assert digest(found.update) == digest(expected.update)


def require_nothing(load: Callable[[], object]) -> str:
    with pytest.raises(SiteError) as caught:
        load()
    assert caught.value.code is SiteErrorCode.NOTHING_PENDING
    return str(caught.value)


@pytest.mark.parametrize("bill", [GAUSSIAN, SAMPLED, unprotected("scans")])
def test_kept_result_comes_back_as_it_was(slot: Slot, bill: Bill) -> None:
    kept = trained(bill=bill)
    slot.store().keep(kept)

    require_same(slot.load(), kept)
    require_same(slot.load(), kept)


BITS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9)


@given(
    tensors=st.dictionaries(st.text(max_size=9), BITS, max_size=4),
    examples=st.integers(0, 2**31),
    version=st.integers(0, 2**31),
    noise=st.floats(1e-3, 1e6),
)
def test_every_bit_of_a_result_survives_its_encoding(
    tensors: dict[str, list[int]], examples: int, version: int, noise: float
) -> None:
    update = {name: torch.tensor(bits, dtype=torch.int32).view(torch.float32) for name, bits in tensors.items()}
    bill = replace(GAUSSIAN, event=GaussianRelease(noise_multiplier=noise))
    before = replace(trained(version=version, update=update, bill=bill), examples=examples)

    require_same(decode_trained_update(encode_trained_update(before)), before)


def test_update_in_another_memory_layout_is_kept_by_its_values(slot: Slot) -> None:
    images = torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last)
    slot.store().keep(trained(update={"w": images}))

    assert torch.equal(slot.load().update["w"], images)


def test_values_of_a_result_do_not_show_when_it_is_printed() -> None:
    assert "tensor" not in repr(trained())


@pytest.mark.parametrize("asked_by", ["7", None])
@pytest.mark.parametrize(("run", "version"), [("other", 3), ("run", 4), ("run", -3), ("", 3), ("run3", 3), ("run", 33)])
def test_decision_on_another_run_or_version_finds_nothing_and_leaves_what_is_kept(
    slot: Slot, run: str, version: int, asked_by: str | None
) -> None:
    slot.store().keep(trained())

    require_nothing(lambda: slot.load(run=run, asked_by=asked_by, version=version))
    require_nothing(lambda: slot.store().discard(run=run, asked_by=asked_by, model_version=version))

    require_same(slot.load(), trained())


def test_result_is_found_by_the_id_of_its_run_or_by_its_name_alone_where_no_id_is_asked_for(slot: Slot) -> None:
    slot.store().keep(trained())

    require_nothing(lambda: slot.load(asked_by="8"))
    require_nothing(lambda: slot.store().discard(run="run", asked_by="8", model_version=3))
    require_same(slot.load(asked_by=None), trained())
    slot.store().discard(run="run", asked_by=None, model_version=3)

    require_nothing(slot.load)


LABELS = [
    b"",
    b"null",
    b"3",
    b'{"north": "run"}',
    b"[]",
    b'["north", "run", 3]',
    b'["north", "run", 3, "7", 0]',
    b"[[[",
]


@pytest.mark.parametrize("body", LABELS)
def test_file_that_begins_with_anything_else_holds_nothing(slot: Slot, body: bytes) -> None:
    slot.store().keep(trained())
    label = b'aegis pending result 1\n\x00\x18["north", "run", 3, "7"]'
    content = slot.file.read_bytes()
    assert content.startswith(label)
    slot.file.write_bytes(b"aegis pending result 1\n\x00" + bytes([len(body)]) + body + content[len(label) :])

    require_nothing(slot.load)
    require_nothing(lambda: slot.load(asked_by=None))


def test_empty_slot_is_told_as_such(slot: Slot) -> None:
    assert "found none" in require_nothing(slot.load)
    assert "found none" in require_nothing(lambda: slot.store().discard(run="run", asked_by="7", model_version=3))
    slot.store().clear()

    assert slot.files() == []


def test_result_of_another_hospital_is_refused_even_under_the_same_key(slot: Slot) -> None:
    slot.store("south").keep(trained())
    shutil.copy(slot.folder / "south.pending", slot.file)
    shutil.copy(slot.keys / "south.pending-key", slot.key)

    require_nothing(slot.load)


def test_hospitals_that_share_folders_keep_their_results_apart(slot: Slot) -> None:
    slot.store("north").keep(trained(version=1))
    slot.store("south").keep(trained(version=2))
    slot.store("north").clear()

    require_nothing(lambda: slot.load(version=1))
    require_same(slot.store("south").load(run="run", asked_by="7", model_version=2), trained(version=2))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_bit_of_the_file_keeps_it_from_being_loaded(slot: Slot, data: st.DataObject) -> None:
    slot.store().keep(trained())
    content = bytearray(slot.file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1), label="place")
    content[place] ^= data.draw(st.integers(1, 255), label="bits")
    slot.file.write_bytes(content)

    detail = require_nothing(slot.load)

    assert "0.142" not in detail  # The first weight.
    assert slot.file.read_bytes() == content


def test_file_that_was_cut_off_anywhere_or_has_more_at_its_end_is_refused(slot: Slot) -> None:
    slot.store().keep(trained())
    content = slot.file.read_bytes()

    for changed in [*(content[:length] for length in range(len(content))), content + b"\0", b"\0" + content]:
        slot.file.write_bytes(changed)
        require_nothing(slot.load)


def test_result_cannot_be_passed_off_as_one_of_another_version(slot: Slot) -> None:
    slot.store().keep(trained(version=3))
    content = slot.file.read_bytes()
    assert b', "run", 3, "7"]' in content
    slot.file.write_bytes(content.replace(b', "run", 3, "7"]', b', "run", 4, "7"]'))

    assert "another key" in require_nothing(lambda: slot.load(version=4))


def test_file_without_its_key_is_refused_and_no_key_is_made(slot: Slot) -> None:
    slot.store().keep(trained())
    slot.key.unlink()

    assert "expected the key" in require_nothing(slot.load)
    assert not slot.key.exists()


def test_file_under_another_key_is_refused(slot: Slot) -> None:
    slot.store().keep(trained())
    slot.key.unlink()
    keys.make_key(slot.key)

    assert "another key" in require_nothing(slot.load)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda key: key.chmod(0o640), "mode 0640"),
        (lambda key: key.write_bytes(b"x" * 31), "found 31: delete it"),
    ],
)
def test_key_that_others_can_read_or_of_another_length_is_used_for_nothing(
    slot: Slot, damage: Callable[[Path], object], text: str
) -> None:
    slot.store().keep(trained())
    damage(slot.key)

    with pytest.raises(LedgerError, match=text):
        slot.load()
    with pytest.raises(LedgerError, match=text):
        slot.store().keep(trained(version=4))


def test_disk_never_holds_a_result_in_the_clear(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    original = keys.write_secret

    def watch(path: Path, content: bytes) -> None:
        written.append(content)
        original(path, content)

    monkeypatch.setattr("client_app.pending.write_secret", watch)
    update = {"layer.weight": torch.arange(1.0, 65.0) / 7, "zeros": torch.zeros(64)}
    slot.store().keep(trained(update=update))

    (content,) = written
    assert slot.file.read_bytes() == content
    plain = encode_trained_update(trained(update=update))
    pieces = {plain[start : start + 8] for start in range(0, len(plain) - 8, 4)}
    on_disk = b"".join(path.read_bytes() for path in slot.files())
    assert not any(piece in on_disk for piece in pieces)
    assert b"layer" not in on_disk
    assert b"scans" not in on_disk


def test_file_shows_whose_result_it_is_and_how_long(slot: Slot) -> None:
    slot.store().keep(trained())

    content = slot.file.read_bytes()

    label = b'aegis pending result 1\n\x00\x18["north", "run", 3, "7"]'
    assert content.startswith(label)
    assert len(content) == len(label) + 12 + len(encode_trained_update(trained())) + 16


def test_same_result_kept_twice_gives_another_file_under_the_same_key(slot: Slot) -> None:
    slot.store().keep(trained())
    first, key = slot.file.read_bytes(), slot.key.read_bytes()
    slot.store().keep(trained())
    second = slot.file.read_bytes()

    secret = len(b'aegis pending result 1\n\x00\x18["north", "run", 3, "7"]')
    assert slot.key.read_bytes() == key
    assert len(key) == 32
    assert first[:secret] == second[:secret]
    assert first[secret:][:12] != second[secret:][:12]
    assert first[secret + 12 :] != second[secret + 12 :]


def test_nobody_else_may_read_a_file_at_any_moment(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    original = os.open

    def watch(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        descriptor = original(path, flags, mode, **options)
        if flags & os.O_CREAT:
            modes.append(os.fstat(descriptor).st_mode & 0o777)
        return descriptor

    monkeypatch.setattr(os, "open", watch)
    before = os.umask(0)
    try:
        slot.store().keep(trained())
    finally:
        os.umask(before)

    assert modes == [0o600, 0o600]
    assert {path.stat().st_mode & 0o777 for path in slot.files()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (slot.folder, slot.keys)} == {0o700}


def test_folder_that_others_could_look_into_is_closed_to_them(slot: Slot) -> None:
    slot.folder.mkdir(parents=True, mode=0o755)

    slot.store().keep(trained())

    assert slot.folder.stat().st_mode & 0o777 == 0o700


def test_new_result_takes_the_place_of_the_old_one(slot: Slot) -> None:
    for version in (1, 2):
        slot.store().keep(trained(version=version))

    require_nothing(lambda: slot.load(version=1))
    require_same(slot.load(version=2), trained(version=2))
    assert [path.name for path in sorted(slot.files())] == ["north.pending-key", "north.pending"]


def test_deleting_leaves_nothing_but_the_key_and_is_forced_to_the_disk(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot.store().keep(trained())
    slot.folder.joinpath("north.pending.new").write_bytes(b"of a client that died while it wrote")
    synced: list[bool] = []
    monkeypatch.setattr("client_app.pending.sync_folder", lambda folder: synced.append(any(folder.iterdir())))

    slot.store().discard(run="run", asked_by="7", model_version=3)

    assert slot.files() == [slot.key]
    assert synced == [True, False]


def test_volume_that_is_full_keeps_the_result_before_and_says_so(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    slot.store().keep(trained(version=1))

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(LedgerError, match="found it full"):
            slot.store().keep(trained(version=2))

    require_same(slot.load(version=1), trained(version=1))


def test_folder_that_cannot_be_read_is_an_error_with_its_remedy(slot: Slot) -> None:
    slot.file.mkdir(parents=True)

    with pytest.raises(LedgerError, match=r"north\.pending: expected it to work"):
        slot.load()


def test_terms_differ_where_policy_or_request_do() -> None:
    request = Configuration(privacy=PrivacyConfig(mechanism="update-gaussian"))
    other = Configuration(privacy=PrivacyConfig(mechanism="update-gaussian", clip_norm=2.0))
    masked = request.model_copy(update={"masking": MaskingConfig(mode="joint")})
    terms = {terms_of(None, request), terms_of(None, other), terms_of(None, masked)}

    assert len(terms) == 3
    assert terms_of(None, Configuration(privacy=PrivacyConfig(mechanism="update-gaussian"))) in terms


@pytest.mark.parametrize("received", [None, Received(origin=ORIGIN, parameters={k: v * 3 for k, v in UPDATE.items()})])
def test_model_that_a_result_started_from_waits_with_it_where_copies_are_kept(received: Received | None) -> None:
    kept = replace(trained(), received=received)

    found = decode_trained_update(encode_trained_update(kept))

    assert list(found.update) == list(UPDATE)
    assert digest(found.update) == digest(UPDATE)
    assert (found.received is None) == (received is None)
    if found.received and received:
        assert found.received.origin == ORIGIN
        assert digest(found.received.parameters) == digest(received.parameters)
