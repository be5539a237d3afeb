"""What a coordinator sees of the consortium's identities: who is enrolled, under which key, and what ends when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from rich import box
from rich.table import Table
from rich.text import Text

from deploy.trust.authority import certificate_fingerprint
from deploy.trust.certificate_files import CURRENT, read_certificate
from deploy.trust.consortium import Consortium, Hospital
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.hospital_key import fingerprint as key_fingerprint
from deploy.trust.signing import fingerprint as signing_fingerprint
from deploy.trust.signing import read_public_key

_WARN_DAYS = 30
# Whoever has a new authority needs new kits everywhere.
_WARN_DAYS_AUTHORITY = 180
_REMEDIES = {
    "ca": "found a new consortium in time; every hospital needs a new kit",
    "server": "aegis enrol renew",
    "superlink": "found a new consortium in time",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Dated:
    """One certificate.

    Attributes:
        which: `ca`, `server` or `superlink`.
        fingerprint: SHA-256, as openssl shows it.
        expires: when it ends, ISO 8601 in UTC.
        days_left: whole days until then; negative when it has ended.
    """

    which: str
    fingerprint: str
    expires: str
    days_left: int

    @property
    def warning(self) -> str:
        """What to do about it; empty for nothing."""
        limit = _WARN_DAYS_AUTHORITY if self.which == "ca" else _WARN_DAYS
        if self.days_left >= limit:
            return ""
        ends = f"has ended on {self.expires}" if self.days_left < 0 else f"ends in {self.days_left} days"
        return f"The certificate {self.which!r} {ends}: {_REMEDIES[self.which]}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """Everything that `aegis enrol show` tells.

    Attributes:
        consortium: who belongs to it.
        certificates: of authority, server and SuperLink.
        signing_key: fingerprint of the key that signs kits and bundles, to be read out on the telephone.
    """

    consortium: Consortium
    certificates: tuple[Dated, ...]
    signing_key: str

    @property
    def warnings(self) -> list[str]:
        """What needs a hand, a sentence each."""
        return [found.warning for found in self.certificates if found.warning]

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "name": self.consortium.name,
            "host": self.consortium.host,
            "port": self.consortium.port,
            "created": self.consortium.created,
            "signing-key": self.signing_key,
            "certificates": [
                {
                    "which": found.which,
                    "fingerprint": found.fingerprint,
                    "expires": found.expires,
                    "days-left": found.days_left,
                }
                for found in self.certificates
            ],
            "hospitals": [_hospital_as_dict(hospital) for hospital in self.consortium.hospitals],
            "warnings": self.warnings,
        }


def look_at(folder: ConsortiumFolder, *, now: datetime | None = None) -> Overview:
    """Return what is to be seen in `folder`.

    Raises:
        ConfigurationError: something in it is missing or damaged.
    """
    moment = now or datetime.now(UTC)
    places = {"ca": folder.authority, "server": folder.server / CURRENT / "server.crt", "superlink": folder.internal}
    return Overview(
        consortium=folder.read(),
        certificates=tuple(_dated(which, read_certificate(path), moment) for which, path in places.items()),
        signing_key=signing_fingerprint(read_public_key(folder.signing_key.with_suffix(".pub"))),
    )


def tables(overview: Overview) -> Iterator[Table]:
    """Yield what people read, narrow enough for 80 columns."""
    shown = overview.consortium
    title = Text(f"{shown.name} at {shown.host}, port {shown.port}")
    certificates = Table("certificate", "ends", title=title, box=box.SIMPLE, pad_edge=False)
    certificates.add_column("days", justify="right")
    certificates.add_column("SHA-256", overflow="fold")
    for found in overview.certificates:
        certificates.add_row(found.which, found.expires[:10], str(found.days_left), Text(found.fingerprint))
    yield certificates
    hospitals = Table(box=box.SIMPLE, pad_edge=False)
    for head in ("hospital", "enrolled", "state", "key"):
        hospitals.add_column(head, overflow="fold")
    for hospital in shown.hospitals:
        hospitals.add_row(
            Text(hospital.id), hospital.enrolled, _state(hospital), Text(key_fingerprint(hospital.public_key))
        )
    yield hospitals


def _state(hospital: Hospital) -> str:
    if hospital.revoked:
        return f"revoked {hospital.revoked}"
    state = "registered" if hospital.node_id else "not registered yet"
    return f"{state}, older key accepted" if hospital.previous_key else state


def _hospital_as_dict(hospital: Hospital) -> dict[str, Any]:
    return {
        "id": hospital.id,
        "fingerprint": key_fingerprint(hospital.public_key),
        "previous-fingerprint": key_fingerprint(hospital.previous_key) if hospital.previous_key else "",
        "enrolled": hospital.enrolled,
        "revoked": hospital.revoked,
        "node-id": hospital.node_id,
        "state": _state(hospital),
    }


def _dated(which: str, certificate: x509.Certificate, now: datetime) -> Dated:
    end = certificate.not_valid_after_utc
    return Dated(
        which=which,
        fingerprint=certificate_fingerprint(certificate),
        expires=end.isoformat(timespec="seconds"),
        days_left=(end - now).days,
    )
