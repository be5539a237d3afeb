"""Run by `make test-base` with the interpreter of a base installation: a federation runs without any extra.

Not a pytest module: pytest itself is an extra.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

ABSENT = ("ray", "torchvision", "medmnist", "diffusers", "matplotlib", "sklearn")


def main() -> int:
    """Return 0 when a federation of two hospitals runs without any extra."""
    present = [name for name in ABSENT if importlib.util.find_spec(name)]
    if present:
        sys.stderr.write(f"Expected a base installation, found {present}.\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        settings = ["model.name=mlp", "data.phantom-examples=90", "data.phantom-classes=2", "aggregation.rounds=1"]
        settings += ["privacy.mechanism=dp-sgd"]
        assigned = [part for text in (f"run.root={folder}", *settings) for part in ("--set", text)]
        command = [str(Path(sys.executable).with_name("aegis")), "simulate", "--hospitals", "2", "--app", folder]
        finished = subprocess.run([*command, *assigned], check=False)
        written = {path.name for path in (Path(folder) / "run").iterdir()}
    if finished.returncode or "summary.json" not in written or "report.html" in written:
        sys.stderr.write(f"Expected exit 0 and a summary without a report, found {finished.returncode}, {written}.\n")
        return 1
    sys.stdout.write("The base installation runs a federation.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
