"""What one hospital of a deployment owns: images, site policy, ledger, and the gate at which a test holds its tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from client_app.ledger.balance import Standing
from client_app.ledger.inspection import inspect_ledger

_IMAGES = {"train": 24, "val": 8, "test": 8}


class HospitalFiles:
    """The files of one hospital."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.folder = folder
        self.gate = folder / "gate"
        self.gate.mkdir(parents=True)
        self._write_images()
        self.adopt_policy()

    @property
    def node_config(self) -> str:
        """What the SuperNode is told."""
        return f'site-policy="{self.folder / "site.toml"}" gate="{self.gate}"'

    @property
    def keeps_a_result(self) -> bool:
        """Whether a result waits on the volume for the server's decision."""
        return any((self.folder / "state" / "pending").glob("*.pending"))

    def adopt_policy(self, *, data_id: str = "images", mechanisms: Sequence[str] = ("none",)) -> None:
        """Write `site.toml`; a data set under a new id has a new budget."""
        policy = {
            "hospital-id": self.name,
            "state-dir": str(self.folder / "state"),
            "keys-dir": str(self.folder / "keys"),
            "data": {"id": data_id, "name": "npz", "root": str(self.folder / "images.npz")},
            "privacy": {"mechanisms": list(mechanisms), "max-epsilon": 50.0, "max-delta": 1e-5},
            "models": {"allowed": ["mlp"]},
        }
        (self.folder / "site.toml").write_text(tomli_w.dumps(policy), encoding="utf-8")

    def hold(self, kind: str = "train") -> None:
        """Let no task of `kind` begin from now on."""
        (self.gate / f"hold-{kind}").touch()

    def let_go(self, kind: str = "train") -> None:
        """Let the tasks of `kind` go on."""
        (self.gate / f"hold-{kind}").unlink()

    def open_gates(self) -> None:
        """Hold nothing any more."""
        for hold in self.gate.glob("hold-*"):
            hold.unlink()

    def calls(self, step: str, kind: str = "train", *, run_id: str) -> list[str]:
        """Return the message ids with which the ClientApp has come to `step` ("enter", "begin", "answer"), in order."""
        path = self.gate / "calls.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        calls: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("\n")]
        return [call["message"] for call in calls if (call["step"], call["kind"], call["run"]) == (step, kind, run_id)]

    def paid(self, run_id: str) -> list[str]:
        """Return the ids of the messages of a run whose answers the ledger holds as paid, in order."""
        if not (self.folder / "state").exists():
            return []
        found = inspect_ledger(self.folder / "state", self.name, key_folder=self.folder / "keys")
        assert not found.audit.findings
        paid = [item for item in found.audit.balance.bookings.values() if item.standing is not Standing.CANCELLED]
        return [item.request.message_id for item in paid if item.request.run_id == run_id]

    def _write_images(self) -> None:
        rng = np.random.default_rng(sum(self.name.encode()))
        arrays: dict[str, Any] = {}
        for split, count in _IMAGES.items():
            labels = np.arange(count) % 2
            images = rng.integers(0, 100, (count, 8, 8)) + 100 * labels[:, None, None]
            arrays |= {f"{split}_images": images.astype(np.uint8), f"{split}_labels": labels}
        np.savez(self.folder / "images.npz", **arrays)
