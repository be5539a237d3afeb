"""The coordinator's folder: who belongs to the consortium, and the certificates and secrets of its server."""

from __future__ import annotations

import stat
from pathlib import Path

from deploy.doctor.certificates import Lifetime, belongs_to, is_authority, is_signed_by, names_host, read_key
from deploy.doctor.certificates import read_certificate as read
from deploy.doctor.checks import Check, Finding, Status, failed, ok, warning
from deploy.doctor.server import Server
from federation.errors import ConfigurationError

_OTHERS = 0o077


def _read_roster(site: Server) -> Finding:
    try:
        roster = site.roster()
    except ConfigurationError as error:
        return failed(str(error))
    active = sum(bool(member.keys) for member in roster.members)
    told = f"{roster.name}, server {roster.host}:{roster.port}, {active} hospitals"
    return ok(told) if active else warning(told, "Enrol hospitals: `aegis enrol hospital`.")


def _check_authority(site: Server) -> Finding:
    try:
        certificate = read(site.authority)
    except ConfigurationError as error:
        return failed(str(error))
    if not is_authority(certificate):
        return failed("a certificate that may sign no others")
    return Lifetime.of(certificate, site.machine.now()).judge()


def _match(certificate: Path) -> Finding:
    try:
        matches = belongs_to(read(certificate), read_key(certificate.with_suffix(".key")))
    except ConfigurationError as error:
        return failed(str(error))
    return ok("certificate and key belong together") if matches else failed("the key is another certificate's")


def _match_server(site: Server) -> Finding:
    return _match(site.certificate)


def _chain_server(site: Server) -> Finding:
    if is_signed_by(read(site.certificate), read(site.authority)):
        return ok("signed by the consortium's authority")
    return failed("signed by somebody else than ca.crt")


def _name_server(site: Server) -> Finding:
    certificate = read(site.certificate)
    missing = [name for name in site.roster().names if not names_host(certificate, name)]
    return failed(f"without {', '.join(missing)}") if missing else ok("all names of consortium.toml")


def _date_server(site: Server) -> Finding:
    return Lifetime.of(read(site.certificate), site.machine.now()).judge()


def _check_internal(site: Server) -> Finding:
    matches = _match(site.internal_certificate)
    if matches.status is not Status.OK:
        return matches
    certificate = read(site.internal_certificate)
    if not is_signed_by(certificate, read(site.authority)):
        return failed("signed by somebody else than ca.crt")
    missing = [name for name in site.roster().internal_names if not names_host(certificate, name)]
    if missing:
        return failed(f"without {', '.join(missing)}")
    return Lifetime.of(certificate, site.machine.now()).judge()


def _hide_secrets(site: Server) -> Finding:
    secrets = site.secrets()
    open_ones = [path.name for path in secrets if stat.S_IMODE(path.stat().st_mode) & _OTHERS]
    if open_ones:
        return failed(f"open to others: {', '.join(open_ones)}")
    return ok(f"{len(secrets)} files, none open to others")


CHECKS: tuple[Check[Server], ...] = (
    Check(
        id="consortium-readable",
        title="the consortium",
        expected="consortium.toml with at least one hospital that takes part",
        mend="Name the coordinator's folder with --folder; `aegis enrol init` makes one.",
        look=_read_roster,
    ),
    Check(
        id="ca-valid",
        title="the consortium's certificate authority",
        expected="a certificate that may sign others, valid for 30 days at least",
        mend="Restore ca.crt from the backup. A new authority means a new kit for every hospital: plan it.",
        look=_check_authority,
        needs=("consortium-readable",),
    ),
    Check(
        id="server-certificate",
        title="the server's certificate and key",
        expected="a pair",
        mend="Make the certificate anew: `aegis enrol renew`.",
        look=_match_server,
        needs=("consortium-readable",),
    ),
    Check(
        id="server-chain",
        title="who signed the server's certificate",
        expected="the consortium's authority, which is all that hospitals trust",
        mend="Make the certificate anew: `aegis enrol renew`.",
        look=_chain_server,
        needs=("ca-valid", "server-certificate"),
    ),
    Check(
        id="server-names",
        title="the names in the server's certificate",
        expected="host and sans of consortium.toml",
        mend="Make the certificate anew: `aegis enrol renew`.",
        look=_name_server,
        needs=("server-certificate",),
    ),
    Check(
        id="server-dates",
        title="how long the server's certificate is valid",
        expected="30 days at least",
        mend="Make the certificate anew: `aegis enrol renew`; the edge takes it without a restart.",
        look=_date_server,
        needs=("server-certificate",),
    ),
    Check(
        id="internal-certificate",
        title="the SuperLink's certificate, behind the edge",
        expected="a pair, signed by the consortium's authority, with all internal names, valid for 30 days at least",
        mend="Restore superlink.crt and superlink.key from the newest backup of the coordinator's folder.",
        look=_check_internal,
        needs=("ca-valid",),
    ),
    Check(
        id="secrets-permissions",
        title="who can read the coordinator's secrets",
        expected="their owner, and nobody else",
        mend="Run chmod 600 on these files.",
        look=_hide_secrets,
        needs=("consortium-readable",),
    ),
)
