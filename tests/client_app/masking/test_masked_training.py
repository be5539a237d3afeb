"""Masked training is one thing, however little memory it is given, and unmasked training is what it always was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from aegis_cache.store.cache import Cache
from client_app.masking.preparation import Masking
from client_app.masking.training import RealImages, train_masked
from client_app.training import train_locally
from federation.config import TrainingConfig
from federation.config.masking_table import MaskingMode
from federation.datasets.image_set import DatasetInfo, ImageSet, Task
from federation.errors import SiteError
from tests.client_app.calls import make_images
from tests.client_app.masking.made_up_caches import CLASS_NAMES, make_masking

CPU = torch.device("cpu")
REAL, SYNTHETIC, SIDE, CLASSES = 7, 5, 6, 3
MODES: list[MaskingMode] = [mode for mode in get_args(MaskingMode) if mode != "none"]
INFO = DatasetInfo(name="toy", task=Task.MULTICLASS, class_names=CLASS_NAMES, channels=1, height=SIDE, width=SIDE)


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_network(*middle: nn.Module) -> nn.Module:
    """Return a small network whose parameters are always the same."""
    network = nn.Sequential(nn.Conv2d(1, 4, 3), *middle, nn.Tanh(), nn.Flatten(), nn.Linear(64, CLASSES))
    generator = generator_of(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
    return network


def masking_in(folder: Path, **settings: Any) -> Masking:
    return make_masking(folder, shape=(1, SIDE, SIDE), **{"size": SYNTHETIC, "seed": 1, **settings})


def train(
    model: nn.Module, masking: Masking | None, *, seed: int = 0, real: ImageSet | None = None, **plan: Any
) -> Any:
    """Train for two epochs of mini-batches of 3, 3 and 1 images unless told otherwise, and return all parameters."""
    settings = TrainingConfig(**{"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 3, "local_epochs": 2, **plan})
    images = real or make_images(REAL)
    train_locally(model, images, INFO, settings, generator=generator_of(seed), device=CPU, masking=masking)
    return [parameter.detach().clone() for parameter in model.parameters()]


def same_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def real_images(count: int = REAL, augmentation: str = "none") -> RealImages:
    images = make_images(count)
    return RealImages(
        pixels=torch.from_numpy(images.images), labels=torch.from_numpy(images.labels), augmentation=augmentation
    )


class Watch:
    """Trains a network and notes what each step was shown, as bytes of images."""

    def __init__(self, *, synthetic: Masking) -> None:
        self.model, self.masking = make_network(), synthetic
        self.pieces: list[Tensor] = []
        self.steps: list[list[bytes]] = []
        self.generator = generator_of(0)

    def losses_of(self, images: Tensor, labels: Tensor) -> Tensor:
        # An image alone is shown beside a copy without weight.
        self.pieces.append(images[:1] if len(images) == 2 and torch.equal(images[0], images[1]) else images)
        return functional.cross_entropy(self.model(images), labels, reduction="none")

    def end_step(self, *_: object) -> None:
        self.steps.append([image.numpy().tobytes() for piece in self.pieces for image in piece])
        self.pieces.clear()

    def train(self, *, augmentation: str = "none", epochs: int = 2) -> list[list[bytes]]:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        optimizer.register_step_post_hook(self.end_step)
        real = real_images(augmentation=augmentation)
        train_masked(
            self.model,
            real,
            self.losses_of,
            optimizer,
            self.masking,
            epochs=epochs,
            batch_size=3,
            generator=self.generator,
        )
        return self.steps

    @property
    def own_bytes(self) -> set[bytes]:
        return {image.numpy().tobytes() for image in real_images().pixels.float() / 255}

    @property
    def cached_bytes(self) -> set[bytes]:
        pixels = torch.from_numpy(self.masking.synthetic.cache.take(range(self.masking.size)))
        return {image.numpy().tobytes() for image in pixels.float() / 255}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("augmentation", "varied"), [("none", False), ("shift-flip", True)])
@pytest.mark.parametrize("micro_batch", [1, 2, 3, 7])
def test_result_does_not_depend_on_the_micro_batch(
    mode: MaskingMode, augmentation: str, varied: bool, micro_batch: int, tmp_path: Path
) -> None:
    whole = masking_in(tmp_path / "whole", mode=mode, varied=varied, micro_batch=1000)
    small = masking_in(tmp_path / "small", mode=mode, varied=varied, micro_batch=micro_batch)

    expected = train(make_network(), whole, augmentation=augmentation)
    found = train(make_network(), small, augmentation=augmentation)

    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("mode", MODES)
def test_micro_batches_see_the_images_of_the_whole_logical_batch_in_its_order(
    mode: MaskingMode, tmp_path: Path
) -> None:
    whole = Watch(synthetic=masking_in(tmp_path / "whole", mode=mode, varied=True, micro_batch=1000))
    small = Watch(synthetic=masking_in(tmp_path / "small", mode=mode, varied=True, micro_batch=2))

    expected, found = (watch.train(augmentation="shift-flip") for watch in (whole, small))

    assert found == expected
    assert torch.equal(small.generator.get_state(), whole.generator.get_state())


@pytest.mark.parametrize("mode", MODES)
def test_no_more_than_a_micro_batch_is_in_memory_at_a_time(
    mode: MaskingMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masking, shown, read = masking_in(tmp_path, mode=mode, micro_batch=2), [], []
    take, model = Cache.take, make_network()

    def watched(cache: Cache, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        read.append(len(indices))
        return take(cache, indices)

    monkeypatch.setattr(Cache, "take", watched)
    model.register_forward_pre_hook(lambda _, inputs: shown.append(len(inputs[0])))

    train(model, masking)

    assert max(shown) == 2
    assert max(read) <= 2


@pytest.mark.parametrize("mode", MODES)
def test_seed_decides_the_result(mode: MaskingMode, tmp_path: Path) -> None:
    masking = masking_in(tmp_path, mode=mode, varied=True, micro_batch=3)

    first, second, other = (train(make_network(), masking, seed=seed, augmentation="shift-flip") for seed in (4, 4, 5))

    assert same_bits(first, second)
    assert not same_bits(first, other)


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        ("sequential", [(3, 0), (3, 0), (1, 0), (0, 5)]),
        ("lambda", [(3, 0), (3, 0), (1, 0), (0, 5)]),
        ("joint", [(3, 5), (3, 5), (1, 5)]),
        ("interleaved", [(3, 1), (3, 2), (1, 2)]),
    ],
)
def test_every_epoch_takes_the_same_kinds_of_steps_and_every_image_in_another_order(
    mode: MaskingMode, kinds: list[tuple[int, int]], tmp_path: Path
) -> None:
    watch = Watch(synthetic=masking_in(tmp_path, mode=mode))
    own, cached = watch.own_bytes, watch.cached_bytes

    steps = watch.train(epochs=3)

    found = [(sum(image in own for image in step), sum(image in cached for image in step)) for step in steps]
    epochs = [
        [image for step in steps[at : at + len(kinds)] for image in step] for at in range(0, len(steps), len(kinds))
    ]
    assert found == kinds * 3
    assert [set(epoch) for epoch in epochs] == [own | cached] * 3
    for kind in (own, cached):
        assert len({tuple(image for image in epoch if image in kind) for epoch in epochs}) == 3


def test_real_images_come_first_in_a_step(tmp_path: Path) -> None:
    watch = Watch(synthetic=masking_in(tmp_path, mode="joint", micro_batch=2))
    own = watch.own_bytes

    steps = watch.train(epochs=1)

    assert [[image in own for image in step] for step in steps] == [[True] * b + [False] * 5 for b in (3, 3, 1)]


def test_synthetic_images_are_augmented_as_real_ones_are(tmp_path: Path) -> None:
    watch = Watch(synthetic=masking_in(tmp_path, mode="sequential"))

    last = watch.train(augmentation="shift-flip", epochs=1)[-1]

    assert len(set(last)) == SYNTHETIC
    # One in fifty stays as it is.
    assert len(set(last) - watch.cached_bytes) >= SYNTHETIC - 1


def test_synthetic_images_vary_from_epoch_to_epoch_where_they_are_to(tmp_path: Path) -> None:
    watch = Watch(synthetic=masking_in(tmp_path, mode="sequential", varied=True))

    steps = watch.train(epochs=3)

    seen = [image for step in steps[3::4] for image in step]
    assert len(set(seen)) == 3 * SYNTHETIC
    assert not set(seen) & watch.cached_bytes


def test_real_images_vary_as_synthetic_ones_do(tmp_path: Path) -> None:
    watch = Watch(synthetic=masking_in(tmp_path, mode="interleaved", varied=True))

    seen = [image for step in watch.train(epochs=3) for image in step]

    assert len(set(seen)) == 3 * (REAL + SYNTHETIC)
    assert not set(seen) & (watch.own_bytes | watch.cached_bytes)


@pytest.mark.parametrize("mode", MODES)
def test_mixed_precision_rounds_computation_and_leaves_parameters_in_32_bits(mode: MaskingMode, tmp_path: Path) -> None:
    masking = masking_in(tmp_path, mode=mode, micro_batch=3)
    before = [parameter.detach() for parameter in make_network().parameters()]

    full = train(make_network(), masking)
    mixed = train(make_network(), masking, precision="mixed")

    assert {parameter.dtype for parameter in mixed} == {torch.float32}
    assert not same_bits(full, mixed)
    moved = torch.cat([(new - old).flatten() for new, old in zip(full, before, strict=True)]).norm()
    apart = torch.cat([(one - other).flatten() for one, other in zip(full, mixed, strict=True)]).norm()
    assert float(apart / moved) < 0.03


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIDE * SIDE, CLASSES)
        with torch.no_grad():
            self.linear.weight.copy_(torch.randn(CLASSES, SIDE * SIDE, generator=generator_of(2)) / 10)
            self.linear.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        return self.linear(images.flatten(1))


@pytest.mark.parametrize(
    ("plan", "prior"),
    [
        ({}, [1.0, 1.0, 1.0]),
        ({"class_prior": "0.7,0.2,0.1"}, [0.7, 0.2, 0.1]),
        # Five, two and no real image of each class, one added to each; the cache's labels are not counted.
        ({"label_skew": "logit-adjustment"}, [0.6, 0.3, 0.1]),
    ],
)
def test_logits_of_synthetic_images_are_shifted_as_those_of_real_ones_are(
    plan: dict[str, Any], prior: list[float], tmp_path: Path
) -> None:
    model, masking = Flat(), masking_in(tmp_path, mode="joint", labels=[2, 2, 1, 2, 0], micro_batch=4)
    real = ImageSet(images=make_images(REAL).images, labels=np.array([0, 0, 1, 0, 0, 1, 0]))
    images = torch.from_numpy(np.concatenate([real.images, masking.synthetic.cache.take(range(SYNTHETIC))]))
    x = images.flatten(1).float() / 255
    y = torch.from_numpy(np.concatenate([real.labels, masking.synthetic.cache.labels]))
    # The gradient of softmax cross-entropy in closed form, with each class as likely before as the prior says.
    odds = model(x).softmax(1).detach() * torch.tensor(prior)
    slope = (odds / odds.sum(1, keepdim=True) - functional.one_hot(y, CLASSES)) / (REAL + SYNTHETIC)
    before = model.linear.weight.detach().clone()

    weight, bias = train(model, masking, real=real, batch_size=REAL, local_epochs=1, **plan)

    torch.testing.assert_close(weight, before - 0.1 * slope.T @ x, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(bias, -0.1 * slope.sum(0), rtol=1e-4, atol=1e-6)


def old_augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images moved and mirrored as they were before there was masking."""
    padded = functional.pad(images, [2] * 4, mode="replicate")
    down, right = torch.randint(0, 5, (2, len(images)), generator=generator).tolist()
    moved = [image[:, y : y + SIDE, x : x + SIDE] for image, y, x in zip(padded, down, right, strict=True)]
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    return torch.stack([part.flip(2) if flip else part for part, flip in zip(moved, mirrored, strict=True)])


