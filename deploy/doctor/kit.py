"""What the coordinator handed over: readable, whole, this hospital's, and secret where it must be."""

from __future__ import annotations

import stat

from cryptography.hazmat.primitives import serialization

from deploy.doctor.certificates import Lifetime, is_authority, read_certificate, read_key
from deploy.doctor.checks import Check, Finding, failed, ok
from deploy.doctor.hospital import Hospital
from federation.errors import ConfigurationError

_CURVE = "secp384r1"
_OTHERS = stat.S_IRWXO
_GROUP_WRITES = stat.S_IWGRP
_ROOT = 0


def _read_kit(site: Hospital) -> Finding:
    try:
        kit = site.kit()
    except ConfigurationError as error:
        return failed(str(error))
    return ok(f"{kit.hospital_id} of {kit.consortium}, server {kit.server}")


def _match_key(site: Hospital) -> Finding:
    try:
        key = read_key(site.key)
    except ConfigurationError as error:
        return failed(str(error))
    if key.curve.name != _CURVE:
        return failed(f"a key on the curve {key.curve.name}")
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    if line.decode().split()[:2] != site.kit().public_key.split()[:2]:
        return failed("a private key whose public half is another one than the kit's")
    return ok("the private key is the one that the coordinator knows by its public half")


def _hide_key(site: Hospital) -> Finding:
    status = site.key.stat()
    mode, owner = stat.S_IMODE(status.st_mode), site.machine.owner(site.key)
    if mode & (_OTHERS | _GROUP_WRITES):
        return failed(f"mode {mode:04o}", f"Run chmod 600 on {site.key}; in a container, on the host's file.")
    if owner not in (site.machine.user_id, _ROOT):
        return failed(f"owner {owner}", f"Run chown {site.machine.user_id} on {site.key}, on the host.")
    return ok(f"mode {mode:04o}, owner {owner}")


def _check_authority(site: Hospital) -> Finding:
    try:
        certificate = read_certificate(site.authority)
    except ConfigurationError as error:
        return failed(str(error))
    if not is_authority(certificate):
        return failed("a certificate that may sign no others", "Ask the coordinator for the kit again.")
    return Lifetime.of(certificate, site.machine.now()).judge()


CHECKS: tuple[Check[Hospital], ...] = (
    Check(
        id="kit-readable",
        title="the kit",
        expected="kit.toml in the kit's folder, readable by this user",
        mend="Mount the folder with the kit at /etc/aegis, readable by user 10001; a damaged kit comes anew from the "
        "coordinator.",
        look=_read_kit,
    ),
    Check(
        id="kit-key-matches",
        title="the private key",
        expected="an ECDSA P-384 key whose public half is the kit's",
        mend="Put the node.key that belongs to this kit beside it; if it is lost, ask the coordinator to enrol this "
        "hospital anew.",
        look=_match_key,
        needs=("kit-readable",),
    ),
    Check(
        id="kit-permissions",
        title="who can read the private key",
        expected="nobody but the node's user and root",
        mend="Run chmod 600 and chown on the private key.",
        look=_hide_key,
        needs=("kit-readable", "kit-key-matches"),
    ),
    Check(
        id="ca-valid",
        title="the consortium's certificate authority",
        expected="a certificate that may sign others, valid for 30 days at least",
        mend="Ask the coordinator for the consortium's new certificate authority.",
        look=_check_authority,
        needs=("kit-readable",),
    ),
)
