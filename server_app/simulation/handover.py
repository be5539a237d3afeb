"""How a simulated message changes hands: by reference but never shared mutable, or serialized as deployment does it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

HandOver = Callable[[Message], Message]


def by_reference(message: Message) -> Message:
    """Return a message whose records are new but whose array bytes, being immutable, are the same objects."""
    metadata = copy.copy(message.metadata)
    parts = {"error": message.error} if message.has_error() else {"content": _rewrap(message.content)}
    return _with_metadata(**parts, metadata=metadata)


def serialized(message: Message) -> Message:
    """Return the message after a round trip through Flower's own object format, as every deployed message makes it."""
    contents = {key: item.deflate() for key, item in get_all_nested_objects(message).items()}
    copied = inflate_object_from_contents(message.object_id, contents)
    if not isinstance(copied, Message):
        raise TypeError(f"Expected a message after the round trip, found {type(copied)}.")
    copied.metadata.__dict__["_message_id"] = message.metadata.message_id
    return copied


def _with_metadata(**parts: Any) -> Message:
    """Return a message with ready-made metadata, a call that Flower keeps out of its public overloads."""
    made: Message = Message(**parts)
    return made


def _rewrap(content: RecordDict) -> RecordDict:
    return RecordDict({key: _copy_record(record) for key, record in content.items()})


def _copy_record(record: ArrayRecord | ConfigRecord | MetricRecord) -> ArrayRecord | ConfigRecord | MetricRecord:
    if isinstance(record, ArrayRecord):
        return ArrayRecord({key: copy.copy(array) for key, array in record.items()})
    return copy.deepcopy(record)
