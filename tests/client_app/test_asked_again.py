"""A killed simulation repeats tasks: the same bits, the same declaration, no second cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message, RecordDict

from client_app.ledger import Ledger
from client_app.main import app
from federation.config import TrainingConfig, parse_configuration
from federation.datasets.sites import load_site
from federation.errors import SiteErrorCode
from federation.models import build_model
from federation.parameters import read_parameters
from federation.records.tasks import encode_evaluation_task, encode_training_task
from federation.records.tensors import encode_parameters
from tests.client_app.calls import flat_configuration, make_context, make_message

MECHANISMS: dict[str, dict[str, Any]] = {
    "dp-sgd": {"privacy__mechanism": "dp-sgd", "privacy__account": "rdp"},
    "update-gaussian": {"privacy__mechanism": "update-gaussian"},
}
ROUNDS = 3


class Simulation:
    """One simulated hospital that is asked for each version."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.flat = flat_configuration(folder, aggregation__rounds=ROUNDS, **settings)
        configuration = parse_configuration(self.flat)
        info = load_site(configuration.data, site=0, sites=1, seed=0).info
        self.arrays = encode_parameters(read_parameters(build_model(configuration.model, info, seed=0)))

    def train(self, version: int) -> RecordDict:
        reply = self.ask_to_train(version)
        assert reply.has_content(), reply.error
        return reply.content

    def ask_to_train(self, version: int) -> Message:
        plan = TrainingConfig(device="cpu", batch_size=200)
        return self._ask(
            encode_training_task(self.arrays, model_version=version, plan=plan, seed=1, run="run"), "train"
        )

    def evaluate(self, version: int) -> RecordDict:
        reply = self.ask_to_evaluate(version)
        assert reply.has_content(), reply.error
        return reply.content

    def ask_to_evaluate(self, version: int) -> Message:
        content = encode_evaluation_task(self.arrays, model_version=version, split="validation", run="run")
        return self._ask(content, "evaluate")

    def _ask(self, content: RecordDict, kind: str) -> Message:
        return app(make_message(content, kind), make_context(self.flat, partition_id=0, num_partitions=1))

    def releases(self, data_set: str) -> int:
        state = self.folder / "run" / "sites"
        with Ledger.open(state, hospital_id="hospital-000", key_folder=state / "keys") as ledger:
            return ledger.spend(data_set, 1e-5).releases


def bits(content: RecordDict) -> dict[str, Any]:
    """Everything that `content` holds, comparable."""
    plain: dict[str, Any] = {name: dict(record) for name, record in content.items() if name != "arrays"}
    if "arrays" in content:
        plain["arrays"] = {name: array.data for name, array in content.array_records["arrays"].items()}
    return plain


@pytest.mark.parametrize("schedule", ["constant", "remaining"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_simulated_site_repeats_its_updates_bit_for_bit(volume: Path, mechanism: str, schedule: str) -> None:
    simulation = Simulation(volume, privacy__schedule=schedule, **MECHANISMS[mechanism])
    first = [bits(simulation.train(version)) for version in range(ROUNDS)]

    again = [bits(simulation.train(version)) for version in range(ROUNDS)]

    assert again == first
    assert [answer["config"]["privacy.releases"] for answer in again] == [1, 2, 3]
    assert simulation.releases("phantom") == ROUNDS


def test_simulated_site_repeats_its_scores_bit_for_bit(volume: Path) -> None:
    simulation = Simulation(volume, **MECHANISMS["update-gaussian"])
    first = [bits(simulation.evaluate(version)) for version in range(ROUNDS)]

    again = [bits(simulation.evaluate(version)) for version in range(ROUNDS)]

    assert again == first
    assert simulation.releases("phantom:validation") == ROUNDS


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_simulated_site_with_noise_of_the_operating_system_gives_no_second_answer(volume: Path, mechanism: str) -> None:
    """Other noise on the same images would be another release, for which nobody has paid."""
    simulation = Simulation(volume, privacy__noise_source="cryptographic", **MECHANISMS[mechanism])
    simulation.train(0)
    simulation.evaluate(0)

    again = [simulation.ask_to_train(0), simulation.ask_to_evaluate(0)]

    assert [reply.error.code for reply in again] == [SiteErrorCode.ALREADY_RELEASED] * 2
    assert simulation.releases("phantom") == simulation.releases("phantom:validation") == 1
    assert simulation.ask_to_train(1).has_content()


def test_simulated_runs_with_another_seed_have_other_noise(tmp_path: Path) -> None:
    settings = {**MECHANISMS["update-gaussian"], "data__seed": 0}

    one, other = (bits(Simulation(tmp_path / str(seed), run__seed=seed, **settings).train(0)) for seed in (1, 2))

    assert one["config"] == other["config"]
    assert not set(one["arrays"].values()) & set(other["arrays"].values())
