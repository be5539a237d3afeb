"""The denoising loss of single images, by which membership is tested."""

from __future__ import annotations

import pytest
import torch

from aegis_cache.generation.diffusion.losses import denoising_losses
from aegis_cache.generation.diffusion.network import DenoisingNetwork, NetworkShape


@pytest.fixture
def network() -> DenoisingNetwork:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return DenoisingNetwork(NetworkShape(channels=1, height=8, width=8, classes=2)).eval()


def test_each_image_has_the_loss_it_has_alone(network: DenoisingNetwork) -> None:
    images, labels = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 0, 1, 1])

    together = denoising_losses(network, images, labels)

    alone = torch.cat([denoising_losses(network, images[i : i + 1], labels[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)


def test_a_network_that_says_nothing_loses_the_velocity_itself(network: DenoisingNetwork) -> None:
    for parameter in network.head.parameters():
        parameter.data.zero_()

    losses = denoising_losses(network, torch.full((1, 1, 8, 8), 0.5), torch.tensor([0]))

    assert 0.1 < float(losses) < 1.5  # Middle grey is 0, so the velocity is noise times the signal rate.


def test_the_class_counts(network: DenoisingNetwork) -> None:
    images = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))

    first, second = (denoising_losses(network, images, torch.tensor([label])) for label in (0, 1))

    assert not torch.equal(first, second)
