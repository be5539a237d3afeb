"""No defence changes nothing, and a stack does what its parts do, each once and in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attacks.defences.defence import Defence, LocalStep, stack
from attacks.defences.eloul import Eloul
from attacks.defences.precode import BottleneckedLayer, Precode
from attacks.defences.pruning import Pruning
from federation.datasets.image_set import Task
from federation.errors import DataError
from federation.metrics import losses_of
from federation.parameters import Parameters
from tests.attacks.defences.made_up_steps import CLASSES, gradient_of, make_network, make_step


@dataclass(frozen=True)
class Affine(Defence):
    """Multiplies gradients, adds to them, and leaves a penalty: an order of two shows."""

    factor: float
    offset: float

    def penalties(self, count: int) -> Tensor:
        return torch.full((count,), self.offset)

    def protect(self, gradient: Parameters, step: LocalStep) -> Parameters:
        return {name: self.factor * value + self.offset for name, value in gradient.items()}


class Chosen(Defence):
    """Chooses the images it was told."""

    def __init__(self, *indices: int) -> None:
        self.indices = indices

    def choose(self, labels: NDArray[np.int64], count: int, stream: np.random.Generator) -> NDArray[np.int64]:
        return np.array(self.indices)


def test_no_defence_leaves_network_loss_choice_and_gradient() -> None:
    step = make_step(make_network())
    logits = step.network(step.images)
    gradient = gradient_of(step, Defence())

    assert Defence().prepare(step.network, step.stream) is step.network
    assert Defence().choose(np.zeros(3, np.int64), 2, np.random.default_rng(0)) is None
    assert torch.equal(Defence().losses(logits, step.labels, step.task), losses_of(logits, step.labels, step.task))
    protected = Defence().protect(gradient, step)
    assert all(torch.equal(protected[name], value) for name, value in gradient.items())
    assert all(protected[name] is not value for name, value in gradient.items())


@pytest.mark.parametrize("defence", [Defence(), stack([])])
def test_protected_tensors_share_no_memory_with_the_gradient(defence: Defence) -> None:
    step = make_step(make_network())
    gradient = gradient_of(step, Defence())

    for value in defence.protect(gradient, step).values():
        value.zero_()

    assert all(value.abs().sum() > 0 for value in gradient.values())


def test_stack_protects_in_order() -> None:
    step = make_step(make_network())
    gradient = {"a": torch.tensor([1.0])}

    protected = stack([Affine(2, 0), Affine(1, 3)]).protect(gradient, step)

    assert protected["a"].item() == 5


def test_stack_takes_the_first_choice() -> None:
    found = stack([Defence(), Chosen(3, 1), Chosen(0)]).choose(np.zeros(5, np.int64), 2, np.random.default_rng(0))

    assert found is not None
    assert found.tolist() == [3, 1]


def test_stack_adds_every_penalty_to_the_one_loss_whatever_the_order() -> None:
    step = make_step(make_network())
    logits = step.network(step.images)
    errors = Eloul().losses(logits, step.labels, step.task)

    for parts in ([Affine(1, 2), Eloul(), Affine(1, 5)], [Eloul(), Affine(1, 5), Affine(1, 2)]):
        assert torch.allclose(stack(parts).losses(logits, step.labels, step.task), errors + 7)


def test_stack_refuses_two_losses() -> None:
    step = make_step(make_network())

    with pytest.raises(DataError, match="found 2 in 'eloul\\+eloul'"):
        stack([Eloul(), Eloul()]).losses(step.network(step.images), step.labels, step.task)


def test_stack_prepares_with_every_part() -> None:
    prepared = stack([Defence(), Precode(latent=2)]).prepare(make_network(), torch.Generator())

    assert isinstance(prepared.get_submodule("output"), BottleneckedLayer)


def test_stack_tells_its_parts_which_loss_is_trained_on() -> None:
    seen = []

    class Spy(Defence):
        def protect(self, gradient: Parameters, step: LocalStep) -> Parameters:
            seen.append(step.losses(torch.zeros(1, CLASSES), torch.tensor([0]), Task.MULTICLASS))
            return gradient

    step = make_step(make_network())

    stack([Eloul(), Spy()]).protect({}, step)

    assert seen[0].item() == pytest.approx(1 / CLASSES)


def test_stack_is_named_after_its_parts() -> None:
    both = stack([Eloul(), Pruning(share=0.9)])

    assert both.name == "eloul+gc-90"
    assert both.source == "arXiv 2204.12495; arXiv 1906.08935, section 5"


def test_step_defaults_to_the_usual_loss() -> None:
    assert make_step(nn.Identity()).losses is losses_of
