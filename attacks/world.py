"""The images of an experiment, and who has which: victims, the hospital's generator, the server, and foreign ones.

No image is two things at once: the server's own are of the splits that hospitals do not train on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aegis_cache.proportions import Labels, replace_evenly
from attacks.threat_model import ServerView
from federation.config import TrainingConfig
from federation.datasets.image_set import Dataset, DatasetInfo, ImageSet
from federation.errors import DataError

_GENERATED_FOR_SERVER = 1024
_CALIBRATION = 512


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class World:
    """Images by who has them.

    Attributes:
        info: classes and shape.
        real: the training split, from which victims are drawn.
        auxiliary: the server's own images, of other people: validation and test split.
        generated: of the hospitals' generator; None: real images of the training split that no victim has stand in for
            a perfect generator.
        labels: how often caches hold each class, see `aegis_cache.proportions`.
        kept: what has been measured of guesses without any update, which every attack is held against.
    """

    info: DatasetInfo
    real: ImageSet
    auxiliary: ImageSet
    generated: ImageSet | None = None
    labels: Labels = "as-train"
    kept: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, dataset: Dataset, *, generated: ImageSet | None = None) -> World:
        """Return the world of `dataset`.

        Raises:
            DataError: there are no auxiliary images.
        """
        parts = [part for part in (dataset.validation, dataset.test) if len(part)]
        if not parts:
            raise DataError("Expected images for the server in the validation or test split, found none.")
        auxiliary = ImageSet(
            images=np.concatenate([part.images for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
        )
        return cls(info=dataset.info, real=dataset.train, auxiliary=auxiliary, generated=generated)

    def view(self, plan: TrainingConfig, stream: np.random.Generator, *, generator: bool = True) -> ServerView:
        """Return all that any server might know, to be narrowed by `threat_model.grant`.

        Of the generator it has images that no cache of `draw_synthetic` holds; for those of a perfect one stands a half
        of the server's own images, which is then no auxiliary.

        Args:
            plan: how hospitals train.
            stream: the attack's.
            generator: whether the server has images of the generator.
        """
        order = np.random.default_rng(0).permutation(len(self.auxiliary))
        half = len(order) // 2 if generator and self.generated is None else 0
        auxiliary = self.auxiliary.take(order[half:])
        generated = None
        if generator:
            generated = self.auxiliary.take(order[:half]) if self.generated is None else self._for_server()
        return ServerView(
            info=self.info,
            stream=stream,
            auxiliary=as_floats(auxiliary),
            auxiliary_labels=auxiliary.labels,
            hyperparameters=plan,
            generated=None if generated is None else as_floats(generated),
        )

    def draw_victims(self, count: int, stream: np.random.Generator) -> NDArray[np.int64]:
        """Return places in `real` of `count` different images.

        Raises:
            DataError: there are not as many.
        """
        if not 1 <= count <= len(self.real):
            raise DataError(f"Expected 1 <= {count} real images to attack <= {len(self.real)} in the training split.")
        return stream.permutation(len(self.real))[:count]

    def draw_synthetic(self, count: int, victims: NDArray[np.int64], stream: np.random.Generator) -> ImageSet:
        """Return M = `count` synthetic images with labels drawn from the victims', or as `labels` wants them.

        None is taken twice. Where a class has too few, others make up for it.

        Args:
            count: M.
            victims: places in `real`; with a perfect generator they are left out.
            stream: draws them.

        Raises:
            DataError: there are not as many.
        """
        if self.generated is None:
            stock, allowed = self.real, np.setdiff1d(np.arange(len(self.real)), victims)
        else:
            stock, allowed = self.generated, self._for_hospital()
        if count > len(allowed):
            raise DataError(f"Expected {count} synthetic images, found {len(allowed)} to draw from.")
        drawn = stream.choice(self.real.labels[victims].reshape(len(victims), -1)[:, 0], size=count)
        wanted = replace_evenly(drawn, self.labels, self.info.classes)
        classes = stock.labels[allowed].reshape(len(allowed), -1)[:, 0]
        taken = [
            stream.permutation(allowed[classes == label])[: int((wanted == label).sum())] for label in np.unique(wanted)
        ]
        chosen = np.concatenate(taken)
        rest = np.setdiff1d(allowed, chosen)
        chosen = np.concatenate([chosen, stream.permutation(rest)[: count - len(chosen)]])
        return stock.take(stream.permutation(chosen))

    @property
    def foreign(self) -> NDArray[np.float32]:
        """Images of other people for baselines without any update: float32 in [0, 1], shape (F, C, H, W)."""
        return as_floats(self.auxiliary)

    def some_real(self) -> NDArray[np.float32]:
        """Return some of the real images, the same each time, on which the threshold is calibrated."""
        return as_floats(self.real.take(np.random.default_rng(0).permutation(len(self.real))[:_CALIBRATION]))

    def _for_server(self) -> ImageSet:
        if self.generated is None:
            raise DataError("Expected a generator, found none.")
        order = np.random.default_rng(0).permutation(len(self.generated))
        return self.generated.take(order[: min(_GENERATED_FOR_SERVER, len(order) // 4)])

    def _for_hospital(self) -> NDArray[np.int64]:
        if self.generated is None:
            raise DataError("Expected a generator, found none.")
        order = np.random.default_rng(0).permutation(len(self.generated))
        return order[min(_GENERATED_FOR_SERVER, len(order) // 4) :]


def as_floats(images: ImageSet) -> NDArray[np.float32]:
    """Return the images as float32 in [0, 1], shape (N, C, H, W)."""
    scaled: NDArray[np.float32] = images.images.astype(np.float32) / np.float32(255)
    return scaled
