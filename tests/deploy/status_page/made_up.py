"""A hospital's folders with as little in them as a test wants."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from client_app.ledger import Ledger
from deploy.node.state import NodeState, Phase, Restart, write_state
from deploy.status_page.observer import Observer, Snapshot
from deploy.status_page.site_log import SiteLog
from deploy.status_page.spending import Spending
from deploy.trust.kit import Kit

NOW = 1_800_000_000.0


def state(**changes: Any) -> NodeState:
    """A node that is well, as its supervisor wrote it 4 s before `NOW`."""
    values: dict[str, Any] = {
        "written": NOW - 4,
        "phase": Phase.CONNECTED,
        "since": NOW - 7200,
        "detail": "",
        "server": "fl.example.org:443",
        "last_contact": NOW - 12,
        "clock_skew_s": 0.5,
        "restarts": (Restart(time=NOW - 3600, reason="it was silent"),),
        "versions": {"aegis": "0.1.0", "flwr": "1.42.0", "torch": "2.14.0"},
        "started": NOW - 9000,
    }
    return NodeState(**{**values, **changes})


def snapshot(**changes: Any) -> Snapshot:
    """A hospital of which nothing is known but that its node is well."""
    values: dict[str, Any] = {
        "now": NOW,
        "hospital_id": "north",
        "consortium": "",
        "node": state(),
        "pause": None,
        "log": SiteLog(),
        "spending": Spending(),
        "policy": None,
        "certificates": {},
    }
    return Snapshot(**{**values, **changes})


@dataclass(frozen=True)
class Folders:
    """Kit, state and keys of the hospital "north"."""

    root: Path

    @property
    def kit(self) -> Path:
        return self.root / "etc"

    @property
    def policy(self) -> Path:
        return self.kit / "site.toml"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def log(self) -> Path:
        return self.state / "north.log"

    @property
    def ledger(self) -> Path:
        return self.state / "north.ledger"

    def make(self, *, data_set: str = "scans", consortium: str = "trial", **tables: Any) -> Folders:
        for folder in (self.kit, self.state):
            folder.mkdir(exist_ok=True)
        policy = {
            "hospital-id": "north",
            "state-dir": str(self.state),
            "keys-dir": str(self.keys),
            "data": {"id": data_set, "name": "folder", "root": str(self.root)},
            "privacy": {"mechanisms": ["update-gaussian"], "max-epsilon": 8.0, "max-delta": 1e-5},
            "models": {"allowed": ["cnn"]},
        }
        self.policy.write_text(tomli_w.dumps(policy | tables), encoding="utf-8")
        kit = Kit(consortium=consortium, hospital_id="north", host="fl.example.org", port=443, public_key="ssh x")
        kit.write(self.kit)
        return self

    def tell(self, told: NodeState) -> None:
        write_state(self.state, told)

    def open_ledger(self) -> Ledger:
        return Ledger.open(self.state, hospital_id="north", key_folder=self.keys, wait_s=0.0)

    def observer(self) -> Observer:
        return Observer(self.policy, self.kit)

    def look(self, now: float = NOW) -> Snapshot:
        return self.observer().look(now)
