"""Outpost: pruning, and noise where the gradient is large, as strong as the weights of a layer are spread."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attacks.defences.defence import Defence, LocalStep
from attacks.defences.pruning import prune_smallest
from federation.parameters import Parameters


@dataclass(frozen=True, kw_only=True)
class Outpost(Defence):
    """Wang, Hugin and Li, More than Enough is Too Much: Adaptive Defenses against Gradient Leakage (INFOCOM 2023).

    A server that sends a layer of equal weights switches the noise on it off, because its risk is their variance.

    Deviation: the code published with it computes the noise and returns the gradient it was given; here the noise is
    added. As there, and not per image as in the paper, the Fisher information is the square of the batch's gradient,
    averaged over a tensor's first dimension.

    Attributes:
        beta: step number t, from 0, is protected with probability 1 / (1 + beta * t).
        share: of each tensor's entries that is set to zero.
        noise_base: standard deviation of the noise where the risk of a tensor, min(variance of its weights, 1), is 1.
        noised: share of the Fisher information, the greatest, whose entries get noise.
    """

    beta: float = 0.125
    share: float = 0.8
    noise_base: float = 0.8
    noised: float = 0.4

    @property
    def name(self) -> str:
        """As the paper names it."""
        return "outpost"

    @property
    def source(self) -> str:
        """The paper."""
        return "Wang, Hugin and Li, INFOCOM 2023"

    def protect(self, gradient: Parameters, step: LocalStep) -> Parameters:
        """Return `gradient` pruned and noised, or, in the steps that decay leaves out, as it was."""
        if float(torch.rand((), generator=step.stream)) >= 1 / (1 + self.beta * step.iteration):
            return super().protect(gradient, step)
        parameters = dict(step.network.named_parameters())
        information = {name: value.detach().square().mean(dim=0) for name, value in gradient.items()}
        threshold = torch.cat([value.reshape(-1) for value in information.values()]).quantile(1 - self.noised)
        protected = {}
        for name, value in gradient.items():
            risk = min(float(parameters[name].detach().var(correction=0)), 1.0)
            noise = risk * self.noise_base * torch.randn(value.shape, generator=step.stream).to(value)
            protected[name] = prune_smallest(value, self.share) + noise * (information[name] >= threshold)
        return protected
