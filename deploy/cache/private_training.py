"""Differentially private training of the diffusion generator: by the DP-SGD and in the ledger of a hospital's updates.

What it costs is reserved before the first step and committed when the generator is saved. Nothing is saved in between:
a training that is broken off stays spent, and training again is another release, which is paid for again.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from aegis_cache.generation.diffusion.generator import load_network, save_generator
from aegis_cache.generation.diffusion.network import DenoisingNetwork
from aegis_cache.generation.diffusion.training import DiffusionTraining, TrainingPlan
from aegis_cache.store.build_folder import make_private_folder
from aegis_cache.store.provenance import Provenance, Source
from client_app.ledger import Ledger, ReleaseRequest
from client_app.ledger.release import GENERATOR_RUN
from client_app.noise.cryptographic import CryptographicNoise
from client_app.noise.simulated import SimulatedNoise
from client_app.noise.source import NoiseSource
from client_app.policy import SitePolicy, read_policy
from deploy.cache.permitted import PermittedImages
from deploy.cache.private_descent import require_separable_network, train_privately
from deploy.cache.private_planning import plan_private_training, refusals
from deploy.cache.request import BuildRequest
from deploy.cache.training import TRAINED, has_generator
from federation.accounting.events import event_as_dict, event_from_dict
from federation.errors import ConfigurationError
from federation.randomness import derive_seed


class PrivateTraining:
    """One private training of a hospital's generator, planned, described or run."""

    def __init__(self, request: BuildRequest, permitted: PermittedImages, policy: Path | None) -> None:
        """Plan; nothing is written or spent.

        Raises:
            ConfigurationError: policy or request do not allow it, or `request.weights` are private themselves.
            GenerationError: `request.weights` cannot be read.
        """
        self._request, self._permitted = request, permitted
        self._images = permitted.require_for_training()
        self._policy = _read(policy)
        self._initial = None if request.weights is None else _load_public(request, request.weights)
        self._planned = plan_private_training(request, self._images, self._policy, permitted.data_set)

    def describe(self) -> dict[str, Any]:
        """Return what the training would cost."""
        release = self._planned.release
        return {
            "epsilon": self._planned.epsilon,
            "delta": release.delta,
            "unit": release.mechanism.unit.value,
            "event": event_as_dict(self._planned.event),
            "account": release.account,
            "cap": release.cap,
        }

    def run(self, folder: Path, *, say: Callable[[str], None], show: Callable[[float, str], None]) -> None:
        """Reserve the cost, train, save the generator below the cache in `folder`, commit.

        Args:
            folder: of the cache, made if missing.
            say: told what a person should know before it begins.
            show: told how much is done.

        Raises:
            ConfigurationError: the budget is too small; nothing was spent.
            LedgerError: the ledger cannot be used. Once training has begun, whatever is raised leaves the cost spent.
        """
        self._announce(say)
        plan = TrainingPlan(steps=self._planned.event.steps, seed=self._request.seed)
        prepared = DiffusionTraining(self._images, self._permitted.info.classes, plan, initial=self._initial)
        kept = folder / TRAINED
        name = f"diffusion model of {self._permitted.data_set}, trained with differential privacy"
        with refusals():
            require_separable_network(prepared.network)
            _require_room(self._policy, self._planned.release)
        make_private_folder(folder)
        make_private_folder(kept)
        with _booked(self._policy, self._planned.release):
            noise, draws = self._streams()
            network = train_privately(
                prepared,
                self._images,
                self._planned.units,
                self._planned.event,
                clip_norm=self._planned.release.mechanism.clip_norm,
                noise=noise,
                draws=draws,
                show=show,
            )
            save_generator(network, kept, name=name, provenance=self._provenance())

    def _streams(self) -> tuple[NoiseSource, torch.Generator]:
        """Return noise and draws per image: from the operating system, or at a simulated hospital from the seed."""
        if self._policy is not None:
            return CryptographicNoise(), torch.Generator().manual_seed(secrets.randbits(63))
        path = (self._permitted.hospital_id, "generator")
        noise, draws = (derive_seed(self._request.seed, *path, use) for use in ("noise", "draws"))
        return SimulatedNoise(noise), torch.Generator().manual_seed(draws)

    def _announce(self, say: Callable[[str], None]) -> None:
        planned = self._planned
        if self._policy is None:
            say(
                "A simulated hospital has no ledger: the epsilon of its generator is computed and booked nowhere, and "
                "noise from a seed protects nobody."
            )
        else:
            say(
                f"Training spends epsilon={planned.epsilon:.4g} at delta={planned.release.delta:g} in the hospital's "
                "ledger before it begins. Broken off, it stays spent, and training again pays again."
            )

    def _provenance(self) -> Provenance:
        planned, count = self._planned, len(self._images)
        began = "" if self._initial is None else ", from weights without private images"
        rehearsed = "" if self._policy is not None else ", with the seeded noise of a simulation, which protects nobody"
        sentence = (
            f"a diffusion model learned from {count} permitted training images by DP-SGD alone, which protects one "
            f"{planned.release.mechanism.unit.value}{began}{rehearsed}"
        )
        return Provenance(
            source=Source.DP,
            uses=(sentence,),
            epsilon=planned.epsilon,
            delta=planned.release.delta,
            event=event_as_dict(planned.event),
        )


