"""How a test plays the server towards one hospital: contexts, messages, and what of a reply would cross the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity

from federation.config import Configuration, flatten
from federation.datasets.image_set import ImageSet

NODE_ID = 2


def flat_configuration(folder: Path, **settings: Any) -> dict[str, Any]:
    """Return Flower's flat dictionary for a small phantom run below `folder`.

    Keyword `data__site_shift=0.1` sets `data.site-shift`.
    """
    flat: dict[str, Any] = flatten(Configuration())
    flat |= {"run.root": str(folder), "model.name": "mlp", "model.hidden-units": 4, "data.phantom-examples": 120}
    flat |= {"data.partition": "iid", "training.device": "cpu"}
    return flat | {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}


def make_context(flat: dict[str, Any], **node_config: Any) -> Context:
    """Return the context of a node; keyword `hospital_id="a"` sets `hospital-id`."""
    node = {key.replace("_", "-"): value for key, value in node_config.items()}
    return Context(run_id=1, node_id=NODE_ID, node_config=node, state=RecordDict(), run_config=flat)


def make_message(content: RecordDict, kind: str = "train") -> Message:
    """Return an instruction of the server."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    message = Message(content, dst_node_id=NODE_ID, message_type=kind)
    message.metadata.__dict__["_message_id"] = "message-1"
    return message


def wire_bytes(reply: Message) -> bytes:
    """Return every byte of `reply` that leaves the hospital."""
    return b"".join(item.deflate() for item in get_all_nested_objects(reply).values())


def make_images(count: int, *, classes: int = 3, size: int = 6, seed: int = 0) -> ImageSet:
    """Return random images with class indices."""
    stream = np.random.default_rng(seed)
    images = stream.integers(0, 256, (count, 1, size, size), dtype=np.uint8)
    return ImageSet(images=images, labels=stream.integers(0, classes, count))
