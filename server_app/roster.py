"""Which hospitals take part, on which node each can be reached, and whether their data fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import RefusalCode, RefusalError, RunFailedError
from federation.records.answers import Enrolment


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An enrolled hospital and the node that speaks for it."""

    node_id: int
    enrolment: Enrolment


@dataclass(frozen=True, slots=True)
class DataShape:
    """What the data of all hospitals must have in common for one model to fit."""

    task: Task
    classes: int
    channels: int
    height: int
    width: int
    label_digest: str

    @classmethod
    def of(cls, source: Enrolment | DatasetInfo) -> DataShape:
        """Return the shape that `source` describes."""
        return cls(source.task, source.classes, source.channels, source.height, source.width, source.label_digest)

    def as_info(self, name: str) -> DatasetInfo:
        """Return what a model needs to know; the class names are not known to a server without data."""
        names = tuple(f"class {index}" for index in range(self.classes))
        return DatasetInfo(
            name=name, task=self.task, class_names=names, channels=self.channels, height=self.height, width=self.width
        )


class Roster:
    """The enrolled hospitals by id; a hospital that returns on a new node takes its old place."""

    def __init__(self) -> None:
        """Build an empty roster."""
        self._members: dict[str, Member] = {}

    def __len__(self) -> int:
        """Return the number of enrolled hospitals."""
        return len(self._members)

    @property
    def members(self) -> Mapping[str, Member]:
        """The enrolled hospitals by id, in sorted order."""
        return {name: self._members[name] for name in sorted(self._members)}

    @property
    def node_ids(self) -> frozenset[int]:
        """The nodes that speak for an enrolled hospital."""
        return frozenset(member.node_id for member in self._members.values())

    def examples(self) -> dict[str, int]:
        """Return the training images of every enrolled hospital, as it declared them."""
        return {name: member.enrolment.examples for name, member in self.members.items()}

    def enrol(self, enrolment: Enrolment, node_id: int, connected: frozenset[int]) -> None:
        """Add a hospital, or move it to `node_id` when its former node is no longer connected.

        Raises:
            RefusalError: another connected node already speaks for this hospital.
        """
        known = self._members.get(enrolment.hospital_id)
        if known is not None and known.node_id != node_id and known.node_id in connected:
            raise RefusalError(
                RefusalCode.DUPLICATE_HOSPITAL,
                f"Expected one node per hospital, found a second one calling itself {enrolment.hospital_id!r}.",
            )
        self._members[enrolment.hospital_id] = Member(node_id=node_id, enrolment=enrolment)

    def remove(self, hospital_id: str) -> None:
        """Take a hospital off the roster."""
        del self._members[hospital_id]

    def odd_ones(self, expected: DataShape) -> list[str]:
        """Return the hospitals whose data do not have the `expected` shape."""
        return [name for name, member in self.members.items() if DataShape.of(member.enrolment) != expected]


def most_common_shape(enrolments: Iterable[Enrolment]) -> DataShape:
    """Return the data shape that most hospitals share.

    Raises:
        RunFailedError: two shapes are equally common, so that nobody can say which hospitals are the odd ones.
    """
    votes = Counter(DataShape.of(enrolment) for enrolment in enrolments).most_common(2)
    if len(votes) == 2 and votes[0][1] == votes[1][1]:
        raise RunFailedError(
            f"Expected hospitals with one kind of data, found as many with {votes[0][0]} as with {votes[1][0]}. "
            "Name the right ones in run.hospital-ids."
        )
    return votes[0][0]
