"""Training of the diffusion model: it learns, it goes on where it stood, and its folder is what it says."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from aegis_cache.generation.diffusion.generator import load_generator, load_network, save_generator
from aegis_cache.generation.diffusion.network import DenoisingNetwork, NetworkShape
from aegis_cache.generation.diffusion.training import DiffusionTraining, TrainingPlan
from aegis_cache.store.provenance import Provenance, Source
from federation.datasets.image_set import ImageSet
from federation.errors import DataError, GenerationError

LEARNED = Provenance(source=Source.PRIVATE_ADAPTED, uses=("it learned from 60 images",))


def two_greys(count: int = 60) -> ImageSet:
    """Nearly constant images: dark ones and bright ones."""
    labels = np.arange(count) % 2
    noise = np.random.default_rng(0).normal(0, 4, size=(count, 1, 8, 8))
    images = 50 + 150 * labels[:, None, None, None] + noise
    return ImageSet(images=images.clip(0, 255).astype(np.uint8), labels=labels)


def plan(steps: int, **changes: object) -> TrainingPlan:
    return TrainingPlan(steps=steps, batch_size=16, warm_up=10, **changes)  # type: ignore[arg-type]


def tiny(shape: NetworkShape | None = None) -> DenoisingNetwork:
    torch.manual_seed(0)
    return DenoisingNetwork(shape or NetworkShape(channels=1, height=8, width=8, classes=2))


def weights(training: DiffusionTraining) -> list[torch.Tensor]:
    return list(training.average.state_dict().values())


@pytest.fixture(autouse=True)
def _keep_torchs_generator() -> object:
    with torch.random.fork_rng():
        yield


@pytest.fixture(scope="module")
def trained() -> DiffusionTraining:
    training = DiffusionTraining(two_greys(), 2, plan(250))
    training.run()
    return training


def test_a_trained_model_draws_each_class_at_its_brightness(trained: DiffusionTraining, tmp_path: Path) -> None:
    save_generator(trained.average, tmp_path / "g", name="greys", provenance=LEARNED)

    images = load_generator(tmp_path / "g").generate(torch.tensor([0, 1]), 12, torch.Generator().manual_seed(0))

    means = images.mean(dim=(1, 2, 3))
    assert images.shape == (24, 1, 8, 8)
    assert images.min() >= 0
    assert images.max() <= 1
    assert float(means[:12].mean()) == pytest.approx(50 / 255, abs=0.08)
    assert float(means[12:].mean()) == pytest.approx(200 / 255, abs=0.08)


def test_a_training_that_was_broken_off_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = DiffusionTraining(two_greys(), 2, plan(8))
    whole.run()
    first = DiffusionTraining(two_greys(), 2, plan(8), checkpoint=tmp_path / "state.pt")

    def break_off(progress: object) -> None:
        if first.progress().step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.run(break_off)
    first.save()
    second = DiffusionTraining(two_greys(), 2, plan(8), checkpoint=tmp_path / "state.pt")
    found = second.run()

    assert found.step == 8
    assert all(torch.equal(left, right) for left, right in zip(weights(whole), weights(second), strict=True))


def test_a_finished_training_takes_no_further_step(tmp_path: Path) -> None:
    DiffusionTraining(two_greys(), 2, plan(3), checkpoint=tmp_path / "state.pt").run()

    again = DiffusionTraining(two_greys(), 2, plan(3), checkpoint=tmp_path / "state.pt").run()

    assert again.step == 3


def test_the_state_of_a_training_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    DiffusionTraining(two_greys(), 2, plan(1), checkpoint=tmp_path / "state.pt").run()

    assert stat.S_IMODE((tmp_path / "state.pt").stat().st_mode) == 0o600


def test_the_budget_of_minutes_ends_a_training() -> None:
    found = DiffusionTraining(two_greys(), 2, TrainingPlan(minutes=1e-9)).run()

    assert found.step == 1
    assert found.done == 1


def test_training_leaves_torchs_generator_as_it_was() -> None:
    before = torch.random.get_rng_state()

    DiffusionTraining(two_greys(), 2, plan(2)).run()

    assert torch.equal(torch.random.get_rng_state(), before)


def test_few_images_can_be_shifted() -> None:
    plain, shifted = (DiffusionTraining(two_greys(), 2, plan(2, shift=moved)) for moved in (False, True))
    plain.run()
    shifted.run()

    assert any(not torch.equal(left, right) for left, right in zip(weights(plain), weights(shifted), strict=True))


def test_weights_to_begin_with_are_used_and_must_fit() -> None:
    initial = tiny()

    begun = DiffusionTraining(two_greys(), 2, plan(1), initial=initial)

    assert all(torch.equal(a, b) for a, b in zip(weights(begun), initial.state_dict().values(), strict=True))
    with pytest.raises(DataError, match="classes=3"):
        DiffusionTraining(two_greys(), 3, plan(1), initial=initial)


@pytest.mark.parametrize("labels", [np.zeros((4, 2), dtype=np.int64), np.zeros(0, dtype=np.int64)])
def test_images_without_one_label_each_are_refused(labels: np.ndarray) -> None:
    images = np.zeros((len(labels), 1, 8, 8), dtype=np.uint8)

    with pytest.raises(DataError, match="one label each"):
        DiffusionTraining(ImageSet(images=images, labels=labels), 2, plan(1))


@pytest.mark.parametrize(
    ("channels", "height", "width"), [(1, 28, 28), (3, 28, 28), (1, 30, 17), (3, 64, 64), (1, 5, 9)]
)
def test_the_network_keeps_the_shape_of_its_images(channels: int, height: int, width: int) -> None:
    network = tiny(NetworkShape(channels=channels, height=height, width=width, classes=2))
    images = torch.zeros(2, channels, height, width)

    velocity = network(images, torch.tensor([0, 999]), torch.tensor([0, 2]))

    assert velocity.shape == images.shape


def test_a_saved_generator_says_what_it_is_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    save_generator(tiny(), tmp_path / "g", name="greys", provenance=LEARNED)

    loaded = load_generator(tmp_path / "g", steps=12)

    assert loaded.identity.kind == "diffusion"
    assert loaded.identity.name == "greys"
    assert loaded.identity.provenance == LEARNED
    assert loaded.identity.settings == {"steps": 12}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "g").iterdir()} == {0o600}
    assert load_network(tmp_path / "g")[1] == LEARNED


def test_the_same_random_numbers_give_the_same_images(tmp_path: Path) -> None:
    save_generator(tiny(), tmp_path / "g", name="greys", provenance=LEARNED)
    generator = load_generator(tmp_path / "g", steps=10)

    first, second = (generator.generate(torch.tensor([1]), 2, torch.Generator().manual_seed(5)) for _ in range(2))

    assert torch.equal(first, second)


def test_weights_that_were_altered_are_refused(tmp_path: Path) -> None:
    save_generator(tiny(), tmp_path / "g", name="greys", provenance=LEARNED)
    path = tmp_path / "g" / "network.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    with pytest.raises(GenerationError, match=r"network\.safetensors with sha256"):
        load_generator(tmp_path / "g")


@pytest.mark.parametrize("missing", ["network.safetensors", "shape", "provenance"])
def test_a_folder_that_lacks_something_is_refused_by_name(tmp_path: Path, missing: str) -> None:
    save_generator(tiny(), tmp_path / "g", name="greys", provenance=LEARNED)
    if missing.endswith("safetensors"):
        (tmp_path / "g" / missing).unlink()
    else:
        card = json.loads((tmp_path / "g" / "generator.json").read_text())
        del card[missing]
        (tmp_path / "g" / "generator.json").write_text(json.dumps(card))

    with pytest.raises(GenerationError, match=missing):
        load_generator(tmp_path / "g")


def test_an_empty_folder_says_what_was_expected_in_it(tmp_path: Path) -> None:
    with pytest.raises(GenerationError, match=r"generator\.json .* or a diffusers folder"):
        load_generator(tmp_path)


@pytest.mark.parametrize("label", [-1, 2])
def test_a_class_that_was_not_learned_is_refused(tmp_path: Path, label: int) -> None:
    save_generator(tiny(), tmp_path / "g", name="greys", provenance=LEARNED)

    with pytest.raises(GenerationError, match="labels from 0 to 1"):
        load_generator(tmp_path / "g").generate(torch.tensor([label]), 1, torch.Generator())
