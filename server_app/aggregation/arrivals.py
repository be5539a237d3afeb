"""What all asynchronous rules share: hospitals are asked again as they become free, and nobody waits for the slowest.

A hospital works on each version once at most. One that failed rests until the next version, so that a broken hospital
neither spins nor holds anybody up. Read next: `fedasync`, `buffered`, `semi_synchronous`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from federation.config import AggregationConfig
from federation.randomness import numpy_stream
from server_app.aggregation.rule import NEVER, Situation, Update


class Arrivals:
    """Chooses free hospitals and collects updates in order of arrival; when they are due is left to a subclass."""

    def __init__(self, settings: AggregationConfig, *, seed: int) -> None:
        """Build the rule.

        Args:
            settings: how many may work at one time, and how far one may be ahead.
            seed: of the draw among free hospitals where not all may work.
        """
        self._settings = settings
        self._seed = seed
        self._asked: dict[str, int] = {}
        self._outstanding: set[str] = set()
        self._resting: set[str] = set()
        self._collected: list[Update] = []
        self._starved = False

    def choose(self, situation: Situation) -> list[str]:
        """Return the free hospitals that have not worked on this version yet, as many as may work at one time.

        Who is too far ahead of the others waits for them, unless without it there would be no next version. Places that
        only laggards hold are given to others.
        """
        free = [name for name in situation.idle if self._may_work(name, situation)]
        eligible = [name for name in free if not self._is_too_far_ahead(name, situation)]
        if not (eligible or self._is_anybody_awaited(situation) or self._are_enough()):
            eligible = free
        chosen = self._draw(eligible, situation)
        self._asked |= dict.fromkeys(chosen, situation.version)
        self._outstanding |= set(chosen)
        self._starved = bool(self._collected or self._resting) and not self._is_anybody_awaited(situation)
        return chosen

    def expects(self, hospital_id: str) -> bool:
        """Return whether `hospital_id` has been asked and has not answered."""
        return hospital_id in self._outstanding

    def completes(self, hospital_id: str) -> bool:
        """Return False: nothing says when updates are taken."""
        del hospital_id
        return False

    def offer(self, update: Update) -> bool:
        """Accept `update` if its hospital was asked, however old it is."""
        if update.hospital_id not in self._outstanding:
            return False
        self._outstanding.discard(update.hospital_id)
        self._collected.append(update)
        return True

    def restore(self, update: Update) -> None:
        """Put `update` back to where it waited."""
        self._asked[update.hospital_id] = update.base_version
        self._collected.append(update)

    def waiting(self) -> frozenset[str]:
        """Return the hospitals whose updates wait."""
        return frozenset(update.hospital_id for update in self._collected)

    def lose(self, hospital_id: str) -> None:
        """Stop waiting for `hospital_id`, and let it rest until the next version."""
        self._outstanding.discard(hospital_id)
        self._resting.add(hospital_id)

    def resend(self, hospital_id: str, version: int) -> None:
        """Expect the update of `hospital_id`, which has been at work on `version`."""
        self._asked[hospital_id] = version
        self._outstanding.add(hospital_id)

    def close(self) -> None:
        """Expect nobody any more."""
        self._outstanding.clear()

    def is_due(self, now: float) -> bool:
        """Return whether nobody is at work or can be asked before the next version."""
        del now
        return self._starved

    def next_deadline(self) -> float:
        """Return `NEVER`."""
        return NEVER

    def take(self) -> list[Update]:
        """Return the collected updates in order of arrival and start over, also if they are too few for a version."""
        updates, self._collected = self._collected, []
        self._asked.clear()
        self._resting.clear()
        self._starved = False
        return updates

    def _is_anybody_awaited(self, situation: Situation) -> bool:
        """Return whether somebody is at work, however long it takes."""
        return bool(self._outstanding) or situation.at_work > 0

    def _are_enough(self) -> bool:
        return len(self._collected) >= self._settings.min_updates

    def _may_work(self, name: str, situation: Situation) -> bool:
        """Return whether `name` neither rests nor has worked on this version."""
        return name not in self._resting and self._asked.get(name) != situation.version

    def _is_too_far_ahead(self, name: str, situation: Situation) -> bool:
        lead, given = self._settings.max_lead, situation.given
        return lead > 0 and given.get(name, 0) - statistics.median(given.values()) >= lead

    def _draw(self, eligible: Sequence[str], situation: Situation) -> list[str]:
        settings, there = self._settings, max(len(situation.given), 1)
        most = settings.sample_count or max(1, round(settings.sample_fraction * there))
        at_work = 0 if self._outstanding <= situation.overdue else len(self._outstanding)
        room = max(0, most - at_work)
        if len(eligible) <= room:
            return list(eligible)
        stream = numpy_stream(self._seed, "sampling", situation.tasks)
        return sorted(stream.choice(list(eligible), size=room, replace=False).tolist())
