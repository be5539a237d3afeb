"""Two-phase release at a hospital: trained and kept, then paid for and released, or deleted at no cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message, RecordDict

from client_app import main
from client_app.ledger import Ledger
from client_app.pending import PendingStore
from client_app.trained_update import TrainedUpdate
from client_app.training import train_locally
from federation.config import TrainingConfig, parse_configuration
from federation.datasets.sites import load_site
from federation.errors import LedgerError, SiteErrorCode
from federation.models import build_model
from federation.parameters import Parameters, read_parameters
from federation.records.answers import (
    Discarded,
    ModelUpdate,
    Readiness,
    decode_discarded,
    decode_model_update,
    decode_training_answer,
)
from federation.records.tasks import DISCARD, RELEASE, encode_decision, encode_training_task
from federation.records.tensors import encode_parameters
from tests.client_app.answers import DP_SGD, UPDATE
from tests.client_app.calls import deployed_node, flat_configuration, make_context, make_message
from tests.client_app.clinic import Clinic
from tests.server_app.killing import Killed, kill_at

TWO_PHASE = {"aggregation__release": "two-phase"}
MECHANISMS: dict[str, dict[str, Any]] = {"none": {}, "update-gaussian": UPDATE, "dp-sgd": DP_SGD}
Clinics = Callable[..., Clinic]


def require_ready(hospital: Clinic, reply: Message, version: int = 0) -> None:
    assert reply.has_content(), reply.error
    assert decode_training_answer(reply.content) == Readiness(hospital_id="north", model_version=version)
    assert hospital.slot.is_file()


def update_in(reply: Message) -> ModelUpdate:
    assert reply.has_content(), reply.error
    return decode_model_update(reply.content)


def bits(update: Parameters) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in update.items()}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_trained_update_waits_without_a_cost_and_is_paid_for_when_it_leaves(clinic: Clinics, mechanism: str) -> None:
    hospital = clinic(**MECHANISMS[mechanism], **TWO_PHASE)

    require_ready(hospital, hospital.train(version=5), 5)
    before = hospital.rows()
    answer = update_in(hospital.decide(RELEASE, 5))

    assert before == ["genesis"]
    assert hospital.rows() == ["genesis", "reserve", "commit"]
    assert (answer.hospital_id, answer.model_version, answer.examples) == ("north", 5, 60)
    assert list(answer.update) == list(hospital.build())
    assert (answer.declaration is None) == (mechanism == "none")
    assert not hospital.slot.exists()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_update_that_is_not_wanted_costs_nothing(clinic: Clinics, mechanism: str) -> None:
    hospital = clinic(**MECHANISMS[mechanism], **TWO_PHASE)
    require_ready(hospital, hospital.train())

    answer = decode_discarded(hospital.decide(DISCARD).content)

    assert answer == Discarded(hospital_id="north", model_version=0)
    assert hospital.rows() == ["genesis"]
    assert hospital.spend().releases == 0
    assert not hospital.slot.exists()
    assert hospital.decide(RELEASE).error.code == SiteErrorCode.NOTHING_PENDING


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_task_that_training_would_refuse_leaves_what_is_kept(clinic: Clinics, mechanism: str) -> None:
    hospital = clinic(**MECHANISMS[mechanism], **TWO_PHASE)
    require_ready(hospital, hospital.train())

    assert hospital.train("m2", version=1, class_prior="0.5,0.2,0.2,0.05,0.05").has_error()

    assert update_in(hospital.decide(RELEASE)).model_version == 0


def test_discarded_updates_leave_the_whole_budget_to_those_that_are_wanted(clinic: Clinics) -> None:
    hospital = clinic(policy={"privacy": {"max-epsilon": 0.3}}, **UPDATE, **TWO_PHASE)  # One release costs 0.2.
    for number in range(5):
        require_ready(hospital, hospital.train(f"m{number}", version=number), number)
        hospital.decide(DISCARD, number)

    require_ready(hospital, hospital.train("m5", version=5), 5)
    assert update_in(hospital.decide(RELEASE, 5)).declaration is not None
    assert hospital.train("m6", version=6).error.code == SiteErrorCode.BUDGET_EXHAUSTED


def test_release_is_booked_under_the_training_task(clinic: Clinics) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    hospital.train("m1")
    update_in(hospital.decide(RELEASE, message_id="d1"))

    with hospital.open_ledger() as ledger:
        assert (ledger.knows("1", "m1"), ledger.knows("1", "d1")) == (True, False)
    assert hospital.train("m1").error.code == SiteErrorCode.ALREADY_RELEASED


def test_noise_is_drawn_at_release_for_the_whole_update_and_in_training_for_dp_sgd(
    clinic: Clinics, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Parameters] = []
    original = PendingStore.keep

    def watch(store: PendingStore, trained: TrainedUpdate) -> None:
        kept.append(trained.update)
        original(store, trained)

    monkeypatch.setattr(PendingStore, "keep", watch)
    for mechanism, settings in MECHANISMS.items():
        hospital = clinic(**settings, **TWO_PHASE)
        hospital.train(f"m-{mechanism}")

        released = update_in(hospital.decide(RELEASE)).update

        same = [torch.equal(released[name], value) for name, value in kept[-1].items()]
        assert not any(same) if mechanism == "update-gaussian" else all(same)


@pytest.mark.parametrize("message_type", [RELEASE, DISCARD])
def test_decision_that_fits_nothing_leaves_what_is_kept(clinic: Clinics, message_type: str) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    assert hospital.decide(message_type).error.code == SiteErrorCode.NOTHING_PENDING
    hospital.train(version=3)
    kept = hospital.slot.read_bytes()

    replies = [hospital.decide(message_type, 2), hospital.decide(message_type, 3, run_id=2)]

    for reply in replies:
        sentence = "The hospital keeps no result that fits the decision."
        assert (reply.error.code, reply.error.reason) == (119, sentence)
    assert hospital.slot.read_bytes() == kept
    assert hospital.rows() == ["genesis"]


@pytest.mark.parametrize("resumed_as", [{"run__name": "other"}, {"run__name": "1"}])
@pytest.mark.parametrize("message_type", [RELEASE, DISCARD])
def test_decision_of_a_resumed_run_of_another_name_leaves_what_is_kept(
    clinic: Clinics, message_type: str, resumed_as: dict[str, Any]
) -> None:
    clinic(**UPDATE, **TWO_PHASE).train(version=3)
    other = clinic(**UPDATE, **TWO_PHASE, **resumed_as, run__resume=True)
    kept = other.slot.read_bytes()

    for run_id in (1, 2):
        assert other.decide(message_type, 3, run_id=run_id).error.code == SiteErrorCode.NOTHING_PENDING

    assert other.slot.read_bytes() == kept
    assert other.rows() == ["genesis"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_decision_of_a_resumed_run_reaches_what_was_kept_for_the_run_before(clinic: Clinics, mechanism: str) -> None:
    """A resumed server is another run for Flower, under the same name."""
    clinic(**MECHANISMS[mechanism], **TWO_PHASE).train("m3", version=3)
    resumed = clinic(**MECHANISMS[mechanism], **TWO_PHASE, run__resume=True)

    answer = update_in(resumed.decide(RELEASE, 3, run_id=2))

    assert (answer.model_version, answer.examples) == (3, 60)
    assert resumed.rows() == ["genesis", "reserve", "commit"]
    with resumed.open_ledger() as ledger:
        assert (ledger.knows("1", "m3"), ledger.knows("2", "m3"), ledger.knows("2", "d1")) == (True, False, False)
    assert not resumed.slot.exists()


def test_discard_of_a_resumed_run_deletes_what_was_kept_for_the_run_before(clinic: Clinics) -> None:
    clinic(**UPDATE, **TWO_PHASE).train(version=3)
    resumed = clinic(**UPDATE, **TWO_PHASE, run__resume=True)

    answer = decode_discarded(resumed.decide(DISCARD, 3, run_id=2).content)

    assert answer == Discarded(hospital_id="north", model_version=3)
    assert resumed.rows() == ["genesis"]
    assert not resumed.slot.exists()


# What a server that was killed had heard of the release: nothing, since the hospital died as said, or all of it.
HEARD = {"nothing, not booked": "reserve", "nothing, booked": "commit", "nothing, not deleted": "clear", "all": ""}


@pytest.mark.parametrize("heard", HEARD)
def test_release_that_is_asked_for_again_by_a_resumed_run_is_paid_for_and_made_once(
    clinic: Clinics, monkeypatch: pytest.MonkeyPatch, heard: str
) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    hospital.train("m1")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "cancel", lambda *_: None)  # A process that died gives nothing back.
        if step := HEARD[heard]:
            kill_at(patch, PendingStore if step == "clear" else Ledger, step, 1, after=False)
            with pytest.raises(Killed):
                hospital.decide(RELEASE)
        else:
            update_in(hospital.decide(RELEASE))
    resumed = clinic(**UPDATE, **TWO_PHASE, run__resume=True)

    replies = [resumed.decide(RELEASE, run_id=run_id) for run_id in (2, 2, 3)]

    already = [SiteErrorCode.ALREADY_RELEASED] if heard == "nothing, not deleted" else []
    codes = [reply.error.code for reply in replies if reply.has_error()]
    assert codes == [*already, *[SiteErrorCode.NOTHING_PENDING] * (len(codes) - len(already))]
    assert len(codes) == (2 if heard in ("nothing, not booked", "nothing, booked") else 3)
    assert resumed.spend().releases == resumed.spend().committed == 1
    assert not resumed.slot.exists()


def test_nothing_is_kept_where_updates_leave_at_once(clinic: Clinics) -> None:
    hospital = clinic(**UPDATE)

    assert isinstance(decode_training_answer(hospital.train().content), ModelUpdate)

    assert not hospital.slot.exists()
    assert hospital.decide(RELEASE).error.code == SiteErrorCode.NOTHING_PENDING


@pytest.mark.parametrize("message_type", [RELEASE, DISCARD])
def test_second_decision_finds_nothing(clinic: Clinics, message_type: str) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    hospital.train()
    hospital.decide(message_type)
    before = hospital.rows()

    assert hospital.decide(message_type).error.code == SiteErrorCode.NOTHING_PENDING
    assert hospital.rows() == before


@pytest.mark.parametrize("settings", [TWO_PHASE, {}])
def test_new_task_deletes_what_is_kept_before_it_trains(
    clinic: Clinics, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    clinic(**UPDATE, **TWO_PHASE).train("m1", version=1)
    hospital = clinic(**UPDATE, **settings)
    assert hospital.slot.exists()
    seen = list[bool]()

    def look(*arguments: Any, **options: Any) -> None:
        seen.append(hospital.slot.exists())
        train_locally(*arguments, **options)

    monkeypatch.setattr("client_app.updating.train_locally", look)
    assert hospital.train("m2", version=2).has_content()

    assert seen == [False]
    assert hospital.decide(RELEASE, 1).error.code == SiteErrorCode.NOTHING_PENDING


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"privacy.mechanism": "none", "privacy.noise-multiplier": 0.0}, SiteErrorCode.POLICY_MECHANISM),
        ({"privacy.noise-multiplier": 1.0}, SiteErrorCode.BUDGET_EXHAUSTED),
        ({"model.name": "vgg"}, SiteErrorCode.CONFIGURATION),
    ],
)
def test_task_that_is_refused_leaves_what_is_kept(
    clinic: Clinics, change: dict[str, Any], code: SiteErrorCode
) -> None:  # fmt: skip
    policy = {"privacy": {"mechanisms": ["update-gaussian"], "max-epsilon": 0.3}}
    hospital = clinic(policy=policy, **UPDATE, **TWO_PHASE)
    hospital.train("m1")
    kept, flat = hospital.slot.read_bytes(), hospital.flat
    hospital.flat = flat | change

    assert hospital.train("m2").error.code == code

    assert hospital.slot.read_bytes() == kept
    hospital.flat = flat
    assert update_in(hospital.decide(RELEASE)).examples == 60


def test_update_for_which_there_is_no_room_is_not_even_trained(
    clinic: Clinics, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    hospital = clinic(policy={"privacy": {"max-epsilon": 0.1}}, **UPDATE, **TWO_PHASE)
    monkeypatch.setattr(main, "compute_update", lambda *_, **__: pytest.fail("trained"))

    assert hospital.train().error.code == SiteErrorCode.BUDGET_EXHAUSTED
    assert not hospital.slot.exists()


@pytest.mark.parametrize("mechanism", ["update-gaussian", "dp-sgd"])
def test_budget_that_another_run_used_up_meanwhile_keeps_the_update_at_home_for_good(
    clinic: Clinics, mechanism: str
) -> None:
    cap = {"update-gaussian": 0.3, "dp-sgd": 0.09}[mechanism]
    hospital = clinic(policy={"privacy": {"max-epsilon": cap}}, **MECHANISMS[mechanism], **TWO_PHASE)
    require_ready(hospital, hospital.train("m1"))
    kept = hospital.slot.read_bytes()
    release_at_once = clinic(policy={"privacy": {"max-epsilon": cap}}, **MECHANISMS[mechanism])
    number = 0
    while release_at_once.train(f"other-{number}", run_id=2).has_content():
        number += 1
    hospital.slot.write_bytes(kept)  # As if the other run had been answered by a process beside this one.
    before = hospital.rows()

    reply = hospital.decide(RELEASE)

    assert number >= 1
    assert reply.error.code == SiteErrorCode.BUDGET_EXHAUSTED
    assert hospital.rows() == before
    assert not hospital.slot.exists()


STRICTER: dict[str, dict[str, Any]] = {
    "cap": {"privacy": {"max-epsilon": 50.0}},
    "mechanism": {"privacy": {"mechanisms": ["dp-sgd"]}},
    "noise": {"privacy": {"min-noise-multiplier": 30.0}},
    "model": {"models": {"allowed": ["cnn"]}},
    "examples": {"training": {"min-examples": 61}},
    "data set": {"data": {"id": "other"}},
}


@pytest.mark.parametrize("change", STRICTER)
def test_update_trained_under_another_policy_is_not_released_and_not_kept(
    clinic: Clinics, volume: Path, change: str
) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    require_ready(hospital, hospital.train())
    hospital.node = deployed_node(volume, **STRICTER[change])

    reply = hospital.decide(RELEASE)

    assert reply.error.code == SiteErrorCode.NOTHING_PENDING
    assert "found a changed one" in hospital.log()
    assert "reserve" not in hospital.rows()
    assert not hospital.slot.exists()


@pytest.mark.parametrize("key", ["privacy.clip-norm", "privacy.noise-multiplier", "privacy.epsilon"])
def test_update_is_not_released_under_another_request_than_it_was_trained_under(clinic: Clinics, key: str) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    hospital.train()
    hospital.flat[key] *= 2

    assert hospital.decide(RELEASE).error.code == SiteErrorCode.NOTHING_PENDING
    assert hospital.rows() == ["genesis"]


def test_comment_in_the_policy_changes_no_terms(clinic: Clinics, volume: Path) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    hospital.train()
    with (volume / "site.toml").open("a") as file:
        file.write("# reviewed\n")

    assert update_in(hospital.decide(RELEASE)).examples == 60


def test_ledger_that_cannot_be_used_leaves_the_update_for_another_decision(
    clinic: Clinics, monkeypatch: pytest.MonkeyPatch
) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    hospital.train()

    def refuse(*_: object, **__: object) -> None:
        raise LedgerError("full")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "reserve", refuse)
        assert hospital.decide(RELEASE).error.code == SiteErrorCode.LEDGER_UNAVAILABLE

    assert update_in(hospital.decide(RELEASE)).examples == 60
    assert hospital.spend().releases == 1


def test_update_that_cannot_be_kept_is_no_readiness(clinic: Clinics, monkeypatch: pytest.MonkeyPatch) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    (hospital.folder / "state").mkdir()
    (hospital.folder / "state" / "pending").write_text("a file where a folder should be")

    reply = hospital.train()

    assert reply.error.code == SiteErrorCode.LEDGER_UNAVAILABLE
    assert "reserve" not in hospital.rows()


def test_damaged_file_is_told_as_nothing_and_its_story_stays_in_the_log(clinic: Clinics) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    hospital.train()
    hospital.slot.write_bytes(hospital.slot.read_bytes()[:-1])

    assert hospital.decide(RELEASE).error.code == SiteErrorCode.NOTHING_PENDING
    assert "expected the result as it was kept" in hospital.log()
    assert hospital.rows() == ["genesis"]


def test_every_step_is_in_the_hospitals_log(clinic: Clinics) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    for number, message_type in enumerate([RELEASE, DISCARD]):
        hospital.train(f"m{number}", version=number)
        hospital.decide(message_type, number)

    entries = [json.loads(line) for line in hospital.log().splitlines()]

    events = [(entry["event"], entry["model_version"]) for entry in entries]
    assert events == [
        ("trained", 0),
        ("ready", 0),
        ("update", 0),
        ("trained", 1),
        ("ready", 1),
        ("discarded", 1),
    ]


@pytest.mark.parametrize("message_type", [RELEASE, DISCARD])
def test_message_of_another_protocol_is_refused(clinic: Clinics, message_type: str) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    hospital.train()

    reply = main.app(make_message(RecordDict(), message_type), hospital.context())

    assert reply.error.code == SiteErrorCode.PROTOCOL
    assert hospital.slot.exists()


# Where a client dies: what is patched, at which call, before or after its work. What a decision finds afterwards: the
# kinds of rows, and the code of its answer; None for an update.
DEATHS: dict[str, tuple[Any, str, bool, list[str], SiteErrorCode | None]] = {
    "before it reserves": (Ledger, "reserve", False, ["reserve", "commit"], None),
    "after it reserved": (Ledger, "reserve", True, ["reserve", "expire", "commit"], None),
    "before it commits": (Ledger, "commit", False, ["reserve", "expire", "commit"], None),
    "after it committed": (Ledger, "commit", True, ["reserve", "commit"], SiteErrorCode.ALREADY_RELEASED),
    "before it deletes": (PendingStore, "clear", False, ["reserve", "commit"], SiteErrorCode.ALREADY_RELEASED),
    "after it deleted": (PendingStore, "clear", True, ["reserve", "commit"], SiteErrorCode.NOTHING_PENDING),
}


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_client_killed_during_a_release_releases_at_most_once_and_pays_once(
    clinic: Clinics, monkeypatch: pytest.MonkeyPatch, mechanism: str, death: str
) -> None:
    hospital = clinic(**MECHANISMS[mechanism], **TWO_PHASE)
    hospital.train()
    owner, name, after, rows, code = DEATHS[death]
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "cancel", lambda *_: None)  # A process that died gives nothing back.
        kill_at(patch, owner, name, 1, after=after)
        with pytest.raises(Killed):
            hospital.decide(RELEASE)

    reply = hospital.decide(RELEASE)

    assert (reply.error.code if reply.has_error() else None) == code
    assert hospital.rows() == ["genesis", *rows]
    assert hospital.spend().releases == hospital.spend().committed == 1
    assert not hospital.slot.exists()


@pytest.mark.parametrize("after", [False, True])
def test_client_killed_while_it_keeps_its_result_spent_nothing_and_trains_again(
    clinic: Clinics, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    with monkeypatch.context() as patch:
        kill_at(patch, PendingStore, "keep", 1, after=after)
        with pytest.raises(Killed):
            hospital.train("m1")

    assert hospital.slot.exists() == after
    assert hospital.rows() == ["genesis"]
    require_ready(hospital, hospital.train("m2"))
    update_in(hospital.decide(RELEASE))
    with hospital.open_ledger() as ledger:
        assert (ledger.knows("1", "m1"), ledger.knows("1", "m2")) == (False, True)


@pytest.mark.parametrize("after", [False, True])
def test_client_killed_while_it_discards_spent_nothing(
    clinic: Clinics, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)
    hospital.train()
    with monkeypatch.context() as patch:
        kill_at(patch, PendingStore, "discard", 1, after=after)
        with pytest.raises(Killed):
            hospital.decide(DISCARD)

    reply = hospital.decide(DISCARD)

    assert reply.has_error() == after
    assert hospital.rows() == ["genesis"]
    assert not hospital.slot.exists()


CLIENT = """
import os, signal, sys
from pathlib import Path
from client_app.pending import PendingStore
from tests.client_app.clinic import Clinic

