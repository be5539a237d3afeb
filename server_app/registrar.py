"""Enrolment: asks every new node who it is, waits a bounded time, and says why when hospitals do not come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress

from federation.config import RunConfig
from federation.errors import RefusalCode, RefusalError, RunFailedError
from federation.records.answers import Enrolment
from federation.records.tasks import encode_query
from server_app.correspondence import Content, Correspondence, expect
from server_app.dispatch import Dispatch
from server_app.roster import DataShape, Member, Roster

_SETTLED_AFTER_S = 5.0
_TICK_S = 0.5
_ASK_AGAIN_AFTER_S = 30.0
_LONGEST_PATIENCE_S = 600.0
# A hospital that restarts may appear on a new node before Flower notices that its old one is gone; its door then opens.
# One that speaks for another than its key stands for may have its site.toml corrected.
_MAY_PASS = (
    RefusalCode.NODE_LOST,
    RefusalCode.SITE_ERROR,
    RefusalCode.DUPLICATE_HOSPITAL,
    RefusalCode.WRONG_KEY,
)


class Registrar:
    """Keeps the roster in step with the nodes that are connected.

    Who had enrolled before the server was restarted, and is still on the same node, need not say so again: Flower gives
    the number of a node to no other.

    Attributes:
        roster: the enrolled hospitals.
        connected: the nodes seen at the last look.
    """

    def __init__(self, settings: RunConfig, mail: Correspondence) -> None:
        """Build a registrar that fills an empty roster through `mail`."""
        self._settings = settings
        self._mail = mail
        self.roster = Roster()
        self._shape: DataShape | None = None
        self._turned_away: dict[int, float] = {}
        self._patience_s: dict[int, float] = {}
        self._second_nodes: dict[int, str] = {}
        self._known: dict[str, Member] = {}
        self._resumes = False
        self._last_change = mail.now()
        self.connected: frozenset[int] = frozenset()

    def gather(self, known: Mapping[str, Member] | None = None) -> None:
        """Wait until the expected hospitals have enrolled, or `run.wait-s` has passed.

        Args:
            known: who had enrolled before the server was restarted, by hospital id.

        Raises:
            RunFailedError: fewer than `run.min-hospitals` came, with what was expected and found.
        """
        end = self._mail.now() + self._settings.wait_s
        self._known, self._resumes = dict(known or {}), bool(known)
        if self._resumes:
            self.invite()
        while not self._is_complete() and self._mail.now() < end:
            self.invite()
            if (received := self._mail.receive(_TICK_S)) is not None:
                self.settle(*received)
        if len(self.roster) < self._settings.min_hospitals:
            raise RunFailedError(self._too_few())

    def require_shape(self, shape: DataShape) -> None:
        """Keep only hospitals whose data have `shape`, now and later."""
        self._shape = shape
        for name in self.roster.odd_ones(shape):
            self._turn_away(name, shape)
        if not len(self.roster):
            raise RunFailedError(f"Expected hospitals with data of {shape}, found none.")

    def invite(self) -> None:
        """Look which nodes are connected and ask the new ones who they are."""
        self.connected = self._mail.node_ids()
        now = self._mail.now()
        self._open_doors()
        self._seat_the_known()
        closed = {node_id for node_id, until in self._turned_away.items() if now < until}
        known = self.roster.node_ids | self._mail.in_flight.busy_nodes | closed
        for node_id in sorted(self.connected - known):
            self._mail.ask(encode_query(self._settings.name), node_id=node_id, kind="query")

    def settle(self, dispatch: Dispatch, answer: Content | RefusalError) -> None:
        """Enrol the hospital that answered a query, or refuse it: for good, or for a while when it may mend itself."""
        try:
            self._admit(expect(Enrolment, answer), dispatch.node_id)
        except RefusalError as error:
            self._turn_node_away(dispatch.node_id, mendable=error.code in _MAY_PASS)
            if error.code is RefusalCode.DUPLICATE_HOSPITAL and isinstance(answer, Enrolment):
                self._second_nodes[dispatch.node_id] = answer.hospital_id
            self._mail.refuse(error, None)

    def _open_doors(self) -> None:
        """Let second nodes of a hospital in as soon as its first one is no longer connected."""
        members = self.roster.members
        for node_id, name in list(self._second_nodes.items()):
            if name not in members or members[name].node_id not in self.connected:
                del self._second_nodes[node_id]
                self._turned_away.pop(node_id, None)
                self._patience_s.pop(node_id, None)

    def _seat_the_known(self) -> None:
        """Take back who is still on the node on which it enrolled; anybody else has to enrol again."""
        for name, member in list(self._known.items()):
            if name in self.roster.members:
                del self._known[name]
            elif member.node_id in self.connected:
                del self._known[name]
                with suppress(RefusalError):
                    self._admit(member.enrolment, member.node_id)

    def _turn_node_away(self, node_id: int, *, mendable: bool) -> None:
        """Close the door to a node for good, or for a while that doubles with every failure."""
        longer_s = min(2 * self._patience_s.get(node_id, _ASK_AGAIN_AFTER_S / 2), _LONGEST_PATIENCE_S)
        wait_s = longer_s if mendable else math.inf
        self._patience_s[node_id] = wait_s
        self._turned_away[node_id] = self._mail.now() + wait_s

    def _admit(self, enrolment: Enrolment, node_id: int) -> None:
        if enrolment.examples < 1:
            raise RefusalError(RefusalCode.NO_EXAMPLES, f"Expected at least 1 image, found {enrolment.examples}.")
        configured = self._settings.configured_ids
        if configured and enrolment.hospital_id not in configured:
            raise RefusalError(
                RefusalCode.WRONG_HOSPITAL, f"Expected one of {configured}, found {enrolment.hospital_id!r}."
            )
        self._require_key(enrolment.hospital_id, node_id)
        if self._shape is not None and DataShape.of(enrolment) != self._shape:
            raise RefusalError(
                RefusalCode.DATA_MISMATCH, f"Expected data of {self._shape}, found {DataShape.of(enrolment)}."
            )
        self.roster.enrol(enrolment, node_id, self.connected)
        self._mail.leave(enrolment.hospital_id, node_id)
        self._mail.progress.of(enrolment.hospital_id).examples = enrolment.examples
        self._mail.progress.roster[enrolment.hospital_id] = self.roster.members[enrolment.hospital_id]
        self._last_change = self._mail.now()
        self._mail.record("enrol", hospital=enrolment.hospital_id, examples=enrolment.examples)

    def _require_key(self, hospital_id: str, node_id: int) -> None:
        """Check that the node's key is registered for the hospital it speaks for, where any key is registered for one.

        Who is not connected any more is nobody: otherwise a node could answer, leave, and escape the check.
        """
        names = self._mail.names()
        if node_id not in names:
            raise RefusalError(RefusalCode.NODE_LOST, "Expected the node that answered to be connected, found it gone.")
        if any(names.values()) and names[node_id] != hospital_id:
            raise RefusalError(
                RefusalCode.WRONG_KEY,
                f"Expected {names[node_id]!r}, for which the key of this node is registered, found one that calls "
                f"itself {hospital_id!r}.",
            )

    def _turn_away(self, name: str, shape: DataShape) -> None:
        member = self.roster.members[name]
        found = DataShape.of(member.enrolment)
        self.roster.remove(name)
        self._mail.progress.roster.pop(name, None)
        self._turned_away[member.node_id] = math.inf
        self._mail.refuse(RefusalError(RefusalCode.DATA_MISMATCH, f"Expected data of {shape}, found {found}."), name)

    def _is_complete(self) -> bool:
        expected = max(self._settings.hospitals, len(self._settings.configured_ids))
        if expected:
            return len(self.roster) >= expected
        if len(self.roster) < self._settings.min_hospitals:
            return False
        if self._resumes and not self._known:
            return True
        quiet_s = self._mail.now() - self._last_change
        return not self._mail.in_flight and quiet_s >= _SETTLED_AFTER_S

    def _too_few(self) -> str:
        settings = self._settings
        return (
            f"Expected at least run.min-hospitals={settings.min_hospitals} hospitals within run.wait-s="
            f"{settings.wait_s:g}, found {len(self.roster)} enrolled on {len(self.connected)} connected nodes "
            f"({len(self._turned_away)} refused: {self._mail.progress.refused}). Start more hospitals, look into the "
            "log of a hospital that answered with an error, or lower run.min-hospitals."
        )