Make = Callable[[Any], torch.optim.Optimizer]


@pytest.mark.parametrize("augmentation", ["none", "shift-flip"])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda parameters: torch.optim.SGD(parameters, lr=0.1)),
        ("adam", lambda parameters: torch.optim.Adam(parameters, lr=0.1)),
        ("adamw", lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.0)),
    ],
)
def test_unmasked_training_gives_the_bits_of_a_plain_loop(name: str, make: Make, augmentation: str) -> None:
    model, generator, images = make_network(), generator_of(3), make_images(REAL)
    pixels, labels = torch.from_numpy(images.images), torch.from_numpy(images.labels)
    optimizer = make(model.parameters())
    for _ in range(2):
        for chosen in torch.randperm(REAL, generator=generator).split(3):
            batch = pixels[chosen].float() / 255
            batch = old_augment(batch, generator) if augmentation == "shift-flip" else batch
            optimizer.zero_grad()
            functional.cross_entropy(model(batch), labels[chosen]).backward()
            optimizer.step()

    found = train(make_network(), None, seed=3, optimizer=name, augmentation=augmentation)

    assert same_bits(found, list(model.parameters()))


@pytest.mark.parametrize(("epochs", "batch_size", "augmentation"), [(3, 2, "none"), (1, 4, "shift-flip")])
def test_plan_decides_epochs_mini_batches_and_augmentation(
    epochs: int, batch_size: int, augmentation: str, tmp_path: Path
) -> None:
    model, masking = make_network(), masking_in(tmp_path, mode="joint")
    train_masked(
        model,
        real_images(augmentation=augmentation),
        lambda images, labels: functional.cross_entropy(model(images), labels, reduction="none"),
        torch.optim.SGD(model.parameters(), lr=0.1),
        masking,
        epochs=epochs,
        batch_size=batch_size,
        generator=generator_of(0),
    )

    found = train(make_network(), masking, local_epochs=epochs, batch_size=batch_size, augmentation=augmentation)

    assert same_bits(found, list(model.parameters()))