folder, step, death = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
clinic = Clinic(folder, aggregation__release="two-phase", privacy__mechanism="update-gaussian",
                privacy__noise_multiplier=24.22)
if death:
    setattr(PendingStore, death, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
reply = clinic.train() if step == "train" else clinic.decide(step)
print("code", reply.error.code if reply.has_error() else 0)
"""


def run_client(folder: Path, step: str, death: str = "") -> str:
    """Let a process of its own answer one message, and return what it printed; nothing if SIGKILL ended it."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(folder), step, death],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if death else 0), done.stderr
    return done.stdout.strip()


def test_result_outlives_its_process_and_a_release_outlives_its_death(clinic: Clinics, volume: Path) -> None:
    hospital = clinic(**UPDATE, **TWO_PHASE)

    ready = run_client(volume, "train")
    killed = run_client(volume, RELEASE, "clear")  # Paid for, and neither sent nor deleted.
    asked_again = run_client(volume, RELEASE)

    assert (ready, killed) == ("code 0", "")
    assert asked_again == f"code {int(SiteErrorCode.ALREADY_RELEASED)}"
    assert hospital.rows() == ["genesis", "reserve", "commit"]
    assert not hospital.slot.exists()


class Simulation:
    """One simulated hospital, asked as a server asks that may have been killed."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.flat = flat_configuration(folder, data__phantom_examples=60, model__name="cnn", **settings)
        configuration = parse_configuration(self.flat)
        info = load_site(configuration.data, site=0, sites=1, seed=0).info
        self.parameters = read_parameters(build_model(configuration.model, info, seed=0))

    def _ask(self, content: RecordDict, kind: str) -> Message:
        return main.app(make_message(content, kind), make_context(self.flat, partition_id=0, num_partitions=1))

    def train(self, version: int = 0) -> Message:
        arrays, plan = encode_parameters(self.parameters), TrainingConfig(device="cpu", batch_size=20)
        return self._ask(encode_training_task(arrays, model_version=version, plan=plan, seed=7, run="run"), "train")

    def release(self, version: int = 0) -> Message:
        return self._ask(encode_decision(version, "run"), RELEASE)

    def releases(self) -> int:
        state = self.folder / "run" / "sites"
        with Ledger.open(state, hospital_id="hospital-000", key_folder=state / "keys") as ledger:
            return ledger.spend("phantom", 1e-5).releases


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_simulated_site_releases_the_same_bits_in_two_phases_as_in_one(volume: Path, mechanism: str) -> None:
    at_once = Simulation(volume / "one", **MECHANISMS[mechanism])
    waiting = Simulation(volume / "two", **MECHANISMS[mechanism], **TWO_PHASE)
    expected = update_in(at_once.train())
    waiting.train()

    found = update_in(waiting.release())

    assert bits(found.update) == bits(expected.update)
    assert (found.declaration, found.examples) == (expected.declaration, expected.examples)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_simulated_site_that_is_asked_again_repeats_its_bits_at_no_further_cost(volume: Path, mechanism: str) -> None:
    simulation = Simulation(volume, **MECHANISMS[mechanism], **TWO_PHASE)
    simulation.train()
    first = update_in(simulation.release())

    assert simulation.release().error.code == SiteErrorCode.NOTHING_PENDING
    simulation.train()
    again = update_in(simulation.release())

    assert bits(again.update) == bits(first.update)
    assert again.declaration == first.declaration
    assert simulation.releases() == 1


def test_simulated_site_whose_noise_is_fresh_answers_no_task_twice(volume: Path) -> None:
    simulation = Simulation(volume, **UPDATE, **TWO_PHASE, privacy__noise_source="cryptographic")
    simulation.train()
    update_in(simulation.release())

    assert simulation.train().error.code == SiteErrorCode.ALREADY_RELEASED
