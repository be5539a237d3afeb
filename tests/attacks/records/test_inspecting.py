"""What is in a recorded update is found without knowing how the model was made, and what is not is not claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from attacks.attack import Attack
from attacks.linear_leakage.analytic_inversion import AnalyticInversion
from attacks.linear_leakage.planted_network import linear_layer
from attacks.linear_leakage.read_out import Moved
from attacks.linear_leakage.robbing_the_fed import RobbingTheFed
from attacks.linear_leakage.trap_weights import TrapWeights
from attacks.records import RecordedUpdate, read_records
from attacks.records.inspecting import inspect_record
from attacks.records.matching import Match, match_images, read_in_any
from attacks.records.passive_reading import ImageLayer, find_image_layers, read_neighbours
from attacks.threat_model import ThreatModel, grant
from attacks.victim import Hospital, Protection, send_delta
from attacks.world import World, as_floats
from federation.config import ModelConfig, TrainingConfig
from federation.datasets.image_set import ImageSet
from federation.errors import DataError
from federation.models import build_model
from federation.parameters import read_parameters
from federation.randomness import numpy_stream
from federation.recorded_updates.folder import UpdateFolder
from federation.recorded_updates.metadata import Origin, RecordedData
from federation.records.answers import ModelUpdate
from tests.attacks.made_up_worlds import make_images, make_info, make_world

SHAPE = (1, 12, 12)
PLAN = TrainingConfig(optimizer="sgd", learning_rate=1e-3, batch_size=64, device="cpu")
CALIBRATED = RobbingTheFed(capacity=256, carrier="mlp", ability="calibrated")


def make_own(count: int = 16) -> World:
    """A hospital with `count` training images, and foreign ones."""
    world = make_world(shape=SHAPE)
    return replace(world, real=world.real.take(np.arange(count)))


def keep(folder: Path, network: nn.Module, model: ModelConfig, own: ImageSet, plan: TrainingConfig = PLAN) -> None:
    """Let the shipped client train `network` on `own`, and record it."""
    info = make_info(SHAPE)
    hospital = Hospital(images=own, info=info, plan=plan, protection=Protection())
    update = {name: -value for name, value in send_delta(network, hospital, seed=0).items()}
    origin = Origin(run="run", model=model, data=RecordedData.of(info, name="folder"), training=plan)
    kept = UpdateFolder(folder)
    answer = ModelUpdate(hospital_id="north", model_version=3, examples=len(own), update=update)
    kept.keep_update(answer, origin, kept.keep_model(3, read_parameters(network)))


def record(folder: Path, attack: Attack, world: World, plan: TrainingConfig = PLAN) -> RecordedUpdate:
    view = grant(world.view(plan, numpy_stream(0, "server")), attack.needs, ThreatModel())
    network = attack.begin(view).craft(0, 0).network
    units = network.get_submodule("hidden").out_features
    assert isinstance(units, int)
    keep(folder, network, ModelConfig(name="mlp", hidden_units=units), world.real, plan)
    (found,) = read_records(folder)
    return found


def record_plain(folder: Path, name: str, world: World) -> RecordedUpdate:
    model = ModelConfig.model_validate({"name": name})
    keep(folder, build_model(model, make_info(SHAPE), seed=0), model, world.real)
    (found,) = read_records(folder)
    return found


def hits(match: Match, threshold_db: float) -> int:
    return next(rate.recovered.hits for rate in match.found.rates if rate.threshold_db == threshold_db)


def test_images_behind_planted_bins_are_read_without_knowing_the_bins(tmp_path: Path) -> None:
    world = make_own()

    inspection = inspect_record(record(tmp_path, CALIBRATED, world))

    match = match_images(inspection, world)
    assert inspection.layers == ("hidden",)
    assert hits(match, 40.0) >= 13
    assert match.exceeds_guesses
    assert inspection.findings


def test_shuffled_and_rescaled_units_hide_nothing(tmp_path: Path) -> None:
    world = make_own()
    view = grant(world.view(PLAN, numpy_stream(0, "server")), CALIBRATED.needs, ThreatModel())
    network = CALIBRATED.begin(view).craft(0, 0).network
    order = torch.randperm(256, generator=torch.Generator().manual_seed(0))
    scales = torch.linspace(0.5, 2.0, 256)
    hidden, output = linear_layer(network, "hidden"), linear_layer(network, "output")
    with torch.no_grad():
        hidden.weight.copy_(hidden.weight[order] * scales[:, None])
        hidden.bias.copy_(hidden.bias[order] * scales)
        output.weight.copy_(output.weight[:, order] / scales)
    keep(tmp_path, network, ModelConfig(name="mlp", hidden_units=256), world.real)
    (found,) = read_records(tmp_path)

    match = match_images(inspect_record(found), world)

    assert hits(match, 30.0) >= 13


def test_adam_in_its_linear_range_is_read_like_descent(tmp_path: Path) -> None:
    world, plan = make_own(), PLAN.model_copy(update={"optimizer": "adam"})
    attack = RobbingTheFed(capacity=256, carrier="mlp", ability="adam-linear")

    match = match_images(inspect_record(record(tmp_path, attack, world, plan)), world)

    assert hits(match, 30.0) >= 13


@pytest.mark.parametrize("attack", [TrapWeights(), AnalyticInversion()])
def test_what_single_rows_saw_alone_is_read(tmp_path: Path, attack: Attack) -> None:
    world, plan = make_own(4), PLAN.model_copy(update={"learning_rate": 0.1})

    match = match_images(inspect_record(record(tmp_path, attack, world, plan)), world)

    assert hits(match, 40.0) >= 1


def test_nothing_is_claimed_of_an_update_of_other_images(tmp_path: Path) -> None:
    world = make_own()
    other = replace(world, real=make_images(16, 77, shape=SHAPE))

    match = match_images(inspect_record(record(tmp_path, CALIBRATED, world)), other)

    assert hits(match, 30.0) == 0
    assert not match.exceeds_guesses


def test_every_rate_has_the_number_of_real_images_below_it(tmp_path: Path) -> None:
    world = make_own(16)

    match = match_images(inspect_record(record(tmp_path, AnalyticInversion(hidden_units=5), world)), world)

    assert {rate.recovered.count for rate in match.found.rates} == {16}
    assert (match.images, match.held) == (16, 16)
    assert match.found.unanswered >= 1


def test_records_of_one_hospital_are_pooled_by_image(tmp_path: Path) -> None:
    world = make_own()
    one = match_images(inspect_record(record(tmp_path, CALIBRATED, world)), world)
    nothing = replace(one, psnr_db=np.zeros(16))

    pooled = {threshold: share.hits for threshold, share in read_in_any([nothing, one, nothing])}

    assert pooled == {threshold: hits(one, threshold) for threshold in (18.0, 24.0, 30.0, 40.0)}


@pytest.mark.parametrize(("model", "words"), [("cnn", "convolution"), ("resnet18", "convolution"), ("linear", "bias")])
def test_model_whose_first_layer_is_not_read_says_why(tmp_path: Path, model: str, words: str) -> None:
    inspection = inspect_record(record_plain(tmp_path, model, make_own(4)))

    assert (inspection.layers, len(inspection.candidates)) == ((), 0)
    assert words in inspection.note


def test_fresh_network_has_no_finding(tmp_path: Path) -> None:
    inspection = inspect_record(record_plain(tmp_path, "mlp", make_own(8)))

    assert inspection.findings == ()
    assert inspection.note == ""


def test_label_of_a_single_image_is_read(tmp_path: Path) -> None:
    world = make_own(1)

    inspection = inspect_record(record_plain(tmp_path, "cnn", world))

    assert inspection.labels == (int(world.real.labels[0]),)


def test_images_of_another_shape_are_refused(tmp_path: Path) -> None:
    inspection = inspect_record(record(tmp_path, CALIBRATED, make_own()))

    with pytest.raises(DataError, match=r"expected images of shape \(1, 12, 12\), as the record says, found \(1, 8, 8"):
        match_images(inspection, make_world())


def test_layer_behind_another_layer_does_not_see_the_image() -> None:
    info = make_info(SHAPE)

    layers = find_image_layers(build_model(ModelConfig(name="mlp", hidden_units=4), info, seed=0), info)

    assert [layer.name for layer in layers] == ["hidden"]
    assert layers[0].columns is not None
    assert layers[0].columns.shape == (info.classes, 4)


def test_difference_of_neighbours_is_the_image_between_them() -> None:
    images = as_floats(make_images(2, 5, shape=SHAPE)).reshape(2, -1).astype(np.float64)
    images = images[images.mean(axis=1).argsort()]
    low, high = images.mean(axis=1)
    weight = np.full((3, images.shape[1]), 1 / images.shape[1])
    bias = -np.array([(low + high) / 2, low - 0.1, high + 0.1])
    # The unit with the lowest threshold sees both images, the next one the brighter, the last none.
    moved = Moved(weight=np.stack([images[1], images.sum(axis=0), 0 * images[0]]), bias=np.array([1.0, 2.0, 0.0]))

    found = read_neighbours(ImageLayer(name="hidden", weight=weight, bias=bias, columns=None), moved)

    np.testing.assert_allclose(found[:2], images, atol=1e-9)
    assert np.isnan(found[2]).all()
