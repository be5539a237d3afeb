"""Which hospitals can be asked now: enrolled, connected, and without an open task."""

from __future__ import annotations

import math

from federation.errors import RunFailedError
from server_app.correspondence import Correspondence
from server_app.registrar import Registrar

_LOOK_EVERY_S = 2.0


class Reach:
    """Looks at the nodes now and then, and remembers since when nobody has been connected."""

    def __init__(self, registrar: Registrar, mail: Correspondence, *, wait_s: float) -> None:
        """Watch the roster of `registrar`; an absence of everybody longer than `wait_s` ends a run."""
        self._registrar = registrar
        self._mail = mail
        self._wait_s = wait_s
        self._next_look = -math.inf
        self._nobody_since = math.inf

    def look(self) -> None:
        """See which nodes are connected and ask new ones who they are, at most every two seconds."""
        now = self._mail.now()
        if now < self._next_look:
            return
        self._registrar.invite()
        self._next_look = now + _LOOK_EVERY_S
        self._nobody_since = math.inf if self._reachable() else min(self._nobody_since, now)

    def idle(self) -> list[str]:
        """Return the reachable hospitals without an open task, or a lost one that is not settled, sorted by id."""
        nodes, names = self._mail.in_flight.busy_nodes, self._mail.spoken_for
        return [name for name, node_id in self._reachable() if node_id not in nodes and name not in names]

    def present(self) -> list[str]:
        """Return the reachable hospitals, sorted by id."""
        return [name for name, _ in self._reachable()]

    def require_somebody(self) -> None:
        """Check that the absence of all hospitals has not lasted too long.

        Raises:
            RunFailedError: nobody has been connected for `run.wait-s`.
        """
        if self._mail.now() - self._nobody_since > self._wait_s:
            raise RunFailedError(
                f"Expected at least 1 of {len(self._registrar.roster)} hospitals to be connected, found none for "
                f"run.wait-s={self._wait_s:g} seconds."
            )

    def _reachable(self) -> list[tuple[str, int]]:
        connected = self._registrar.connected
        members = self._registrar.roster.members.items()
        return [(name, member.node_id) for name, member in members if member.node_id in connected]
