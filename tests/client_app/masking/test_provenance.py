"""With which synthetic images an epsilon can still be claimed: no private image unbooked behind gradients outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aegis_cache.store.provenance import Provenance, Source
from client_app.ledger import Ledger, ReleaseRequest
from federation.accounting.events import Event, GaussianRelease, Relation, SampledGaussianRelease, Unit, event_as_dict
from federation.accounting.mechanism import Mechanism
from federation.errors import SiteErrorCode
from federation.records.answers import decode_model_update
from tests.client_app.clinic import Clinic
from tests.client_app.masking.test_preparation import MECHANISMS, masked_clinic, require_refusal

REFUSED = SiteErrorCode.MASKING_PROVENANCE
OF_GENERATOR = Mechanism(name="dp-sgd", relation=Relation.ADD_REMOVE, unit=Unit.RECORD, clip_norm=1.0)
OF_PATIENTS = Mechanism(name="dp-sgd", relation=Relation.ADD_REMOVE, unit=Unit.PATIENT, clip_norm=1.0)
EVENT = SampledGaussianRelease(noise_multiplier=20.0, sampling_probability=0.25, steps=40)
LOUDER = SampledGaussianRelease(noise_multiplier=20.5, sampling_probability=0.25, steps=40)
DP_SGD = MECHANISMS["dp-sgd"]

FILTERED = Provenance(source=Source.PRIVATE_FILTERED, uses=("Images near private ones were dropped.",))
ADAPTED = Provenance(source=Source.PRIVATE_ADAPTED, uses=("The generator was trained on private images.",))
PAID = Provenance(
    source=Source.DP,
    uses=("The generator was trained by DP-SGD.",),
    epsilon=1.0,
    delta=1e-5,
    event=event_as_dict(EVENT),
)
PAID_AND_FILTERED = PAID.model_copy(
    update={"source": Source.PRIVATE_FILTERED, "uses": (*PAID.uses, *FILTERED.uses)},
)
PRIVATE = {"private-filtered": FILTERED, "private-adapted": ADAPTED}


def hospital_with(folder: Path, provenance: Provenance, **settings: Any) -> Clinic:
    return masked_clinic(folder, cache={"provenance": provenance}, **settings)


def request(
    event: Event, data_set: str = "scans", *, run_id: str = "aegis-cache", mechanism: Mechanism = OF_GENERATOR
) -> ReleaseRequest:
    """Return what `aegis cache build` books for a generator."""
    return ReleaseRequest(
        run_id=run_id,
        message_id="generator",
        data_set=data_set,
        mechanism=mechanism,
        event=event,
        delta=1e-5,
        cap=100.0,
        account="rdp",
    )


def book(hospital: Clinic, event: Event = EVENT, data_set: str = "scans", **other: Any) -> None:
    with hospital.open_ledger() as ledger:
        ledger.commit(ledger.reserve(request(event, data_set, **other)))


@pytest.mark.parametrize("release", ["immediate", "two-phase"])
@pytest.mark.parametrize("source", PRIVATE)
def test_no_epsilon_is_claimed_with_images_that_private_ones_shaped(
    volume: Path, monkeypatch: pytest.MonkeyPatch, source: str, release: str
) -> None:
    hospital = hospital_with(volume, PRIVATE[source], **DP_SGD, aggregation__release=release)

    require_refusal(hospital, monkeypatch, REFUSED, "Expected provenance.source = 'public' or 'dp'")
    assert f"found '{source}': {PRIVATE[source].uses[0]}" in hospital.log()


def test_epsilon_beside_a_stronger_use_lets_none_be_claimed_although_it_is_booked(volume: Path) -> None:
    hospital = hospital_with(volume, PAID_AND_FILTERED, **DP_SGD)
    book(hospital)

    reply = hospital.train()

    assert reply.error.code == REFUSED
    assert hospital.rows() == ["genesis", "reserve", "commit"]


@pytest.mark.parametrize("source", [*PRIVATE, "dp"])
@pytest.mark.parametrize("mechanism", ["none", "update-gaussian"])
def test_the_same_images_mask_where_all_is_noised_together_or_nothing_is_claimed(
    volume: Path, mechanism: str, source: str
) -> None:
    scores = {"run__hospital_evaluation": mechanism == "none"}
    hospital = hospital_with(volume, {**PRIVATE, "dp": PAID}[source], **MECHANISMS[mechanism], **scores)

    reply = hospital.train()

    assert reply.has_content(), reply.error
    assert (decode_model_update(reply.content).declaration is None) == (mechanism == "none")


@pytest.mark.parametrize("source", PRIVATE)
def test_scores_of_other_splits_are_not_told_beside_updates_that_may_carry_these_splits(
    volume: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    hospital = hospital_with(volume, PRIVATE[source], **MECHANISMS["update-gaussian"])

    require_refusal(hospital, monkeypatch, REFUSED, "or set run.hospital-evaluation = false")


def test_public_images_leave_the_claim_as_it_is(volume: Path) -> None:
    hospital = hospital_with(volume, Provenance.public(), **DP_SGD)

    reply = hospital.train()

    assert reply.has_content(), reply.error


@pytest.mark.parametrize("mechanism", ["none", "dp-sgd"])
def test_provenance_counts_only_for_a_task_that_is_masked(volume: Path, mechanism: str) -> None:
    hospital = hospital_with(volume, ADAPTED, **MECHANISMS[mechanism], masking__mode="none")

    reply = hospital.train()

    assert reply.has_content(), reply.error


def cancel(hospital: Clinic) -> None:
    with hospital.open_ledger() as ledger:
        ledger.cancel(ledger.reserve(request(EVENT)))


def nothing(hospital: Clinic) -> None:
    hospital.open_ledger().close()


NOT_BOOKED: dict[str, Callable[[Clinic], None]] = {
    "nothing": nothing,
    "another event": lambda hospital: book(hospital, LOUDER),
    "an event of another kind": lambda hospital: book(hospital, GaussianRelease(noise_multiplier=20.0)),
    "another data set": lambda hospital: book(hospital, data_set="other"),
    "cancelled": cancel,
    "an update with the same event": lambda hospital: book(hospital, run_id="7"),
    "a generator that protects patients": lambda hospital: book(hospital, mechanism=OF_PATIENTS),
}


@pytest.mark.parametrize("instead", NOT_BOOKED)
def test_generator_under_a_mechanism_is_refused_unless_its_very_event_is_booked(
    volume: Path, monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    hospital = hospital_with(volume, PAID, **DP_SGD)
    NOT_BOOKED[instead](hospital)
    before = hospital.rows()

    with monkeypatch.context() as patch:
        patch.setattr("client_app.main.compute_update", lambda *_, **__: pytest.fail("trained"))
        reply = hospital.train()

    assert (reply.error.code, reply.error.reason) == (REFUSED, REFUSED.sentence)
    assert "provenance.event of the cache's manifest to stand in this hospital's ledger" in hospital.log()
    assert hospital.rows() == before


@pytest.mark.parametrize("left_by_a_crash", [False, True])
def test_generator_whose_event_is_booked_counts_with_the_updates_that_are_masked_with_it(
    volume: Path, monkeypatch: pytest.MonkeyPatch, left_by_a_crash: bool
) -> None:
    hospital = hospital_with(volume, PAID, **DP_SGD)
    with monkeypatch.context() as patch:
        if left_by_a_crash:
            patch.setattr(Ledger, "commit", lambda *_: None)
        book(hospital)
    before = hospital.spend()

    reply = hospital.train()

    assert reply.has_content(), reply.error
    declaration = decode_model_update(reply.content).declaration
    assert declaration is not None
    assert (declaration.releases, declaration.uncovered) == (2, 0)
    assert declaration.spent == hospital.spend().rdp > before.rdp > 0
