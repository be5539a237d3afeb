"""What two-phase release promises, restated: waiting shows nothing, discarding costs nothing, leaving is paid for."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client_app.ledger import Ledger
from client_app.pending import PendingStore
from client_app.releasing import unprotected
from client_app.site import ReleaseKey
from client_app.trained_update import TrainedUpdate, encode_trained_update
from federation.errors import LedgerError, SiteError, SiteErrorCode
from federation.parameters import Parameters, digest
from federation.records.answers import Discarded, Readiness, encode_discarded, encode_readiness
from federation.records.tasks import DISCARD, RELEASE
from tests.client_app.clinic import Clinic
from tests.server_app.killing import Killed, kill_at

_MEMORY = Path("/dev/shm")
_UPDATE: dict[str, Any] = {
    "privacy__mechanism": "update-gaussian",
    "privacy__noise_multiplier": 24.22,
}  # 0.2 by the linear account.
_DP_SGD: dict[str, Any] = {"privacy__mechanism": "dp-sgd", "privacy__account": "rdp", "privacy__noise_multiplier": 5.0}
MECHANISMS: dict[str, dict[str, Any]] = {"none": {}, "update-gaussian": _UPDATE, "dp-sgd": _DP_SGD}


def trained(version: int, update: Parameters) -> TrainedUpdate:
    key, bill = ReleaseKey(run="7", message=f"m{version}"), unprotected("scans")
    return TrainedUpdate(run="run", key=key, model_version=version, examples=60, bill=bill, terms="", update=update)


def content_bytes(content: RecordDict) -> bytes:
    return b"".join(item.deflate() for item in get_all_nested_objects(content).values())


VALUES = st.lists(st.floats(width=32), min_size=1, max_size=20)
EDITS = ["none", "flip", "cut", "append", "other version", "other key", "older result"]


@settings(max_examples=150, deadline=None)
@given(values=VALUES, edit=st.sampled_from(EDITS), data=st.data())
def test_kept_result_is_loaded_bit_for_bit_or_not_at_all(values: list[float], edit: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as root:
        folder, keys = Path(root) / "pending", Path(root) / "keys"
        store, file = PendingStore(folder, hospital_id="north", key_folder=keys), folder / "north.pending"
        older = trained(4, {"w": torch.tensor([*values, 0.5])})
        store.keep(older)
        old = file.read_bytes()
        kept = trained(4, {"w": torch.tensor(values)})
        store.keep(kept)
        content = bytearray(file.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1), label="place")
        if edit == "flip":
            content[place] ^= data.draw(st.integers(1, 255), label="bits")
        elif edit == "cut":
            del content[place:]
        elif edit == "append":
            content += data.draw(st.binary(min_size=1, max_size=40), label="more")
        elif edit == "other version":
            content = content.replace(b', 4, "7"]', b', 5, "7"]')
        elif edit == "other key":
            (keys / "north.pending-key").write_bytes(bytes(32))
        elif edit == "older result":
            content = bytearray(old)
        file.write_bytes(content)
        version, asked_by = (
            5 if edit == "other version" else 4,
            data.draw(st.sampled_from(["7", None]), label="asked by"),
        )

        if edit in ("none", "older result"):
            found, expected = (
                store.load(run="run", asked_by=asked_by, model_version=version),
                kept if edit == "none" else older,
            )
            assert digest(found.update) == digest(expected.update)
            assert replace(found, update={}) == replace(expected, update={})
        else:
            with pytest.raises(SiteError) as caught:
                store.load(run="run", asked_by=asked_by, model_version=version)
            assert caught.value.code is SiteErrorCode.NOTHING_PENDING


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.floats(width=32), min_size=16, max_size=64))
def test_folder_of_kept_results_shows_who_when_and_how_long_and_nothing_else(values: list[float]) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as root:
        folder = Path(root) / "pending"
        store = PendingStore(folder, hospital_id="north", key_folder=Path(root) / "keys")
        kept = trained(4, {"w": torch.tensor(values)})
        store.keep(kept)

        (file,) = folder.iterdir()
        content, plain = file.read_bytes(), encode_trained_update(kept)

    label = b'aegis pending result 1\n\x00\x18["north", "run", 4, "7"]'
    assert content.startswith(label)
    assert len(content) - len(label) == 12 + len(plain) + 16
    assert not any(plain[start : start + 8] in content for start in range(0, len(plain) - 8, 8))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_readiness_and_discard_are_the_same_bytes_whatever_the_images_are(volume: Path, mechanism: str) -> None:
    """Other images, other labels, white images, other class names and folders: the server cannot tell them apart."""
    ready = content_bytes(encode_readiness(Readiness(hospital_id="north", model_version=0)))
    discarded = content_bytes(encode_discarded(Discarded(hospital_id="north", model_version=0)))
    changes: list[dict[str, Any]] = [{}, {"seed": 1}, {"white": 60}, {"class_names": "patient-4711"}]
    kept = []
    for number, change in enumerate(changes):
        hospital = Clinic(
            volume / str(number), aggregation__release="two-phase", **change, **MECHANISMS[mechanism]
        )  # fmt: skip

        assert content_bytes(hospital.train().content) == ready
        kept.append(hospital.slot.stat().st_size)
        assert content_bytes(hospital.decide(DISCARD).content) == discarded
        assert hospital.rows() == ["genesis"]
    assert len(set(kept)) == 1


@pytest.mark.parametrize("mechanism", ["update-gaussian", "dp-sgd"])
def test_training_that_diverges_on_private_images_is_ready_like_any_other(
    volume: Path, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hospital = Clinic(volume, aggregation__release="two-phase", **MECHANISMS[mechanism])
    monkeypatch.setattr("client_app.updating.is_finite", lambda _: False)

    reply = hospital.train()

    ready = encode_readiness(Readiness(hospital_id="north", model_version=0))
    assert content_bytes(reply.content) == content_bytes(ready)


STEPS = ["train", "release", "discard", "dies keeping", "dies before the commit", "dies before deleting"]
_DEATHS: dict[str, tuple[Any, str]] = {
    "dies keeping": (PendingStore, "keep"),
    "dies before the commit": (Ledger, "commit"),
    "dies before deleting": (PendingStore, "clear"),
}


class Story:
    """A hospital under a cap for five releases, and what its server has seen."""

    def __init__(self, folder: Path) -> None:
        policy = {"privacy": {"max-epsilon": 1.0}}
        self.hospital = Clinic(folder, policy=policy, aggregation__release="two-phase", **_UPDATE)
        self.tasks, self.left, self.discarded = 0, set[str](), set[str]()

    def go_on(self, step: str) -> None:
        if step in ("train", "dies keeping"):
            self.tasks += 1
        with pytest.MonkeyPatch.context() as patch:
            if step in _DEATHS:
                patch.setattr(Ledger, "cancel", lambda *_: None)  # A process that died gives nothing back.
                kill_at(patch, *_DEATHS[step], 1, after=False)
            try:
                self._ask(step)
            except Killed:
                return

    def _ask(self, step: str) -> None:
        task = f"m{self.tasks}"
        if step in ("train", "dies keeping"):
            self.hospital.train(task)
        elif step == "discard":
            if self.hospital.decide(DISCARD).has_content():
                self.discarded.add(task)
        elif self.hospital.decide(RELEASE).has_content():
            assert task not in self.left | self.discarded
            self.left.add(task)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=st.lists(st.sampled_from(STEPS), max_size=14))
def test_whatever_is_decided_every_update_that_left_was_paid_for_once_and_the_cap_holds(script: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        story = Story(Path(folder))
        for step in script:
            story.go_on(step)
        with story.hospital.open_ledger() as ledger:
            spend = ledger.spend("scans", 1e-5)
            known = {f"m{number}" for number in range(1, story.tasks + 1) if ledger.knows("1", f"m{number}")}

    begun = sum(step == "release" or step.startswith("dies before") for step in script)
    assert story.left <= known
    assert len(story.left) <= spend.committed <= spend.releases == len(known) <= begun
    assert spend.linear <= 1.0
    if not any(step.startswith("dies before") for step in script):
        assert known == story.left


def test_ledger_that_fails_releases_nothing_and_spends_nothing(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospital = Clinic(volume, aggregation__release="two-phase", **_UPDATE)
    hospital.train()

    def refuse(*_: object) -> None:
        raise LedgerError("full")

    monkeypatch.setattr(Ledger, "reserve", refuse)
    reply = hospital.decide(RELEASE)

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert hospital.spend().releases == 0
