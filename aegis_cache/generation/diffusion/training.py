"""Training of the denoising network on a hospital's own images, within a budget of minutes, resumable."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import math
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from aegis_cache.generation.diffusion.network import DenoisingNetwork, NetworkShape
from aegis_cache.generation.diffusion.schedule import STEPS, signal_rates
from federation.datasets.image_set import ImageSet
from federation.durable import write_durably
from federation.errors import DataError, GenerationError
from federation.parameters import digest
from federation.preprocessing import to_unit_interval
from federation.randomness import derive_seed

_SAVE_EVERY_S = 60.0
_LARGEST_SHIFT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """How the network is trained.

    Attributes:
        minutes: budget over all starts, in processor time of the training thread, which is time on the clock where
            nothing else runs; the learning rate falls to zero along it.
        steps: end after this many steps, and let the learning rate fall along them; 0 leaves it to `minutes`.
        batch_size: images per step.
        learning_rate: largest one, after the warm-up.
        warm_up: steps in which it rises.
        ema_decay: of the average of the weights that is kept.
        label_drop: share of images whose class is hidden, so that the empty class is learned too.
        shift: whether images are moved by up to two pixels, which helps few images.
        seed: decides every draw.
    """

    minutes: float = 27.0
    steps: int = 0
    batch_size: int = 64
    learning_rate: float = 1.5e-3
    warm_up: int = 200
    ema_decay: float = 0.9985
    label_drop: float = 0.1
    shift: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """Where training stands.

    Attributes:
        step: steps done.
        minutes: spent over all starts.
        done: share of the budget that is used, from 0 to 1.
        loss: mean of the last steps.
    """

    step: int
    minutes: float
    done: float
    loss: float


class DiffusionTraining:
    """One training that can be broken off and taken up again.

    Attributes:
        network: as trained so far.
        average: moving average of its weights, which is what samples are drawn from.
        identity: of everything it learns from and by; only a training of the same identity is gone on with.
    """

    def __init__(
        self,
        images: ImageSet,
        classes: int,
        plan: TrainingPlan,
        *,
        checkpoint: Path | None = None,
        initial: DenoisingNetwork | None = None,
    ) -> None:
        """Prepare, from `checkpoint` if that file exists.

        Args:
            images: what may be learned from; one class per image.
            classes: number of classes.
            plan: how.
            checkpoint: file that keeps the state; its folder must exist. None keeps nothing.
            initial: weights to begin with, for images of the same shape and classes; drawn if none are given.

        Raises:
            DataError: there are no images, they have several labels, or `initial` is for others.
            GenerationError: `checkpoint` is damaged, or of a training with other images, plan or initial weights.
        """
        if len(images) == 0 or images.labels.ndim != 1:
            raise DataError(f"Expected images with one label each to train a generator, found {images.labels.shape}.")
        self._pixels = to_unit_interval(torch.from_numpy(images.images.copy())) * 2 - 1
        self._labels = torch.from_numpy(images.labels.copy())
        self._classes, self._plan, self._checkpoint = classes, plan, checkpoint
        channels, height, width = self._pixels.shape[1:]
        shape = NetworkShape(channels=channels, height=height, width=width, classes=classes)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive_seed(plan.seed, "generator", "initialization"))
            self.network = DenoisingNetwork(shape)
        if initial is not None:
            if initial.shape != shape:
                raise DataError(f"Expected weights for {shape} to begin with, found some for {initial.shape}.")
            self.network.load_state_dict(initial.state_dict())
        self.network.to(memory_format=torch.channels_last)
        self.average = copy.deepcopy(self.network).requires_grad_(requires_grad=False).eval()
        self._optimizer = torch.optim.AdamW(self.network.parameters(), lr=plan.learning_rate, betas=(0.9, 0.99))
        self._rates = signal_rates()
        self.identity = identify_training(images, classes, plan, initial)
        self._step, self._spent_s, self._loss = 0, 0.0, math.nan
        if checkpoint is not None and checkpoint.is_file():
            self._load(checkpoint)

    def run(self, show: Callable[[TrainingProgress], None] = lambda _: None) -> TrainingProgress:
        """Train until the budget is used, saving every minute, and return where that left it."""
        self.network.train()
        saved_at, started = time.monotonic(), time.thread_time()
        spent_before = self._spent_s
        for chosen in self._batches():
            if self.progress().done >= 1:
                break
            self._take_step(chosen)
            now = time.monotonic()
            self._spent_s = spent_before + time.thread_time() - started
            show(self.progress())
            if now - saved_at >= _SAVE_EVERY_S:
                self.save()
                saved_at = now
        self.save()
        return self.progress()

    def progress(self) -> TrainingProgress:
        """Return where training stands."""
        plan = self._plan
        done = self._step / plan.steps if plan.steps else self._spent_s / 60 / plan.minutes
        return TrainingProgress(step=self._step, minutes=self._spent_s / 60, done=min(done, 1.0), loss=self._loss)

    def _batches(self) -> Iterator[Tensor]:
        """Yield indices of batches, every image once per epoch, from where the state stands."""
        size, count = self._plan.batch_size, len(self._pixels)
        per_epoch = max(1, count // size)
        while True:
            epoch, position = divmod(self._step, per_epoch)
            order = torch.randperm(count, generator=self._stream("order", epoch))
            for number in range(position, per_epoch):
                yield order[number * size : (number + 1) * size]

    def _take_step(self, chosen: Tensor) -> None:
        """Descend once on the velocity's squared error (arXiv 2202.00512, equation 10 and appendix D).

        Its weight is signal-to-noise ratio plus one on the error of the image: little noise weighs most, which is where
        texture is learned.
        """
        stream = self._stream("step", self._step)
        images = _shifted(self._pixels[chosen], stream) if self._plan.shift else self._pixels[chosen]
        count = len(images)
        hidden = torch.rand(count, generator=stream) < self._plan.label_drop
        labels = torch.where(hidden, self._classes, self._labels[chosen])
        spread = (torch.arange(count) + torch.rand(count, generator=stream)) / count
        steps = (spread * STEPS).long().clamp(max=STEPS - 1)[torch.randperm(count, generator=stream)]
        noise = torch.randn(images.shape, generator=stream)
        signal = self._rates[steps][:, None, None, None]
        dirt = (1 - signal**2).sqrt()
        noised = (signal * images + dirt * noise).contiguous(memory_format=torch.channels_last)
        loss = functional.mse_loss(self.network(noised, steps, labels), signal * noise - dirt * images)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for group in self._optimizer.param_groups:
            group["lr"] = self._learning_rate()
        self._optimizer.step()
        self._step += 1
        with torch.no_grad():
            decay = min(self._plan.ema_decay, self._step / (self._step + 10))
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - decay)
        found = float(loss.detach())
        self._loss = found if math.isnan(self._loss) else 0.98 * self._loss + 0.02 * found

    def _learning_rate(self) -> float:
        falling = 0.5 * (1 + math.cos(math.pi * self.progress().done))
        return self._plan.learning_rate * min(1.0, (self._step + 1) / self._plan.warm_up) * falling

    def _stream(self, *path: str | int) -> torch.Generator:
        return torch.Generator().manual_seed(derive_seed(self._plan.seed, "generator", *path))

    def save(self) -> None:
        """Write the state to the checkpoint, if there is one to be kept.

        Raises:
            OSError: the volume refused.
        """
        if self._checkpoint is None:
            return
        state = {
            "identity": self.identity,
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self._step,
            "spent_s": self._spent_s,
            "loss": self._loss,
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_durably(self._checkpoint, buffer.getvalue(), mode=0o600)

    def _load(self, path: Path) -> None:
        try:
            state: dict[str, Any] = torch.load(path, weights_only=True)
        except (OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            raise GenerationError(
                f"The training state {path} cannot be read: {error}. Delete it to begin again."
            ) from None
        if state.get("identity") != self.identity:
            raise GenerationError(
                f"Expected {path} to be of a training with these images, classes, settings and initial weights, found "
                "one with others: pass --fresh to begin again, or ask for the same again."
            )
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._spent_s, self._loss = state["step"], state["spent_s"], state["loss"]


def identify_training(images: ImageSet, classes: int, plan: TrainingPlan, initial: DenoisingNetwork | None) -> str:
    """Return a sha256 over everything that a trained network depends on, but the machine and its pace."""
    weights = "" if initial is None else digest(initial.state_dict())
    facts = [images.digest, images.images.shape, classes, asdict(plan), weights]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _shifted(images: Tensor, stream: torch.Generator) -> Tensor:
    rows, columns = torch.randint(-_LARGEST_SHIFT, _LARGEST_SHIFT + 1, (2,), generator=stream).tolist()
    height, width = images.shape[2:]
    padded = functional.pad(images, [_LARGEST_SHIFT] * 4, mode="replicate")
    top, left = _LARGEST_SHIFT + rows, _LARGEST_SHIFT + columns
    return padded[:, :, top : top + height, left : left + width]
