"""Fresh phantom images: of the class that is asked for, never those of the data set, and the same for the same seed."""

from __future__ import annotations

import pytest
import torch

from aegis_cache.generation.phantom import PhantomGenerator
from aegis_cache.store.provenance import Provenance
from federation.config import DataConfig
from federation.datasets import phantom
from federation.datasets.phantom import load_phantom
from federation.errors import GenerationError
from federation.preprocessing import to_bytes

CLEAR, NODULE, CAVITY = range(3)


def make(stream="hospital-000", **settings):
    return PhantomGenerator(DataConfig(**settings), stream=stream)


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def distinct(images):
    return {image.numpy().tobytes() for image in images}


def test_images_have_the_size_of_the_data_set_and_are_all_different():
    images = make().generate(torch.tensor([3, 0, 3]), 40, random())

    assert images.shape == (120, 1, 28, 28)
    assert images.dtype == torch.float32
    assert images.min() >= 0
    assert images.max() <= 1
    assert len(distinct(images)) == 120


def test_images_are_of_the_class_that_stands_at_their_place():
    generator = make(phantom_classes=3, phantom_difficulty=0.0)

    images = generator.generate(torch.tensor([CAVITY, NODULE, CLEAR]), 100, random())

    cavity, nodule, clear = images[:, 0, 8:20, 8:20].mean(dim=(1, 2)).reshape(3, 100).mean(dim=1)
    assert cavity < clear - 0.02
    assert nodule > clear + 0.02


def test_images_are_as_noisy_as_the_difficulty_of_the_data_set_makes_them():
    labels = torch.tensor([CLEAR])

    easy, hard = (make(phantom_difficulty=level).generate(labels, 50, random()) for level in (0.0, 1.0))

    corner_noise = [images[:, :, :3, :3].std() for images in (easy, hard)]
    assert corner_noise[1] > 2 * corner_noise[0]


def test_a_class_of_which_many_are_wanted_gets_them_all():
    labels = torch.tensor([1] * 200 + [0])

    images = make(phantom_classes=8).generate(labels, 1, random())

    assert len(distinct(images)) == 201


def test_the_random_generator_decides_the_images():
    generator, labels = make(), torch.tensor([0, 1, 2, 3])

    first, again, other = (generator.generate(labels, 2, random(seed)) for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not distinct(first) & distinct(other)


def test_a_second_call_with_the_same_random_generator_gives_other_images():
    generator, stream, labels = make(), random(), torch.tensor([0, 1])

    first, second = generator.generate(labels, 20, stream), generator.generate(labels, 20, stream)

    assert not distinct(first) & distinct(second)


def test_two_hospitals_get_different_images_from_the_same_seed():
    labels = torch.tensor([0, 1])

    one, other = (make(stream).generate(labels, 20, random()) for stream in ("hospital-000", "hospital-001"))

    assert not distinct(one) & distinct(other)


@pytest.mark.parametrize("examples", [500, 6000])  # One call draws 500 too: from the same seed they would be the same.
def test_none_of_500_images_is_one_of_the_data_set(examples):
    data = DataConfig(phantom_examples=examples)
    dataset = load_phantom(data, seed=0)
    known = {image.tobytes() for part in (dataset.train, dataset.validation, dataset.test) for image in part.images}

    images = PhantomGenerator(data, stream="hospital-000").generate(torch.arange(500) % 4, 1, random())

    assert len(known) == examples
    assert not distinct(to_bytes(images)) & known


def test_no_seed_that_a_data_set_can_have_is_ever_drawn_from(monkeypatch):
    seeds = []

    def load(data, *, seed):
        seeds.append(seed)
        return load_phantom(data, seed=seed)

    monkeypatch.setattr("aegis_cache.generation.phantom.load_phantom", load)
    generator = make()
    for seed in range(20):
        generator.generate(torch.tensor([0]), 1, random(seed))

    assert len(set(seeds)) == 21
    assert max(seeds) < -1  # -1 stands for the seed of the run.


def test_the_generator_says_what_it_is_and_that_no_private_image_has_a_part():
    identity = make(phantom_classes=8, phantom_difficulty=0.25).identity

    assert identity.kind == "phantom"
    assert identity.settings == {"classes": 8, "difficulty": 0.25, "stream": "hospital-000"}
    assert identity.provenance == Provenance.public()


def test_the_digest_depends_on_all_that_decides_the_images_and_on_nothing_else():
    others = [make(phantom_classes=5), make(phantom_difficulty=0.5), make("hospital-001")]

    digests = {generator.identity.digest for generator in [make(), *others]}

    assert len(digests) == 4
    assert make(phantom_examples=70, partition="iid", seed=9).identity.digest == make().identity.digest


def test_the_digest_changes_with_the_procedure(monkeypatch):
    before = make().identity.digest
    monkeypatch.setattr(phantom, "_draw_lesions", lambda labels, stream: 0.0)

    assert make().identity.digest != before


@pytest.mark.parametrize("label", [-1, 4])
def test_a_class_that_the_data_set_lacks_is_refused(label):
    with pytest.raises(GenerationError, match=r"labels from 0 to 3, the classes \['clear'"):
        make().generate(torch.tensor([0, label]), 1, random())
