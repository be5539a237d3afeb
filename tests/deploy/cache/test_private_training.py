"""A generator trained with differential privacy: what it costs, when it is paid, and what is claimed afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from torch import Tensor, nn
from typer.testing import CliRunner

from aegis_cache.generation.diffusion.generator import load_network, save_generator
from aegis_cache.generation.diffusion.network import DenoisingNetwork, NetworkShape
from aegis_cache.store.cache import open_cache
from aegis_cache.store.provenance import Provenance, Source
from client_app.dp_sgd.batches import Batch
from client_app.dp_sgd.gradient_hooks import UnitGradients, hooks_on, run_hooks
from client_app.ledger import Ledger
from client_app.ledger.release import Spend
from deploy.cache import private_descent, private_training
from deploy.cache.private_descent import require_separable_network
from deploy.cache.request import BuildRequest
from deploy.cache.training import load_or_train
from deploy.cli import main
from federation.accounting.events import SampledGaussianRelease, Unit, event_from_dict
from federation.errors import ConfigurationError, SiteError

DELTA = 1e-4
IMAGES = 48
QUICK = ["--generator", "diffusion", "--images", "6", "--steps", "10", "--largest-ks", "1", "--least-overlap", "0"]
UNSEEN = ["--filter", "none", "--labels", "balanced", "--unchecked"]
PRIVATE = ["--dp-epsilon", "4", "--dp", "steps=3", "--dp", "batch=8"]
PRIVACY = f'mechanisms = ["dp-sgd"]\nmax-epsilon = 6.0\nmax-delta = {DELTA}\n'


def build(folder: Path, *arguments: object) -> tuple[int, str]:
    """Return the exit code of a build into `folder`, and what was said on one line."""
    found = CliRunner().invoke(main, ["cache", "build", str(folder), *QUICK, *map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, " ".join(found.output.split())


def write_policy(folder: Path, privacy: str = PRIVACY, *, patients: bool = False) -> Path:
    """A hospital of two classes of grey images, three images a patient where these are known."""
    stream = np.random.default_rng(0)
    arrays: dict[str, Any] = {"labels": np.arange(IMAGES) % 2}
    arrays["images"] = stream.integers(0, 256, size=(IMAGES, 8, 8), dtype=np.uint8)
    if patients:
        arrays["patients"] = np.arange(IMAGES) // 3
    np.savez(folder / "images.npz", **arrays)
    path = folder / "site.toml"
    path.write_text(
        f'hospital-id = "charite"\nstate-dir = "{folder}/state"\nkeys-dir = "{folder}/keys"\n'
        f'[data]\nid = "chest-2026"\nname = "npz"\nroot = "{folder}/images.npz"\n'
        f'[privacy]\n{privacy}[masking]\nprivate-images = "train"\n'
    )
    return path


def spent(folder: Path) -> Spend:
    """Return what the ledger of the hospital in `folder` says of its data set."""
    with Ledger.open(folder / "state", hospital_id="charite", key_folder=folder / "keys") as ledger:
        ledger.expire_stale()
        return ledger.spend("chest-2026", DELTA)


def event_of(spend: Spend) -> SampledGaussianRelease:
    """Return the only event of `spend`."""
    (event,) = spend.history.counts
    assert isinstance(event, SampledGaussianRelease)
    return event


def independent_epsilon(event: SampledGaussianRelease) -> float:
    step = dp_event.PoissonSampledDpEvent(event.sampling_probability, dp_event.GaussianDpEvent(event.noise_multiplier))
    return float(PLDAccountant().compose(step, event.steps).get_epsilon(DELTA))


def weights_of(folder: Path) -> bytes:
    return (folder / "generator" / "network.safetensors").read_bytes()


def small_network() -> DenoisingNetwork:
    shape = NetworkShape(channels=1, height=8, width=8, classes=2, stem=8, widths=(16, 32))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return DenoisingNetwork(shape)


def test_gradient_of_every_image_and_parameter_is_that_of_autograd_on_the_image_alone() -> None:
    network, stream = small_network(), torch.Generator().manual_seed(1)
    batch = Batch(images=torch.randn((3, 1, 8, 8), generator=stream), labels=torch.tensor([0, 1, 2]))
    steps, wanted = torch.tensor([3, 400, 999]), torch.randn((3, 1, 8, 8), generator=stream)

    def loss(some: slice) -> Tensor:
        found: Tensor = network(batch.images[some], steps[some], batch.labels[some])
        return (found - wanted[some]).square().flatten(1).mean(dim=1)

    names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    with hooks_on(network, "hooks") as hooks:
        assert isinstance(hooks, UnitGradients)
        run_hooks(loss(slice(None)), batch.images)
        found = {name: vars(parameter)["grad_sample"] for name, parameter in network.named_parameters()}

    assert {"unet.class_embedding.weight", "unet.time_embedding.linear_1.weight"} < set(names)
    assert any("attentions" in name and "to_q" in name for name in names)
    assert any("norm" in name for name in names)
    for number in range(3):
        alone = torch.autograd.grad(loss(slice(number, number + 1)).sum(), list(network.parameters()))
        for name, slope in zip(names, alone, strict=True):
            assert float(slope.abs().max()) > 0 or "bias" in name, name
            torch.testing.assert_close(found[name][number], slope, rtol=1e-3, atol=1e-5, msg=name)


def test_network_of_the_generator_passes_the_trial() -> None:
    require_separable_network(small_network())


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm2d(32)])
def test_network_with_chance_or_statistics_of_the_batch_is_refused(layer: nn.Module) -> None:
    network = small_network()
    network.unet.mid_block.resnets[0].dropout = layer

    with torch.random.fork_rng(devices=[]), pytest.raises(SiteError, match="batch"):
        require_separable_network(network)


def test_cost_is_booked_before_training_and_committed_with_the_generator(tmp_path: Path) -> None:
    code, output = build(tmp_path / "cache", "--policy", write_policy(tmp_path), *UNSEEN, *PRIVATE)

    assert code == 0, output
    spend, manifest = spent(tmp_path), open_cache(tmp_path / "cache").manifest
    event = event_of(spend)
    assert (spend.releases, spend.committed, spend.lost) == (1, 1, 0)
    assert 3.5 < independent_epsilon(event) <= 4.0
    assert event.steps == 3
    provenance = manifest.provenance
    assert provenance.source is Source.DP
    assert provenance.event is not None
    assert event_from_dict(provenance.event) == event
    assert provenance.delta == DELTA
    assert provenance.epsilon is not None
    assert independent_epsilon(event) - 0.01 <= provenance.epsilon <= 4.0
    assert "by DP-SGD alone" in provenance.uses[0]
    assert "simulation" not in provenance.uses[0]
    assert "stays spent" in output


def test_sampling_probability_is_the_batch_over_the_permitted_images(tmp_path: Path) -> None:
    _, output = build(tmp_path / "cache", "--policy", write_policy(tmp_path), *UNSEEN, *PRIVATE, "--dry-run")

    plan = json.loads(output[output.index("{") :])["private-training"]
    train = round(plan["event"]["sampling-probability"] ** -1 * 8)
    assert 24 <= train < IMAGES
    assert plan["event"]["sampling-probability"] == 8 / train


def test_a_dry_run_says_what_training_would_cost_and_spends_nothing(tmp_path: Path) -> None:
    code, output = build(tmp_path / "cache", "--policy", write_policy(tmp_path), *UNSEEN, *PRIVATE, "--dry-run")

    plan = json.loads(output[output.index("{") :])["private-training"]
    assert code == 0
    assert (plan["delta"], plan["unit"], plan["cap"], plan["account"]) == (DELTA, "record", 6.0, "pld")
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("broken", ["train_privately", "save_generator"])
def test_training_that_breaks_off_stays_spent_and_training_again_pays_again(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = write_policy(tmp_path, PRIVACY.replace("6.0", "30.0"))

    def crash(*_: object, **__: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(private_training, broken, crash)
        broken_off, said = build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE)
    after = spent(tmp_path)
    code, output = build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE)

    assert broken_off == 1
    assert "no space left" in said
    assert (after.releases, after.committed, after.lost) == (1, 0, 1)
    assert code == 0, output
    again = spent(tmp_path)
    assert (again.releases, again.committed, again.lost) == (2, 1, 1)


def test_client_of_the_hospital_can_use_the_ledger_while_a_generator_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, train = [], private_descent.train_privately

    def look(*arguments: Any, **named: Any) -> DenoisingNetwork:
        seen.append(spent(tmp_path))
        return train(*arguments, **named)

    monkeypatch.setattr(private_training, "train_privately", look)
    code, _ = build(tmp_path / "cache", "--policy", write_policy(tmp_path), *UNSEEN, *PRIVATE)

    assert code == 0
    assert (seen[0].releases, seen[0].committed) == (1, 0)
    assert (spent(tmp_path).releases, spent(tmp_path).committed) == (1, 1)


@pytest.mark.parametrize(
    ("privacy", "patients", "wanted"),
    [
        ("", False, "privacy.mechanism of [], found 'dp-sgd'"),
        (PRIVACY.replace('"dp-sgd"', '"update-gaussian", "none"'), False, "found 'dp-sgd'"),
        (PRIVACY.replace("6.0", "3.0"), False, "cap=3"),
        (PRIVACY + 'unit = "patient"\n', False, "a patient's number for each training image"),
    ],
)
def test_what_the_policy_does_not_allow_or_pay_for_is_refused_and_nothing_is_written(
    tmp_path: Path, privacy: str, patients: bool, wanted: str
) -> None:
    policy = write_policy(tmp_path, privacy, patients=patients)

    code, output = build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE)

    assert code == 2
    assert wanted in output
    assert not (tmp_path / "cache").exists()
    assert spent(tmp_path).releases == 0


def test_second_generator_that_exceeds_the_cap_is_refused_with_the_numbers(tmp_path: Path) -> None:
    policy = write_policy(tmp_path, PRIVACY.replace("6.0", "4.5"))
    build(tmp_path / "first", "--policy", policy, *UNSEEN, *PRIVATE)

    code, output = build(tmp_path / "second", "--policy", policy, *UNSEEN, *PRIVATE)

    assert code == 2
    assert "epsilon=" in output
    assert "cap=4.5" in output
    assert not (tmp_path / "second").exists()
    assert spent(tmp_path).releases == 1


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("min-noise-multiplier = 9.0\n", lambda event: event.noise_multiplier == 9.0),
        ("max-epsilon-per-release = 1.0\n", lambda event: 0.9 < independent_epsilon(event) <= 1.0),
    ],
)
def test_stricter_rules_of_the_policy_mean_more_noise(tmp_path: Path, rule: str, expected: Any) -> None:
    policy = write_policy(tmp_path, PRIVACY + rule)

    _, output = build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE, "--dry-run")

    event = event_from_dict(json.loads(output[output.index("{") :])["private-training"]["event"])
    assert expected(event)


@pytest.mark.parametrize(("waiver", "unit"), [("", Unit.PATIENT), ('unit = "record"\n', Unit.RECORD)])
def test_patients_are_protected_where_they_are_known_and_not_waived(tmp_path: Path, waiver: str, unit: Unit) -> None:
    policy = write_policy(tmp_path, PRIVACY + waiver, patients=True)

    code, output = build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE)

    assert code == 0, output
    spend = spent(tmp_path)
    assert [found for _, found in spend.protections] == [unit]
    # Sixteen patients of three images each, some of them held out.
    assert (event_of(spend).sampling_probability >= 8 / 16) is (unit is Unit.PATIENT)


@pytest.mark.parametrize(
    "used", [["--labels", "balanced"], ["--filter", "none"], UNSEEN[:-1], [*UNSEEN, "--brightness", "aim"]]
)
def test_what_looks_at_images_beside_takes_the_claim_away_and_says_so(tmp_path: Path, used: list[str]) -> None:
    features = ["--features", "pixels", "--attempts", "1", "--dry-run"]
    policy = write_policy(tmp_path)
    build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE)

    code, output = build(tmp_path / "cache", "--policy", policy, *PRIVATE, *used, *features)

    assert code == 0, output
    assert json.loads(output[output.index("{") :])["looks-at-private-images"] is True
    assert "--filter none --labels balanced --brightness as-generated --unchecked" in " ".join(output.split())


def test_private_generator_is_used_again_at_no_cost(tmp_path: Path) -> None:
    policy = write_policy(tmp_path)
    build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE)
    before = weights_of(tmp_path / "cache")

    code, output = build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE, "--seed", "1")

    assert code == 0, output
    assert weights_of(tmp_path / "cache") == before
    assert spent(tmp_path).releases == 1
    assert "stays spent" not in output


@pytest.mark.parametrize("stricter", [["--dp-epsilon", "2"], ["--dp", "delta=1e-5"]])
def test_generator_that_is_less_private_than_asked_is_not_used(tmp_path: Path, stricter: list[str]) -> None:
    policy = write_policy(tmp_path)
    build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE)

    code, output = build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE, *stricter)

    assert code == 2
    assert "build into another folder" in output


def test_generator_that_learned_without_privacy_is_not_taken_for_a_private_one(tmp_path: Path) -> None:
    learned = Provenance(source=Source.PRIVATE_ADAPTED, uses=("learned",))
    save_generator(small_network(), tmp_path / "cache" / "generator", name="leaky", provenance=learned)

    code, output = build(tmp_path / "cache", "--policy", write_policy(tmp_path), *UNSEEN, *PRIVATE)

    assert code == 2
    assert "found source 'private-adapted'" in output


def test_generator_that_the_ledger_does_not_know_is_not_used(tmp_path: Path) -> None:
    policy = write_policy(tmp_path)
    simulated = ["--set", "data.name=npz", "--set", f"data.root={tmp_path}/images.npz"]
    build(tmp_path / "cache", *simulated, *UNSEEN, *PRIVATE)

    code, output = build(tmp_path / "cache", "--policy", policy, *UNSEEN, *PRIVATE)

    assert code == 2
    assert "Expected the ledger to hold the training" in output


def test_simulated_hospital_repeats_its_training_says_so_and_has_no_ledger(tmp_path: Path) -> None:
    write_policy(tmp_path)
    simulated = ["--set", "data.name=npz", "--set", f"data.root={tmp_path}/images.npz"]

    outputs = [build(tmp_path / name, *simulated, *UNSEEN, *PRIVATE)[1] for name in ("one", "two")]

    assert weights_of(tmp_path / "one") == weights_of(tmp_path / "two")
    assert all("has no ledger" in output for output in outputs)
    provenance = load_network(tmp_path / "one" / "generator")[1]
    assert provenance.source is Source.DP
    assert provenance.delta == 1e-5
    assert "protects nobody" in provenance.uses[0]


def test_deployed_hospital_never_repeats_noise_whatever_the_seed(tmp_path: Path) -> None:
    policy = write_policy(tmp_path, PRIVACY.replace("6.0", "30.0"))

    for name in ("one", "two"):
        build(tmp_path / name, "--policy", policy, *UNSEEN, *PRIVATE, "--seed", "7")

    assert weights_of(tmp_path / "one") != weights_of(tmp_path / "two")


@pytest.mark.parametrize(("public", "expected"), [([], 2), (["--weights-are-public"], 0)])
def test_private_training_begins_only_from_weights_without_private_images(
    tmp_path: Path, public: list[str], expected: int
) -> None:
    shape = NetworkShape(channels=1, height=8, width=8, classes=2)
    learned = Provenance(source=Source.PRIVATE_ADAPTED, uses=("learned elsewhere",))
    save_generator(DenoisingNetwork(shape), tmp_path / "weights", name="old", provenance=learned)
    adapted = ["--adapt", "--weights", tmp_path / "weights", *public]

    code, output = build(tmp_path / "cache", "--policy", write_policy(tmp_path), *UNSEEN, *PRIVATE, *adapted)

    assert code == expected, output
    assert ("--weights-are-public" in output) is (expected == 2)
    assert spent(tmp_path).releases == (expected == 0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--generator", "gaussian"], "--dp-epsilon"),
        (["--weights", "somewhere"], "--adapt"),
        (["--dp-epsilon", "-1"], "--dp-epsilon"),
        (["--dp-epsilon", "nan"], "--dp-epsilon"),
        (["--dp", "steps=0"], "--dp-steps"),
        (["--dp", "clip-norm=inf"], "--dp-clip-norm"),
        (["--dp", "sigma=1"], "--dp-sigma"),
        (["--dp", "steps"], "Expected key=value"),
    ],
)
def test_wrong_option_is_named_and_nothing_is_trained(tmp_path: Path, arguments: list[str], named: str) -> None:
    code, output = build(tmp_path / "cache", *UNSEEN, *PRIVATE, *arguments)

    assert code == 2
    assert named in output
    assert not (tmp_path / "cache").exists()


def test_request_for_privacy_is_never_answered_by_a_training_without(tmp_path: Path) -> None:
    request = BuildRequest(dp_epsilon=4.0)
    permitted: Any = type("Permitted", (), {"require_for_training": lambda self: None})()

    with pytest.raises(ConfigurationError, match="Expected a generator trained with dp-epsilon=4"):
        load_or_train(request, permitted, tmp_path, Provenance.public(), fresh=False, show=lambda _done, _state: None)
