"""How a test plays the server towards one hospital: contexts, messages, and what of a reply would cross the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from flwr.app import Context, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity

from federation.config import Configuration, flatten
from federation.datasets.image_set import ImageSet

NODE_ID = 2
MECHANISMS = ["none", "dp-sgd", "update-gaussian"]


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


def deployed_node(folder: Path, **tables: Any) -> dict[str, Any]:
    """Write `site.toml` of hospital "north" into `folder`, and return its node configuration for `make_context`.

    The policy allows everything unless `tables` say otherwise; `privacy={"max-epsilon": 1.0}` changes that key of
    that table, and `hospital_id="south"` a key outside of tables. Its state, keys and data lie below `folder`.
    """
    policy: dict[str, Any] = {
        "hospital-id": "north",
        "state-dir": str(folder / "state"),
        "keys-dir": str(folder / "keys"),
        "data": {"id": "scans", "name": "npz", "root": str(folder / "own.npz")},
        "privacy": {"mechanisms": MECHANISMS, "max-epsilon": 100.0, "max-delta": 0.1},
        "models": {"allowed": ["cnn", "mlp", "resnet18"]},
        "evaluation": {"metrics": "exact"},
    }
    for name, value in tables.items():
        known = policy.get(key := name.replace("_", "-"), {})
        policy[key] = known | value if isinstance(value, dict) else value
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "site.toml"
    path.write_text(tomli_w.dumps(policy), encoding="utf-8")
    return {"site_policy": str(path)}


def save_own_images(
    folder: Path,
    *,
    count: int = 60,
    given_split: bool = False,
    class_names: str = "class",
    seed: int = 0,
    white: int = 0,
) -> Path:
    """Write `count` random images of three classes to `folder / "own.npz"`, as a pool or with a split of their own.

    The first `white` images of each split are white instead, and nothing else differs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stream = np.random.default_rng(seed)
    sizes = {"train": count, "val": count // 3, "test": count // 3} if given_split else {"": count}
    arrays: dict[str, Any] = {"class_names": np.array([f"{class_names}-{index}" for index in range(3)])}
    for split, size in sizes.items():
        prefix = f"{split}_" if split else ""
        arrays[f"{prefix}images"] = stream.integers(0, 256, (size, 8, 8), dtype=np.uint8)
        arrays[f"{prefix}images"][:white] = 255
        arrays[f"{prefix}labels"] = stream.permutation(np.arange(size) % 3)
    np.savez(folder / "own.npz", **arrays)
    return folder / "own.npz"


def make_message(content: RecordDict, kind: str = "train", *, message_id: str = "message-1") -> Message:
    """Return an instruction of the server."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    message = Message(content, dst_node_id=NODE_ID, message_type=kind)
    message.metadata.__dict__["_message_id"] = message_id
    return message


def wire_bytes(reply: Message) -> bytes:
    """Return every byte of `reply` that leaves the hospital."""
    return b"".join(item.deflate() for item in get_all_nested_objects(reply).values())


def make_images(count: int, *, classes: int = 3, size: int = 6, seed: int = 0) -> ImageSet:
    """Return random images with class indices."""
    stream = np.random.default_rng(seed)
    images = stream.integers(0, 256, (count, 1, size, size), dtype=np.uint8)
    return ImageSet(images=images, labels=stream.integers(0, classes, count))
