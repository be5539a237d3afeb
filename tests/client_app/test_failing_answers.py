"""What fails at a deployed hospital releases nothing and has a code: training, noise, the ledger, its folders."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from client_app.ledger import Ledger
from federation.errors import LedgerError, SiteErrorCode
from tests.client_app.answers import DP_SGD, UPDATE, updated, values
from tests.client_app.clinic import Clinic


def diverge(model: torch.nn.Module, *_: object, **__: object) -> None:
    """Train as if a gradient had been NaN."""
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = math.nan


def test_training_that_is_not_finite_releases_and_spends_nothing(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_app.updating.train_locally", diverge)
    hospital = clinic()

    reply = hospital.train()

    assert not reply.has_content()
    assert reply.error.code == SiteErrorCode.NON_FINITE_UPDATE
    assert "reserve" not in hospital.rows()
    assert hospital.spend().releases == 0


def test_update_that_is_not_finite_leaves_as_noise_alone(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("client_app.updating.train_locally", diverge)
    hospital = clinic(**UPDATE)

    released = values(updated(hospital).update)

    assert float(released.std()) == pytest.approx(24.22, rel=5 / math.sqrt(2 * released.numel()))
    assert hospital.spend().committed == 1
    assert "diverged" in hospital.log()


def test_dp_sgd_by_a_plan_that_diverges_on_any_images_releases_and_spends_nothing(
    clinic: Callable[..., Clinic],
) -> None:
    hospital = clinic(**DP_SGD)

    reply = hospital.train(optimizer="sgd", learning_rate=1e38, local_epochs=3)

    assert not reply.has_content()
    assert reply.error.code == SiteErrorCode.TRAINING_FAILED
    assert "reserve" not in hospital.rows()
    assert hospital.spend().releases == 0


def test_noise_that_fails_gives_the_cost_back(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def stop(*_: object, **__: object) -> None:
        raise OSError("no entropy")

    hospital = clinic(**UPDATE)
    monkeypatch.setattr("client_app.main.protect", stop)

    reply = hospital.train()

    assert reply.error.code == SiteErrorCode.INTERNAL
    assert hospital.rows() == ["genesis", "reserve", "cancel"]
    assert hospital.spend().releases == 0


def test_answer_whose_commit_fails_does_not_leave(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def refuse(*_: object) -> None:
        raise LedgerError("full")

    hospital = clinic(**UPDATE)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", refuse)
        reply = hospital.train()

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert not reply.has_content()
    assert hospital.spend().releases == 1


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client give up at once where another one holds the ledger."""
    original = Ledger.open

    def open_at_once(*arguments: Any, **options: Any) -> Ledger:
        return original(*arguments, **options, wait_s=0)

    monkeypatch.setattr(Ledger, "open", open_at_once)


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_ledger_that_another_client_holds_is_unavailable(
    clinic: Callable[..., Clinic], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    hospital = clinic(**UPDATE)
    with hospital.open_ledger(), monkeypatch.context() as patch:
        impatient(patch)
        reply = hospital.ask(kind)

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert "only client" in hospital.log()
    assert hospital.rows() == ["genesis"]
    assert hospital.ask(kind).has_content()


def corrupt(hospital: Clinic) -> None:
    content = bytearray(hospital.ledger.read_bytes())
    content[: len(content) // 2] = b"x" * (len(content) // 2)
    hospital.ledger.write_bytes(bytes(content))


def drop_the_anchor(hospital: Clinic) -> None:
    (hospital.folder / "keys" / "north.anchor").unlink()


def drop_the_ledger(hospital: Clinic) -> None:
    hospital.ledger.unlink()


@pytest.mark.parametrize("damage", [corrupt, drop_the_anchor, drop_the_ledger])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_damaged_ledger_is_unavailable_and_nothing_leaves(
    clinic: Callable[..., Clinic], kind: str, damage: Callable[[Clinic], None]
) -> None:
    hospital = clinic(**UPDATE)
    updated(hospital, "first")
    damage(hospital)

    reply = hospital.ask(kind, "second")

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert not reply.has_content()


def test_old_backup_of_the_ledger_is_noticed_and_nothing_leaves(clinic: Callable[..., Clinic], tmp_path: Path) -> None:
    hospital = clinic(**UPDATE)
    updated(hospital, "m1")
    shutil.copy(hospital.ledger, tmp_path / "backup")
    updated(hospital, "m2")
    shutil.copy(tmp_path / "backup", hospital.ledger)

    reply = hospital.train("m3")

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert not reply.has_content()


@pytest.mark.parametrize("place", ["state_dir", "keys_dir"])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_folder_that_cannot_be_written_makes_the_ledger_unavailable(
    clinic: Callable[..., Clinic], place: str, kind: str
) -> None:
    hospital = clinic(policy={place: "/proc/aegis"}, **UPDATE)  # Nobody can make a folder there, root included.

    reply = hospital.ask(kind)

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert not reply.has_content()
