"""What runs here and how: versions, the image, whether it stays offline, and as whom."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from deploy.doctor.checks import Check, Finding, failed, ok, skipped, warning
from deploy.doctor.hospital import Hospital
from deploy.doctor.resources import OnMachine

_OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DIGEST_VARIABLE = "AEGIS_IMAGE_DIGEST"
_EXPECTED_IMAGE = "image.txt"
_ROOT = 0


def _compare_versions(site: OnMachine) -> Finding:
    machine = site.machine
    needed = [item for item in map(Requirement, machine.requirements()) if not _is_extra(item)]
    if not needed:
        return failed("aegis-fl is not installed here as a package, so nobody knows what it needs")
    wrong = []
    for item in needed:
        version = machine.version(item.name)
        if version is None or not item.specifier.contains(version, prereleases=True):
            wrong.append(f"{item.name} {version or 'missing'}, expected {item.specifier}")
    if wrong:
        return failed("; ".join(wrong))
    shown = (f"{name} {machine.version(name) or 'missing'}" for name in ("aegis-fl", "flwr", "torch"))
    return ok(f"{', '.join(shown)}; all {len(needed)} requirements are met")


def _is_extra(item: Requirement) -> bool:
    return item.marker is not None and not item.marker.evaluate({"extra": ""})


def _compare_image(site: Hospital) -> Finding:
    expected = _digests_in(site.kit_folder / _EXPECTED_IMAGE)
    told = site.machine.environment.get(_DIGEST_VARIABLE, "")
    own = set(_DIGEST.findall(told)) or _digests_in(site.machine.image_identity)
    if not expected or not own:
        return skipped("the kit names no image, or this one does not say which it is")
    if own & expected:
        return ok(f"the image that the kit names, {min(own & expected)[:19]}...")
    return failed(f"{min(own)[:19]}..., and the kit names {min(expected)[:19]}...")


def _digests_in(path: Path) -> set[str]:
    try:
        return set(_DIGEST.findall(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError):
        return set()


def _stay_offline(site: OnMachine) -> Finding:
    environment = site.machine.environment
    open_ones = [f"{name}={value}" for name, value in _OFFLINE.items() if environment.get(name) != value]
    return warning(f"not set: {', '.join(open_ones)}") if open_ones else ok("Flower asks nobody but the server")


def _be_nobody(site: OnMachine) -> Finding:
    user = site.machine.user_id
    return failed("root") if user == _ROOT else ok(f"user {user}")


def _write_home(site: OnMachine) -> Finding:
    faults = list(_find_homeless(site))
    return failed("; ".join(faults)) if faults else ok("both can be written to")


def _find_homeless(site: OnMachine) -> Iterator[str]:
    machine = site.machine
    home = Path(machine.environment.get("HOME", "") or Path.home())
    folders = {"HOME": home, "FLWR_HOME": Path(machine.environment.get("FLWR_HOME", "") or home / ".flwr")}
    for name, folder in folders.items():
        nearest = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
        if not nearest.is_dir() or not machine.may_write(nearest):
            yield f"{name} = {folder} cannot be written to"


PROCESS: tuple[Check[OnMachine], ...] = (
    Check(
        id="versions",
        title="installed versions",
        expected="what aegis-fl asks for",
        mend="Use the image of this version as it is; outside of a container, install aegis-fl anew.",
        look=_compare_versions,
    ),
    Check(
        id="offline-flags",
        title="whether Flower calls anybody but the server",
        expected="telemetry, update check and installation at run time are off",
        mend="Set the variables; the images do, and `aegis node run` sets them for what it starts.",
        look=_stay_offline,
    ),
    Check(
        id="user",
        title="as whom this runs",
        expected="a user who is not root",
        mend="Run the container as user 10001:10001, as compose.yaml does.",
        look=_be_nobody,
    ),
    Check(
        id="home-writable",
        title="where Flower unpacks what it receives",
        expected="HOME and FLWR_HOME can be written to",
        mend="Mount a tmpfs at /tmp, and let HOME and FLWR_HOME lie there.",
        look=_write_home,
    ),
)

IMAGE: tuple[Check[Hospital], ...] = (
    Check(
        id="image-digest",
        title="the container's image",
        expected="the digest in image.txt beside the kit, where there is one",
        mend="Load the image that came with the kit, or ask the coordinator for the image.txt of this one.",
        look=_compare_image,
    ),
)
