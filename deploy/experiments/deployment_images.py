"""The three images: built from this checkout, measured, and named."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from federation.errors import RunFailedError

VERSION = "0.1.0"
HOSPITAL_IMAGE = f"aegis-hospital:{VERSION}"
SERVER_IMAGE = f"aegis-server:{VERSION}"
EDGE_IMAGE = f"aegis-edge:{VERSION}"
IMAGES = {"AEGIS_SERVER_IMAGE": SERVER_IMAGE, "AEGIS_EDGE_IMAGE": EDGE_IMAGE}
WHEELS = "AEGIS_WHEELS"
"""Environment variable with a folder of wheels for a build, such as CPU builds of torch."""

_ROOT = Path(__file__).parents[2]
_BUILDS = (
    (HOSPITAL_IMAGE, "deploy/hospital/Dockerfile", ()),
    (SERVER_IMAGE, "deploy/server/Dockerfile", ("--target", "server")),
    (EDGE_IMAGE, "deploy/server/Dockerfile", ("--target", "edge")),
)
_MEGABYTE = 1e6


def build_images(*, limit_s: float = 1800.0) -> None:
    """Build all images; layers that are there already are not built again.

    Raises:
        RunFailedError: a build failed, with the end of what it printed.
    """
    wheels = os.environ.get(WHEELS, "")
    context = ("--build-context", f"wheels={wheels}") if wheels else ()
    for image, file, more in _BUILDS:
        command = ["docker", "build", "-f", file, "-t", image, *context, *more, "."]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=limit_s)
        if done.returncode:
            raise RunFailedError(f"Expected {image} to be built, found: {done.stderr[-2000:]}")


def size_mb(image: str) -> float:
    """Return the size of an image, unpacked, in megabytes (1e6 bytes)."""
    command = ["docker", "image", "inspect", image]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(found.stdout)[0]["Size"]) / _MEGABYTE
