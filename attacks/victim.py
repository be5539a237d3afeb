"""The hospital under attack: what leaves it when it answers a planted network, computed by the shipped client's code.

An attack never sees anything of this but the returned difference.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn

from aegis_cache.store.build import BuildPlan, CacheBuild
from aegis_cache.store.cache import Cache, open_cache
from aegis_cache.store.manifest import GeneratorIdentity, Purpose
from aegis_cache.store.provenance import Provenance
from attacks.defences.defence import Defence, LocalStep, stack
from client_app.masking.preparation import Masking
from client_app.masking.schedule import plan_epoch
from client_app.masking.synthetic import SyntheticImages
from client_app.noise.simulated import SimulatedNoise
from client_app.perturbation import perturb_update
from client_app.training import train_locally
from federation.config import PrivacyConfig, TrainingConfig
from federation.config.masking_table import MaskingMode
from federation.datasets.image_set import DatasetInfo, ImageSet
from federation.metrics import targets
from federation.parameters import Parameters, read_parameters, subtract
from federation.preprocessing import to_unit_interval
from federation.randomness import derive_seed

_PIECE = 128
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What is done to what leaves.

    Attributes:
        mode: of masking; "none" for none.
        privacy: mechanism, clip norm and unit; None for none.
        noise_multiplier: of the mechanism.
        baselines: defences of other papers, in order; in gradient mode only.
    """

    mode: MaskingMode = "none"
    privacy: PrivacyConfig | None = None
    noise_multiplier: float = 0.0
    baselines: tuple[Defence, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Hospital:
    """Data, plan and protection of one hospital.

    Attributes:
        images: all that it trains on in one update.
        info: classes and shape.
        plan: of local training.
        protection: see `Protection`.
        synthetic: those of a cache that take part; None without masking.
    """

    images: ImageSet
    info: DatasetInfo
    plan: TrainingConfig
    protection: Protection
    synthetic: SyntheticImages | None = None


def send_delta(network: nn.Module, hospital: Hospital, *, seed: int) -> Parameters:
    """Return parameters received minus parameters after local training by the shipped client, protected as it does.

    Args:
        network: what the server sent; it stays as it is.
        hospital: who trains.
        seed: of the order of images, and of noise, which is the simulation's.

    Raises:
        SiteError: the client refuses plan, masking or network.
    """
    local = copy.deepcopy(network)
    before = read_parameters(local)
    protection, privacy = hospital.protection, hospital.protection.privacy
    masking = _masking(hospital)
    generator = torch.Generator().manual_seed(derive_seed(seed, "local"))
    noise = SimulatedNoise(derive_seed(seed, "noise"))
    if privacy is not None and privacy.mechanism == "dp-sgd":
        from client_app.dp_sgd import train_with_dp_sgd

        train_with_dp_sgd(
            local,
            hospital.images,
            hospital.info,
            hospital.plan,
            privacy,
            noise_multiplier=protection.noise_multiplier,
            noise=noise,
            generator=generator,
            device=_CPU,
            masking=masking,
        )
    else:
        train_locally(
            local, hospital.images, hospital.info, hospital.plan, generator=generator, device=_CPU, masking=masking
        )
    update = subtract(read_parameters(local), before)
    if privacy is not None and privacy.mechanism == "update-gaussian":
        update = perturb_update(update, privacy=privacy, noise_multiplier=protection.noise_multiplier, noise=noise)
    return {name: -value for name, value in update.items()}


class GradientAnswers:
    """Gradients at the parameters that were sent: the whole of a step of every hospital, without the steps' rounding.

    Synthetic images of a cache have the same gradient for every batch of real ones, which is therefore kept.

    Deviation: where synthetic images are varied, real ones stay as they are, so that what is read can be compared with
    them; local training varies both alike.
    """

    def __init__(self, network: nn.Module, info: DatasetInfo, protection: Protection) -> None:
        """Answer `network`, protected by `protection` without mechanism."""
        self._info, self._protection = info, protection
        self._defence = stack(protection.baselines)
        self._network = self._defence.prepare(copy.deepcopy(network), torch.Generator().manual_seed(0))
        self._kept: tuple[tuple[str, bytes], Parameters] | None = None

    def send(self, hospital: Hospital, *, seed: int) -> Parameters:
        """Return the gradient that the steps of one epoch of `hospital` sum to, all at the parameters that were sent.

        Weights are those of `client_app.masking.schedule` for one mini-batch of all images.

        Args:
            hospital: who answers.
            seed: of what baseline defences draw.
        """
        synthetic, mode = hospital.synthetic, self._protection.mode
        size = 0 if synthetic is None or mode == "none" else len(synthetic)
        steps = plan_epoch(mode, [len(hospital.images)], size)
        weights = sum(step.real_weight for step in steps), sum(step.synthetic_weight for step in steps)
        total = {name: weights[0] * value for name, value in self._sum_real(hospital.images).items()}
        if size and synthetic is not None:
            added = self._sum_synthetic(synthetic, seed)
            total = {name: value + weights[1] * added[name] for name, value in total.items()}
        stream = torch.Generator().manual_seed(derive_seed(seed, "baseline"))
        pixels = to_unit_interval(torch.from_numpy(np.array(hospital.images.images)))
        labels = targets(torch.from_numpy(np.array(hospital.images.labels)), self._info.task)
        if not self._protection.baselines:
            return total
        step = LocalStep(
            network=self._network, images=pixels, labels=labels, task=self._info.task, iteration=0, stream=stream
        )
        return self._defence.protect(total, step)

    def _sum_real(self, images: ImageSet) -> Parameters:
        pixels, labels = torch.from_numpy(np.array(images.images)), torch.from_numpy(np.array(images.labels))
        return self._sum(to_unit_interval(pixels), labels)

    def _sum_synthetic(self, synthetic: SyntheticImages, seed: int) -> Parameters:
        """Return the gradient of the sum of all synthetic images' losses, kept unless they vary."""
        mark = (synthetic.cache.digest, synthetic.chosen.tobytes())
        if self._kept is not None and self._kept[0] == mark and not synthetic.varied:
            return self._kept[1]
        pixels, labels = synthetic.take(np.arange(len(synthetic)), _CPU)
        stream = torch.Generator().manual_seed(derive_seed(seed, "variation"))
        found = self._sum(synthetic.draw_variation(len(synthetic), stream).apply(pixels), labels)
        self._kept = None if synthetic.varied else (mark, found)
        return found

    def _sum(self, pixels: torch.Tensor, labels: torch.Tensor) -> Parameters:
        """Return the gradient of the sum of losses, in pieces that fit into a processor's cache."""
        wanted = targets(labels, self._info.task)
        self._network.zero_grad(set_to_none=True)
        for part, told in zip(pixels.split(_PIECE), wanted.split(_PIECE), strict=True):
            self._losses(part, told).sum().backward()
        return {
            name: torch.zeros_like(value) if value.grad is None else value.grad.detach().clone()
            for name, value in self._network.named_parameters()
        }

    def _losses(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self._defence.losses(self._network(pixels), labels, self._info.task)


def publish_cache(folder: Path, images: ImageSet, info: DatasetInfo) -> Cache:
    """Return `images` as a cache like a hospital's, published in `folder`."""
    purpose = Purpose.of(info, hospital_id="victim", data_set=info.name, modality="generic")
    origin = Provenance.public()
    identity = GeneratorIdentity(kind="folder", name="attacked", digest="0" * 64, provenance=origin)
    with CacheBuild.begin(folder, BuildPlan(purpose=purpose, generator=identity, seed=0), resume=False) as build:
        build.append(0, 0, images.images, images.labels, {})
        build.publish(provenance=origin, acceptance={}, created="2026-01-01T00:00:00+00:00")
    return open_cache(folder)


def _masking(hospital: Hospital) -> Masking | None:
    mode, synthetic = hospital.protection.mode, hospital.synthetic
    if mode == "none" or synthetic is None:
        return None
    return Masking(mode=mode, synthetic=synthetic, micro_batch=256, batch_statistics="refuse")
