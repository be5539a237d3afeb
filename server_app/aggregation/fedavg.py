"""Federated averaging: sample hospitals, wait for all or the deadline, average (arXiv 1602.05629, algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

from federation.config import AggregationConfig
from federation.randomness import numpy_stream
from server_app.aggregation.rule import NEVER, Situation, Update


class FedAvg:
    """The synchronous rule: one round is one sample of hospitals and at most one new version."""

    def __init__(self, settings: AggregationConfig, *, seed: int, first_round: int) -> None:
        """Build the rule.

        Args:
            settings: sample size and deadline.
            seed: of the sampling; a round's sample depends on the seed and the number of the round only.
            first_round: number of the first round, so that a resumed run samples as an unbroken one would.
        """
        self._settings = settings
        self._seed = seed
        self._round = first_round
        self._open = False
        self._outstanding: set[str] = set()
        self._missed: set[str] = set()
        self._late: set[str] = set()
        self._collected: dict[str, Update] = {}
        self._later: list[Update] = []
        self._deadline = NEVER

    def choose(self, situation: Situation) -> list[str]:
        """Return the sample of a new round if none is open and a hospital is idle whose update does not wait already.

        Where there is none, updates that wait are a round by themselves: if they are enough, or nobody is at work for
        whom it is worth waiting.
        """
        given = [name for name in situation.idle if name not in self._collected]
        enough = bool(situation.idle) and len(self._collected) >= self._settings.min_updates
        alone = bool(self._collected) and (enough or situation.at_work <= len(situation.overdue))
        if self._open or not (given or alone):
            return []
        chosen = sample_hospitals(given, self._settings, seed=self._seed, round_number=self._round) if given else []
        self._open = True
        self._outstanding = set(chosen)
        self._deadline = situation.now + self._settings.deadline_s if self._settings.deadline_s else NEVER
        return chosen

    def expects(self, hospital_id: str) -> bool:
        """Return whether `hospital_id` was sampled in the open round, or works on its model since an earlier one."""
        return hospital_id in self._outstanding or hospital_id in self._late

    def completes(self, hospital_id: str) -> bool:
        """Return whether the open round consists of `hospital_id` only, and that is enough."""
        return self._outstanding == {hospital_id} and not self._collected and self._settings.min_updates == 1

    def offer(self, update: Update) -> bool:
        """Accept `update` if its hospital is expected and has not answered yet."""
        if not self.expects(update.hospital_id):
            return False
        self._outstanding.discard(update.hospital_id)
        self._late.discard(update.hospital_id)
        self._collected[update.hospital_id] = update
        return True

    def restore(self, update: Update) -> None:
        """Count `update` for the next round, for which its hospital is then not asked again.

        As its own round made no version, whoever has not answered in it works on the current one, and is not too late:
        nobody waits for it, but its update joins those that do. Several updates of one hospital, from rounds whose
        versions were lost, count for one round after another.
        """
        self._late |= self._missed
        self._keep(update)

    def _keep(self, update: Update) -> None:
        if update.hospital_id in self._collected:
            self._later.append(update)
        else:
            self._collected[update.hospital_id] = update

    def waiting(self) -> frozenset[str]:
        """Return the hospitals whose updates wait."""
        return frozenset(self._collected)

    def lose(self, hospital_id: str) -> None:
        """Stop waiting for `hospital_id`."""
        self._outstanding.discard(hospital_id)
        self._late.discard(hospital_id)

    def resend(self, hospital_id: str, version: int) -> None:
        """Do nothing: whoever works across the end of a round is late."""

    def close(self) -> None:
        """Expect nobody any more."""
        self._open = False
        self._outstanding, self._late = set(), set()

    def is_due(self, now: float) -> bool:
        """Return whether all sampled hospitals have answered or the deadline has passed."""
        return self._open and (not self._outstanding or now >= self._deadline)

    def next_deadline(self) -> float:
        """Return the end of the open round."""
        return self._deadline if self._open else NEVER

    def take(self) -> list[Update]:
        """Return the round's updates sorted by hospital id and close the round."""
        updates = [self._collected[name] for name in sorted(self._collected)]
        self._open, self._deadline = False, NEVER
        self._missed, self._late = self._outstanding | self._late, set()
        self._outstanding, self._collected = set(), {}
        later, self._later = self._later, []
        for update in later:
            self._keep(update)
        self._round += 1
        return updates


def sample_hospitals(
    hospitals: Sequence[str], settings: AggregationConfig, *, seed: int, round_number: int
) -> list[str]:
    """Return a uniform sample without replacement, sorted, of `sample-count` or else `sample-fraction` hospitals."""
    wanted = settings.sample_count or max(1, round(settings.sample_fraction * len(hospitals)))
    if wanted >= len(hospitals):
        return sorted(hospitals)
    stream = numpy_stream(seed, "sampling", round_number)
    return sorted(stream.choice(sorted(hospitals), size=wanted, replace=False).tolist())
