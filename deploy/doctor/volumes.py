"""The two volumes that must outlive the container: there, durable, apart, private, and with room."""

from __future__ import annotations

import stat
from pathlib import Path

from deploy.doctor.checks import Check, Finding, failed, ok, warning
from deploy.doctor.hospital import Hospital
from deploy.doctor.machine import Machine
from federation.durable import write_durably

GIB = 2**30
_LEAST_FREE, _LITTLE_FREE = 1 * GIB, 5 * GIB
_FLEETING = frozenset({"tmpfs", "ramfs", "overlay", "aufs", "squashfs"})
_PROBE = ".doctor-probe"
_PROBE_CONTENT = b"aegis doctor"
_OTHERS = 0o077


def judge_room(machine: Machine, folder: Path) -> Finding:
    """Return whether there is room left in `folder`."""
    free = machine.free_bytes(folder)
    told = f"{free / GIB:.1f} GiB free"
    if free < _LEAST_FREE:
        return failed(told)
    return warning(told) if free < _LITTLE_FREE else ok(told)


def find_loss(machine: Machine, folder: Path) -> str:
    """Return why what is written to `folder` would not last; empty where it does.

    A file is written, forced to the disk, renamed, read again and removed.
    """
    kind = machine.file_system(folder)
    if kind in _FLEETING:
        return f"lies on {kind}, which a restart empties"
    probe = folder / _PROBE
    try:
        write_durably(probe, _PROBE_CONTENT, mode=0o600)
        kept = probe.read_bytes() == _PROBE_CONTENT
        probe.unlink()
    except OSError as error:
        return f"cannot be written to ({error.strerror})"
    return "" if kept else "gave back something else than was written"


def _find(site: Hospital) -> Finding:
    missing = [f"{name} = {folder}" for name, folder in site.volumes().items() if not folder.is_dir()]
    return failed(f"no folder at {', '.join(missing)}") if missing else ok("both are there")


def _last(site: Hospital) -> Finding:
    losses = {name: find_loss(site.machine, folder) for name, folder in site.volumes().items()}
    told = "; ".join(f"{name} {loss}" for name, loss in losses.items() if loss)
    if told:
        return failed(told)
    kinds = {site.machine.file_system(folder) or "unknown" for folder in site.volumes().values()}
    return ok(f"written, forced to the disk and read again; file system {', '.join(sorted(kinds))}")


def _be_apart(site: Hospital) -> Finding:
    state, keys = site.volumes().values()
    if site.machine.device(state) == site.machine.device(keys):
        return warning("both lie on one file system: whoever restores an old copy of it restores both")
    return ok("two file systems")


def _be_private(site: Hospital) -> Finding:
    machine, faults = site.machine, []
    for name, folder in site.volumes().items():
        mode, owner = stat.S_IMODE(folder.stat().st_mode), machine.owner(folder)
        if mode & _OTHERS:
            faults.append(f"{name} has mode {mode:04o}")
        if owner != machine.user_id:
            faults.append(f"{name} belongs to user {owner}, and we are {machine.user_id}")
    return failed("; ".join(faults)) if faults else ok("both are ours alone")


def _room_for_state(site: Hospital) -> Finding:
    return judge_room(site.machine, site.volumes()["state-dir"])


def _room_for_keys(site: Hospital) -> Finding:
    return judge_room(site.machine, site.volumes()["keys-dir"])


CHECKS: tuple[Check[Hospital], ...] = (
    Check(
        id="volumes-present",
        title="the state volume and the keys volume",
        expected="the folders that site.toml names",
        mend="Mount both volumes where state-dir and keys-dir say.",
        look=_find,
        needs=("policy-syntax",),
    ),
    Check(
        id="state-durable",
        title="whether both volumes keep what is written",
        expected="a disk, not memory and not the container's own layer",
        mend="Mount a named volume or a folder of the host there, writable for user 10001: what the ledger has counted "
        "must outlive the container.",
        look=_last,
        needs=("volumes-present",),
    ),
    Check(
        id="state-apart",
        title="whether state and keys lie apart",
        expected="two file systems",
        mend="Best put the keys volume on another disk; at least back the two up apart from each other.",
        look=_be_apart,
        needs=("volumes-present",),
    ),
    Check(
        id="permissions",
        title="who can read both volumes",
        expected="their owner, who is the node's user, and nobody else",
        mend="Run chown 10001:10001 and chmod 700 on both folders, on the host.",
        look=_be_private,
        needs=("volumes-present",),
    ),
    Check(
        id="disk-state",
        title="room on the state volume",
        expected="5 GiB, and 1 GiB at the very least",
        mend="Make room: a full disk stops the ledger, and with it everything that would leave.",
        look=_room_for_state,
        needs=("volumes-present",),
    ),
    Check(
        id="disk-keys",
        title="room on the keys volume",
        expected="5 GiB, and 1 GiB at the very least",
        mend="Make room: a full disk stops the ledger, and with it everything that would leave.",
        look=_room_for_keys,
        needs=("volumes-present",),
    ),
)
