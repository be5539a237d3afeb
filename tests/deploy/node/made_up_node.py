"""A hospital's kit and policy in a folder, for tests of what is started with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w

from deploy.node.settings import NodeSettings
from deploy.trust.kit import Kit

PORT = 9094


def write_kit(folder: Path, **changes: Any) -> Path:
    """Write the kit of hospital "north" into `folder`, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = {"consortium": "lungs", "hospital_id": "north", "host": "federation.example", "port": 8443}
    Kit(**{**usual, "public_key": "ecdsa-sha2-nistp384 AAAA", **changes}).write(folder)
    return folder


def write_policy(folder: Path, *, hospital_id: str = "north") -> Path:
    """Write the policy of a hospital into `folder`, with its volumes below it, and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    policy = {
        "hospital-id": hospital_id,
        "state-dir": str(folder / "state"),
        "keys-dir": str(folder / "keys"),
        "data": {"id": "scans", "name": "folder", "root": "/data"},
    }
    path = folder / "site.toml"
    path.write_text(tomli_w.dumps(policy), encoding="utf-8")
    return path


def make_settings(folder: Path, **changes: Any) -> NodeSettings:
    """Return the settings of hospital "north", whose files lie below `folder`; `changes` are the kit's."""
    return NodeSettings.read(
        write_kit(folder / "kit", **changes), write_policy(folder), scratch=folder / "scratch", port=PORT
    )
