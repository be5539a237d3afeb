"""The stop switch: a file on the hospital's own volume that keeps it from taking part for as long as it lies there."""

from __future__ import annotations

import json
import time
from pathlib import Path

from deploy.node.state import node_folder
from federation.durable import sync_folder, write_durably


def pause_path(state_dir: Path) -> Path:
    """Return the file whose presence pauses the hospital."""
    return node_folder(state_dir) / "pause.json"


def is_paused(state_dir: Path) -> bool:
    """Return whether the hospital is paused; a file that cannot be read pauses it, too."""
    return pause_path(state_dir).exists()


def pause(state_dir: Path, *, by: str) -> None:
    """Pause the hospital: the supervisor stops the SuperNode within seconds, and nothing leaves until `resume`.

    Args:
        state_dir: the hospital's state volume.
        by: who or what paused it, for the hospital's own eyes.
    """
    node_folder(state_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
    content = json.dumps({"since": round(time.time(), 3), "by": by})
    write_durably(pause_path(state_dir), content.encode(), mode=0o600)


def resume(state_dir: Path) -> None:
    """Let the hospital take part again."""
    pause_path(state_dir).unlink(missing_ok=True)
    if node_folder(state_dir).is_dir():
        sync_folder(node_folder(state_dir))
