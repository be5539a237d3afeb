"""The noise is there, which is more than the published code can say, and it has the deviation that the risk gives."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from attacks.defences.defence import Defence
from attacks.defences.outpost import Outpost
from attacks.defences.pruning import prune_smallest
from tests.attacks.defences.made_up_steps import flat, gradient_of, make_network, make_step


class Bare(nn.Module):
    """Two tensors of parameters whose variances are known: 0.25 and, before it is capped, 4."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        signs = torch.where(torch.arange(rows * 10) % 2 == 0, 1.0, -1.0).view(rows, 10)
        self.narrow = nn.Parameter(0.5 * signs)
        self.wide = nn.Parameter(2.0 * signs)


def test_protected_gradient_differs_from_the_gradient_and_from_the_pruned_one() -> None:
    step = make_step(make_network())
    gradient = gradient_of(step, Defence())

    protected = Outpost().protect(gradient, step)

    pruned = torch.cat([prune_smallest(value, 0.8).flatten() for value in gradient.values()])
    assert not torch.equal(flat(protected), flat(gradient))
    assert not torch.equal(flat(protected), pruned)


def test_noise_has_the_deviation_of_the_capped_variance_of_the_weights() -> None:
    network = Bare(5000)
    gradient = {name: torch.zeros_like(value) for name, value in network.named_parameters()}

    protected = Outpost(noised=1.0).protect(gradient, make_step(network))

    tolerance = 4 / math.sqrt(2 * 50_000)
    assert float(protected["narrow"].std()) == pytest.approx(0.25 * 0.8, rel=tolerance)
    assert float(protected["wide"].std()) == pytest.approx(1.0 * 0.8, rel=tolerance)


def test_only_columns_of_the_greatest_information_are_noised() -> None:
    network = Bare(6)
    gradient = {"narrow": torch.zeros(6, 10), "wide": torch.zeros(6, 10)}
    gradient["narrow"] += torch.arange(1.0, 11.0)
    gradient["wide"] += torch.arange(11.0, 21.0)

    protected = Outpost(share=0.0, noised=0.4).protect(gradient, make_step(network))

    noised = {name: (protected[name] != gradient[name]).all(dim=0).nonzero().flatten().tolist() for name in gradient}
    assert noised == {"narrow": [], "wide": [2, 3, 4, 5, 6, 7, 8, 9]}
    assert int((protected["wide"] != gradient["wide"]).sum()) == 6 * 8


def test_what_gets_no_noise_is_pruned_to_its_share() -> None:
    network = Bare(6)
    gradient = {"narrow": torch.rand(6, 10), "wide": 100 + torch.rand(6, 10)}

    protected = Outpost(noised=0.3).protect(gradient, make_step(network))

    assert torch.equal(protected["narrow"], prune_smallest(gradient["narrow"], 0.8))
    assert int((protected["narrow"] != 0).sum()) == 12


def test_equal_weights_switch_the_noise_off() -> None:
    network = Bare(6)
    with torch.no_grad():
        network.narrow.fill_(3)
    gradient = {"narrow": 100 * torch.rand(6, 10), "wide": torch.rand(6, 10)}

    protected = Outpost(noised=0.5).protect(gradient, make_step(network))

    assert torch.equal(protected["narrow"], prune_smallest(gradient["narrow"], 0.8))


@pytest.mark.parametrize(("iteration", "expected"), [(0, 1.0), (8, 0.5), (24, 0.25)])
def test_steps_are_protected_with_a_probability_that_decays(iteration: int, expected: float) -> None:
    step = make_step(Bare(2), iteration=iteration)
    gradient = {"narrow": torch.rand(2, 10), "wide": torch.rand(2, 10)}

    changed = [not torch.equal(flat(Outpost().protect(gradient, step)), flat(gradient)) for _ in range(400)]

    assert sum(changed) / 400 == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 400))


def test_equal_seeds_draw_equal_noise_and_the_gradient_stays() -> None:
    step, again = make_step(make_network()), make_step(make_network())
    gradient = gradient_of(step, Defence())
    before = flat(gradient).clone()

    first, second = Outpost().protect(gradient, step), Outpost().protect(gradient, step)

    assert torch.equal(flat(first), flat(Outpost().protect(gradient, again)))
    assert not torch.equal(flat(first), flat(second))
    assert torch.equal(flat(gradient), before)
