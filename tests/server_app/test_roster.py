"""Which hospitals take part: one node each, in sorted order, with data that fit together."""

from __future__ import annotations

from typing import Any

import pytest

from federation.datasets.image_set import DatasetInfo, Task
from federation.errors import RefusalCode, RefusalError, RunFailedError
from federation.records.answers import Enrolment
from server_app.roster import DataShape, Roster, most_common_shape

INFO = DatasetInfo(name="x", task=Task.MULTICLASS, class_names=("a", "b", "c"), channels=3, height=28, width=30)


def enrolment(name: str, examples: int = 10, **changes: Any) -> Enrolment:
    fields: dict[str, Any] = {
        "task": INFO.task, "classes": 3, "channels": 3, "height": 28, "width": 30, "label_digest": INFO.label_digest,
    }  # fmt: skip
    return Enrolment(hospital_id=name, examples=examples, **(fields | changes))


def roster_of(*names: str) -> Roster:
    roster = Roster()
    for node_id, name in enumerate(names, start=2):
        roster.enrol(enrolment(name), node_id, frozenset(range(2, 10)))
    return roster


def test_members_are_sorted_by_id_whatever_the_order_of_enrolment() -> None:
    roster = roster_of("south", "east", "north")

    assert list(roster.members) == ["east", "north", "south"]
    assert len(roster) == 3
    assert roster.node_ids == {2, 3, 4}
    assert roster.members["north"].node_id == 4


def test_second_connected_node_of_one_name_is_refused_and_changes_nothing() -> None:
    roster = roster_of("north")

    with pytest.raises(RefusalError, match="'north'") as caught:
        roster.enrol(enrolment("north", examples=99), 7, frozenset({2, 7}))

    assert caught.value.code is RefusalCode.DUPLICATE_HOSPITAL
    assert (roster.members["north"].node_id, roster.members["north"].enrolment.examples) == (2, 10)


def test_hospital_that_returns_on_a_new_node_takes_its_old_place() -> None:
    roster = roster_of("north")

    roster.enrol(enrolment("north", examples=12), 7, frozenset({7}))

    assert (roster.members["north"].node_id, roster.members["north"].enrolment.examples) == (7, 12)
    assert roster.node_ids == {7}


def test_hospital_may_introduce_itself_again_from_its_own_node() -> None:
    roster = roster_of("north")

    roster.enrol(enrolment("north", examples=12), 2, frozenset({2}))

    assert roster.members["north"].enrolment.examples == 12


def test_removed_hospital_is_gone() -> None:
    roster = roster_of("north", "south")

    roster.remove("north")

    assert list(roster.members) == ["south"]


@pytest.mark.parametrize(
    "change",
    [{"task": Task.MULTILABEL}, {"classes": 4}, {"channels": 1}, {"height": 27}, {"width": 28}, {"label_digest": "x"}],
)
def test_hospital_whose_data_differ_in_anything_is_odd(change: dict[str, Any]) -> None:
    roster = roster_of("north")
    roster.enrol(enrolment("south", **change), 9, frozenset())

    assert roster.odd_ones(DataShape.of(INFO)) == ["south"]
    assert roster.odd_ones(DataShape.of(enrolment("x", **change))) == ["north"]


def test_number_of_images_does_not_make_a_hospital_odd() -> None:
    roster = Roster()
    roster.enrol(enrolment("north", examples=1), 2, frozenset())

    assert roster.odd_ones(DataShape.of(INFO)) == []


def test_shape_of_data_is_the_same_from_an_enrolment_and_from_the_data() -> None:
    assert DataShape.of(enrolment("north")) == DataShape.of(INFO)


def test_shape_tells_a_model_all_it_needs() -> None:
    info = DataShape.of(INFO).as_info("toy")

    assert (info.task, info.classes, info.channels, info.height, info.width) == (Task.MULTICLASS, 3, 3, 28, 30)
    assert info.name == "toy"


def test_most_hospitals_decide_the_shape_whatever_they_declare() -> None:
    grey, colour = enrolment("a", examples=10**6, channels=1), enrolment("b", examples=5)

    assert most_common_shape([grey, colour, colour]).channels == 3


def test_shapes_that_are_equally_common_stop_the_run() -> None:
    grey, colour = enrolment("a", examples=10**6, channels=1), enrolment("b", examples=5)

    with pytest.raises(RunFailedError, match=r"channels=1.*channels=3|channels=3.*channels=1"):
        most_common_shape([grey, colour])
