"""A made-up hospital, for pictures of the page and for trying it out: real files, nobody's data."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from client_app.ledger import Ledger, ReleaseRequest
from client_app.policy import read_policy
from deploy.node.state import NodeState, Phase, Restart, write_state
from deploy.trust.kit import Kit
from federation.accounting.events import Relation, SampledGaussianRelease, Unit
from federation.accounting.mechanism import Mechanism
from federation.errors import SiteErrorCode

POLICY_FILE = "site.toml"
_HOSPITAL = "st-elsewhere"
_DAY_S = 86_400.0
_EVENT = SampledGaussianRelease(noise_multiplier=1.1, sampling_probability=0.02, steps=50)


def make_hospital(folder: Path, *, now: float | None = None) -> Path:
    """Make kit, policy, ledger, log and state of a healthy hospital below `folder`, and return the kit's folder."""
    moment = time.time() if now is None else now
    kit = folder / "etc"
    for name in ("etc", "state", "keys"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    Kit(
        consortium="Chest X-ray consortium", hospital_id=_HOSPITAL, host="fl.example.org", port=443, public_key=""
    ).write(kit)
    (kit / POLICY_FILE).write_text(tomli_w.dumps(_policy(folder)), encoding="utf-8")
    (kit / "ca.crt").write_bytes(_authority(datetime.fromtimestamp(moment, UTC)))
    _fill_ledger(folder)
    _fill_log(folder / "state", moment)
    tell_state(kit, connected(moment))
    return kit


def connected(now: float) -> NodeState:
    """Return the state of a node that is well."""
    return NodeState(
        written=now - 4,
        phase=Phase.CONNECTED,
        since=now - 7.4 * 3600,
        detail="The server answers this node.",
        server="fl.example.org:443",
        last_contact=now - 6,
        clock_skew_s=0.4,
        restarts=(
            Restart(time=now - 7.5 * 3600, reason="The server is well, but has not heard from this node for 94 s."),
        ),
        versions={"aegis": "0.1.0", "flwr": "1.42.0", "torch": "2.14.0", "python": "3.11.7", "image": "aegis:0.1.0"},
        started=now - 19.2 * _DAY_S,
    )


def refused_by_clock(now: float) -> NodeState:
    """Return the state of a node whose clock is behind the server's."""
    return connected(now).model_copy(
        update={
            "phase": Phase.CLOCK_SKEWED,
            "since": now - 1500,
            "last_contact": now - 1560,
            "clock_skew_s": 412.0,
            "detail": (
                "This machine's clock is 412 s behind the server's, so the server refuses its signatures: set the "
                "clock by NTP (at most 5 s ahead, 305 s behind)."
            ),
        }
    )


def tell_state(kit: Path, state: NodeState) -> None:
    """Write `state` where the supervisor of the hospital with this kit would."""
    write_state(Path(read_policy(kit / POLICY_FILE).state_dir), state)


def _policy(folder: Path) -> dict[str, Any]:
    return {
        "hospital-id": _HOSPITAL,
        "state-dir": str(folder / "state"),
        "keys-dir": str(folder / "keys"),
        "data": {"id": "chest-2026", "name": "folder", "root": "/srv"},
        "privacy": {"mechanisms": ["dp-sgd"], "max-epsilon": 8.0, "max-delta": 1e-5},
        "models": {"allowed": ["cnn"]},
        "evaluation": {"metrics": "off"},
    }


def _authority(now: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Chest X-ray consortium")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=200))
        .not_valid_after(now + timedelta(days=3450))
        .sign(key, hashes.SHA384())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def _fill_ledger(folder: Path) -> None:
    mechanism = Mechanism(name="dp-sgd", relation=Relation.ADD_REMOVE, unit=Unit.RECORD, clip_norm=1.0)
    with Ledger.open(folder / "state", hospital_id=_HOSPITAL, key_folder=folder / "keys") as ledger:
        for number in range(12):
            request = ReleaseRequest(
                run_id="chest-xray-2",
                message_id=f"message-{number}",
                data_set="chest-2026",
                mechanism=mechanism,
                event=_EVENT,
                delta=1e-5,
                cap=4.0,
                account="rdp",
            )
            ledger.commit(ledger.reserve(request))


def _fill_log(state_dir: Path, now: float) -> None:
    def entry(age_s: float, event: str, **fields: object) -> dict[str, object]:
        return {"time": round(now - age_s, 3), "event": event, **fields}

    refused = {"code": int(SiteErrorCode.POLICY_MODEL), "error": "a text that stays here", "traceback": "likewise"}
    entries = [
        entry(9 * _DAY_S, "failure", **refused),
        *(entry((12 - number) * 3300, "update", model_version=number, examples=812) for number in range(12)),
        entry(900, "ready", model_version=12),
    ]
    lines = "".join(json.dumps(line) + "\n" for line in entries)
    (state_dir / f"{_HOSPITAL}.log").write_text(lines, encoding="utf-8")
