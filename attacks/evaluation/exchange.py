"""One exchange: what hospitals are sent and what they answer, round by round, and what the attack reads of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from attacks.attack import Attack, Campaign
from attacks.defences.defence import stack
from attacks.defences.secure_aggregation import sum_updates
from attacks.evaluation.trial import Trial
from attacks.metrics.outcome import CandidateTruth
from attacks.victim import GradientAnswers, Hospital, publish_cache, send_delta
from attacks.world import World, as_floats
from client_app.masking.synthetic import SyntheticImages
from federation.datasets.image_set import ImageSet
from federation.errors import DataError
from federation.parameters import Parameters
from federation.randomness import derive_seed, numpy_stream

NOWHERE = -1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Exchange:
    """What became of the real images of one batch.

    Attributes:
        real: float32 in [0, 1], shape (N, C, H, W), of all hospitals and rounds.
        victims: int64, shape (N,): where these stand in the training split.
        synthetic: float32 in [0, 1], shape (M, C, H, W), of the first round; empty without masking.
        candidates: float64, shape (K, C, H, W).
        places: int64, shape (N, R): the candidate of each image by round, -1 for none or not taking part.
        truth: who is in which candidate, in a single round.
        alone: bool, shape (N,): no other image is in its candidate; all False over several rounds.
    """

    real: NDArray[np.float32]
    victims: NDArray[np.int64]
    synthetic: NDArray[np.float32]
    candidates: NDArray[np.float64]
    places: NDArray[np.int64]
    truth: CandidateTruth
    alone: NDArray[np.bool_]


class Stage:
    """Everything of one seed: planted networks, the hospitals' cache, and who is attacked in which batch."""

    def __init__(
        self, attack: Attack, campaign: Campaign, world: World, trial: Trial, *, seed: int, folder: Path
    ) -> None:
        """Plant `campaign` at all hospitals of `trial`; the cache is published below `folder`.

        Raises:
            DataError: there are too few images.
        """
        self._campaign, self._world, self._trial, self._seed = campaign, world, trial, seed
        self._rounds, self._sees = attack.needs.rounds, attack.needs.sees
        if self._sees == "update" and trial.clients > 1:
            raise DataError(f"Expected an attack on the sum of {trial.clients} hospitals, found {attack.name}.")
        if trial.refresh == "augment" and trial.mode != "gradient":
            raise DataError(
                "Expected mode='gradient' with refresh='augment': local training changes real images, too, so what is "
                "read could not be compared with them."
            )
        if trial.refresh == "augment" and self._rounds == 1:
            raise DataError("Expected refresh='none' or 'subset' in a single round, where nothing is used again.")
        self._plants = [
            [campaign.craft(client, number) for number in range(self._rounds)] for client in range(trial.clients)
        ]
        self._answers = [
            [GradientAnswers(plant.network, world.info, trial.protection) for plant in row] for row in self._plants
        ]
        self._victims = self._draw_victims()
        size = trial.synthetic * (2 if trial.refresh == "subset" else 1)
        self._cache = None
        if size:
            drawn = world.draw_synthetic(size, self._victims, numpy_stream(seed, "synthetic"))
            self._cache = publish_cache(folder / "cache", drawn, world.info)

    @property
    def _count(self) -> int:
        """Real images of a batch."""
        return self._trial.clients * self._trial.batch * (self._rounds if self._trial.renewed else 1)

    def _draw_victims(self) -> NDArray[np.int64]:
        """Return the real images of all batches, one batch after the other, as a defence chooses them where it does."""
        stream = numpy_stream(self._seed, "victims")
        total = self._trial.batches * self._count
        defence = stack(self._trial.protection.baselines)
        left, chosen = self._world.draw_victims(len(self._world.real), stream), []
        if defence.choose(self._world.real.labels, self._count, stream) is None:
            return self._world.draw_victims(total, numpy_stream(self._seed, "victims"))
        for _ in range(self._trial.batches):
            picked = defence.choose(self._world.real.labels[left], self._count, stream)
            own = left[picked if picked is not None else np.arange(self._count)]
            chosen.append(own)
            left = np.setdiff1d(left, own)
        return np.concatenate(chosen)

    def play(self, batch: int) -> Exchange:
        """Return what the attack reads of batch number `batch`."""
        victims = self._victims[batch * self._count : (batch + 1) * self._count]
        own = self._world.real.take(victims)
        sent = [self._answer(own, batch, number) for number in range(self._rounds)]
        candidates = self._campaign.read(sent)
        places = np.stack([self._place(own, number) for number in range(self._rounds)], axis=1)
        first = self._synthetic(batch, 0)
        synthetic = np.empty((0, *own.images.shape[1:]), dtype=np.float32)
        if first is not None:
            synthetic = first.take(np.arange(len(first)), torch.device("cpu"))[0].numpy()
        truth, alone = CandidateTruth(), np.zeros(len(own), dtype=bool)
        if self._rounds == 1:
            truth, alone = self._occupants(places[:, 0], synthetic, len(candidates))
        return Exchange(
            real=as_floats(own),
            victims=victims,
            synthetic=synthetic,
            candidates=candidates,
            places=places,
            truth=truth,
            alone=alone,
        )

    def _answer(self, own: ImageSet, batch: int, number: int) -> Parameters:
        """Return what the server sees in a round: one hospital's answer, or the sum of all."""
        sent = []
        for client, row in enumerate(self._plants):
            hospital = Hospital(
                images=own.take(self._of(client, number)),
                info=self._world.info,
                plan=self._trial.plan,
                protection=self._trial.protection,
                synthetic=self._synthetic(batch, number),
            )
            seed = derive_seed(self._seed, "answer", str(batch), str(number), str(client))
            if self._trial.mode == "gradient":
                sent.append(self._answers[client][number].send(hospital, seed=seed))
            else:
                sent.append(send_delta(row[number].network, hospital, seed=seed))
        return sum_updates(sent)

    def _of(self, client: int, number: int) -> NDArray[np.int64]:
        """Return which of a batch's images a hospital has in a round."""
        size, rounds = self._trial.batch, self._rounds if self._trial.renewed else 1
        start = (client * rounds + (number if self._trial.renewed else 0)) * size
        return np.arange(start, start + size)

    def _synthetic(self, batch: int, number: int) -> SyntheticImages | None:
        if self._cache is None:
            return None
        trial, chosen = self._trial, np.arange(len(self._cache))
        if trial.refresh == "subset":
            stream = numpy_stream(self._seed, "subset", str(batch), str(number))
            chosen = np.sort(stream.permutation(len(self._cache))[: trial.synthetic])
        return SyntheticImages(cache=self._cache, chosen=chosen, varied=trial.refresh == "augment")

    def _place(self, own: ImageSet, number: int) -> NDArray[np.int64]:
        """Return the candidate of each image in a round: -1 for those that took no part."""
        places = np.full(len(own), NOWHERE, dtype=np.int64)
        for client, row in enumerate(self._plants):
            mine = self._of(client, number)
            places[mine] = row[number].place(torch.from_numpy(as_floats(own.take(mine))))
        return places

    def _occupants(
        self, homes: NDArray[np.int64], synthetic: NDArray[np.float32], candidates: int
    ) -> tuple[CandidateTruth, NDArray[np.bool_]]:
        """Return which candidates hold exactly one image, and which a real one, and which real images are alone."""
        real = _count(homes, candidates)
        others = np.zeros(candidates, dtype=np.int64)
        if len(synthetic):
            for row in self._plants:
                others += _count(row[0].place(torch.from_numpy(synthetic)), candidates)
        isolated = real + others == 1
        truth = CandidateTruth(isolated=isolated, shows_real=isolated & (real == 1))
        return truth, (homes != NOWHERE) & isolated[homes]


def _count(places: NDArray[np.int64], candidates: int) -> NDArray[np.int64]:
    return np.bincount(places[places != NOWHERE], minlength=candidates)