def find_private_generator(
    request: BuildRequest, folder: Path, policy: Path | None, say: Callable[[str], None]
) -> bool:
    """Return whether the cache in `folder` has its private generator already, which is used again at no cost.

    Args:
        request: how private it must be.
        folder: of the cache.
        policy: the hospital's, whose ledger must hold what the generator cost; None at a simulated one.
        say: told when no epsilon will be claimed for the cache, and why.

    Raises:
        ConfigurationError: there is a generator, but not one as private as that, or not one of this ledger.
        GenerationError: it cannot be read.
        LedgerError: the ledger cannot be used.
    """
    if request.looks_at_images:
        say(
            "A filter, labels other than 'balanced', aimed brightness and the search for copies look at private images "
            "without noise: this epsilon cannot be claimed for the cache. It can with --filter none --labels balanced "
            "--brightness as-generated --unchecked."
        )
    kept = folder / TRAINED
    if not has_generator(kept):
        return False
    found = load_network(kept)[1]
    epsilon, delta = found.epsilon or math.inf, found.delta or math.inf
    if found.source is not Source.DP or epsilon > request.dp_epsilon or delta > (request.dp.delta or delta):
        raise ConfigurationError(
            f"Expected the generator in {kept} to be private with epsilon <= {request.dp_epsilon:g}, found source "
            f"{found.source.value!r}, epsilon={epsilon:.4g}, delta={delta:g}: build into another folder."
        )
    if (site := _read(policy)) is not None:
        with _open(site) as ledger:
            booked = ledger.history(site.data.id, run_id=GENERATOR_RUN).counts
        if event_from_dict(found.event or {}) not in booked:
            raise ConfigurationError(f"Expected the ledger to hold the training of {kept}: build into another folder.")
    return True


def _load_public(request: BuildRequest, weights: Path) -> DenoisingNetwork:
    network, origin = load_network(weights)
    if origin.source is not Source.PUBLIC and not request.weights_are_public:
        raise ConfigurationError(
            f"Expected weights in which no private image had a part, found source {origin.source.value!r} in {weights}:"
            " no epsilon could be claimed. If those images are public, say --weights-are-public."
        )
    return network


@contextmanager
def _booked(policy: SitePolicy | None, release: ReleaseRequest) -> Iterator[None]:
    """Reserve `release` before the block and commit it after; an error in between leaves it spent.

    The ledger is not held in between, so that the hospital's client can go on; the reservation is taken up again
    through its message, which no other process knows.
    """
    if policy is None:
        yield
        return
    with _open(policy) as ledger, refusals():
        ledger.reserve(release)
    yield
    with _open(policy) as ledger:
        ledger.commit(ledger.reserve(release))


def _require_room(policy: SitePolicy | None, release: ReleaseRequest) -> None:
    if policy is not None:
        with _open(policy) as ledger:
            ledger.require_room(release)


def _read(policy: Path | None) -> SitePolicy | None:
    with refusals():
        return None if policy is None else read_policy(policy)


def _open(policy: SitePolicy) -> Ledger:
    return Ledger.open(Path(policy.state_dir), hospital_id=policy.hospital_id, key_folder=Path(policy.keys_dir))