@pytest.mark.parametrize("mode", MODES)
def test_masking_changes_the_result(mode: MaskingMode, tmp_path: Path) -> None:
    masking = masking_in(tmp_path, mode=mode)

    masked, unmasked = train(make_network(), masking), train(make_network(), None)

    assert not any(torch.equal(one, other) for one, other in zip(masked, unmasked, strict=True))


def test_parameters_that_are_not_trained_stay_as_they_are(tmp_path: Path) -> None:
    model = make_network()
    first = next(model.parameters()).requires_grad_(False)
    before = [parameter.detach().clone() for parameter in model.parameters()]

    after = train(model, masking_in(tmp_path, micro_batch=2), optimizer="adamw", weight_decay=0.1)

    assert first.grad is None
    unchanged = [torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert unchanged == [True, False, False, False]


def test_network_trains_in_training_mode(tmp_path: Path) -> None:
    modes: list[bool] = []
    model = make_network().eval()
    model.register_forward_pre_hook(lambda part, _: modes.append(part.training))

    train(model, masking_in(tmp_path))

    assert set(modes) == {True}


def test_batch_statistics_are_refused_before_anything_is_drawn_or_changed(tmp_path: Path) -> None:
    model, generator = make_network(nn.BatchNorm2d(4)), generator_of(0)
    before = [tensor.clone() for tensor in model.state_dict().values()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    with pytest.raises(SiteError, match=r"found \['1'\]"):
        train_masked(
            model,
            real_images(),
            lambda *_: pytest.fail("trained"),
            optimizer,
            masking_in(tmp_path),
            epochs=1,
            batch_size=3,
            generator=generator,
        )

    assert same_bits(before, list(model.state_dict().values()))
    assert torch.equal(generator.get_state(), generator_of(0).get_state())


@pytest.mark.parametrize("micro_batch", [1, 3])
def test_frozen_batch_statistics_leave_as_they_came_and_let_micro_batches_agree(
    micro_batch: int, tmp_path: Path
) -> None:
    whole = masking_in(tmp_path / "whole", batch_statistics="freeze", micro_batch=1000)
    small = masking_in(tmp_path / "small", batch_statistics="freeze", micro_batch=micro_batch)
    model = make_network(nn.BatchNorm2d(4))
    received = [buffer.clone() for buffer in model.buffers()]

    expected, found = train(make_network(nn.BatchNorm2d(4)), whole), train(model, small)

    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)
    assert same_bits(received, list(model.buffers()))


def test_dropout_depends_on_the_seed_alone_and_leaves_torch_s_own_generator_as_it_was(tmp_path: Path) -> None:
    masking = masking_in(tmp_path, micro_batch=3)
    networks = [make_network(nn.Dropout()) for _ in range(2)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = train(networks[0], masking)
        torch.manual_seed(2)
        before = torch.random.get_rng_state()
        second = train(networks[1], masking)
        after = torch.random.get_rng_state()

    assert same_bits(first, second)
    assert torch.equal(before, after)
