"""How long the two commands take from a fresh clone: `make demo` cold and warm, `make test`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from deploy.experiments.cells import Cell, Result
from federation.errors import RunFailedError

_MAKE = shutil.which("make") or "make"


def commands_cell(source: Path) -> Cell:
    """Return the cell that clones the committed tree at `source` and times its commands."""
    return Cell(name="commands", compute=time_commands, settings={"source": str(source)}, alone=True)


def time_commands(settings: dict[str, Any], folder: Path) -> Result:
    """Return minutes of `make demo` in an empty clone, of a second one, and of `make test`, with their exit codes.

    Raises:
        RunFailedError: a command failed; its output lies in `commands.log` beside the cells.
    """
    minutes = {}
    with tempfile.TemporaryDirectory(prefix="aegis-clone-") as place:
        clone = Path(place) / "aegis-fl"
        _output(["git", "clone", "--quiet", settings["source"], str(clone)], folder)
        for name, target in (("demo_cold", "demo"), ("demo_warm", "demo"), ("make_test", "test")):
            minutes[name] = _time(target, clone, folder / "commands.log")
        revision = _output(["git", "rev-parse", "HEAD"], clone)
    return {"minutes": minutes, "revision": revision}


def _time(target: str, clone: Path, log: Path) -> float:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "FLWR_"))}
    environment.pop("VIRTUAL_ENV", None)
    started = time.perf_counter()
    with log.open("ab") as output:
        finished = subprocess.run(
            [_MAKE, target], cwd=clone, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if finished.returncode:
        raise RunFailedError(f"make {target} ended with {finished.returncode}; see {log}.")
    return (time.perf_counter() - started) / 60


def _output(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
