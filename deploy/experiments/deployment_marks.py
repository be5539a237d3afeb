"""A mark in every image, as devices write names of patients, and the search for it in all that the server holds."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from deploy.experiments.deployment_stage import Stage, docker, wait_until
from deploy.experiments.deployment_watch import await_contribution, events, persist
from federation.errors import RunFailedError

_SERVER_SIDE = ("superlink", "serverapp", "coordinator", "edge", "federation")
_PLACES = {"superlink": "/var/lib/aegis-server /tmp", "serverapp": "/runs /tmp", "edge": "/tmp"}  # noqa: S108 - theirs
_UNREADABLE = "site-error:data-unavailable"
_LEFT_BYTES = 40
_LIMIT_S = 600.0


def plant_in_images(stage: Stage, mark: str) -> None:
    """Write the mark into a text chunk of every image; their file names have it already."""
    text = PngInfo()
    text.add_text("PatientName", mark)
    for path in (stage.folder / "data").rglob("*.png"):
        with Image.open(path) as image:
            image.load()
            image.save(path, pnginfo=text)


def provoke_failure(stage: Stage, hospital: str) -> None:
    """Cut an image of a hospital short once it has contributed, and wait until the server is told of its failure.

    From then on there is an exception at the hospital whose text has the path of the image, and so the mark.
    """
    await_contribution(stage, hospital)
    before = len(events(stage))
    cut_short(stage.folder / "data" / hospital)
    wait_until(
        lambda: _UNREADABLE in site_errors(events(stage)[before:], hospital),
        f"{hospital} to say that it cannot read its images",
        limit_s=_LIMIT_S,
        watch=[lambda: str(events(stage)[-10:])],
    )


def cut_short(folder: Path) -> None:
    """Leave of the first image for training below `folder` a beginning that no reader takes for an image."""
    path = min((folder / "train").rglob("*.png"))
    path.write_bytes(path.read_bytes()[:_LEFT_BYTES])


def site_errors(seen: list[dict[str, Any]], hospital: str) -> list[str]:
    """Return the reasons for which a hospital's answers were refused because it could not do what it was asked to."""
    refusals = [event for event in seen if event["event"] == "refusal" and event["hospital"] == hospital]
    return [reason for event in refusals if (reason := str(event["reason"])).startswith("site-error:")]


def search(stage: Stage, mark: str) -> tuple[list[str], int]:
    """Return where the mark stands in anything that the server has written, and how many bytes were searched.

    Raises:
        RunFailedError: something could not be read.
    """
    found, searched = [], 0
    for service, places in _PLACES.items():
        count = f"find {places} -type f -exec cat {{}} + | wc -c"
        searched += int(docker("exec", stage.name(service), "sh", "-c", count))
        found += [f"{service}: {path}" for path in find_files(stage, service, places, mark)]
    for service in _SERVER_SIDE:
        log = stage.compose("logs", "--no-color", service)
        searched += len(log)
        found += [f"{service}: log"] if mark in log else []
    for path in ("/", "/metrics", "/health"):
        with urllib.request.urlopen(f"http://127.0.0.1:{stage.ports['page']}{path}", timeout=30) as answer:
            page = answer.read()
        searched += len(page)
        found += [f"coordinator: {path}"] if mark.encode() in page else []
    return found, searched


def find_files(stage: Stage, service: str, places: str, mark: str) -> list[str]:
    """Return the files below `places` of a container that have the mark; a file that comes or goes is tried again.

    Raises:
        RunFailedError: a file could not be read, three times.
    """
    # grep ends with 0 where it found something, with 1 where nothing, and with 2 where it could not read something.
    command = f"grep -rl {mark} {places} || [ $? -eq 1 ]"
    return persist(lambda: docker("exec", stage.name(service), "sh", "-c", command)).splitlines()


def require_mark_at(stage: Stage, hospital: str, mark: str) -> None:
    """Check that the same search finds the mark in the hospital's own log, where its failure stands.

    Raises:
        RunFailedError: it does not, so that finding nothing elsewhere would show nothing.
    """
    log = f"/var/lib/aegis/{hospital}.log"
    if find_files(stage, hospital, log, mark) != [log]:
        raise RunFailedError(f"Expected the mark in {log} of {hospital}, found none: the search shows nothing.")
