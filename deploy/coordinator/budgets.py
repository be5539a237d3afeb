"""What every hospital has spent of its privacy budget, as the server's mirror of the hospitals' own ledgers says.

A run that has ended tells it in its summary. While it goes on, the mirror lies in the newest checkpoint, of which only
the head is read; no tensor is loaded, and no digest checked, which whoever resumes the run does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open

from server_app.mirror import TRAINING
from server_app.spending import Spending
from server_app.summary import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One hospital's spending on its training images.

    Attributes:
        spent: epsilon by the account that binds at the hospital, earlier runs included.
        cap: epsilon that it will spend at most.
        delta: at which both are counted.
        paused: whether nothing is left for another update.
        holds: whether `spent` bounds everything released.
    """

    spent: float
    cap: float
    delta: float
    paused: bool
    holds: bool

    @property
    def left(self) -> float:
        """Epsilon that is left under the cap."""
        return max(0.0, self.cap - self.spent)


class _Mirror(BaseModel):
    """Of the progress in a checkpoint only the mirror."""

    model_config = ConfigDict(extra="ignore")

    spending: dict[str, dict[str, Spending]] = Field(default_factory=dict)


class CheckpointedBudgets:
    """The budgets in the newest checkpoint of one run, read once per checkpoint."""

    def __init__(self, checkpoints: Path) -> None:
        """Follow the folder `checkpoints`, which need not be there yet."""
        self._folder = checkpoints
        self._seen: Path | None = None
        self._budgets: Mapping[str, Budget] = {}

    def read(self) -> Mapping[str, Budget]:
        """Return the budget of every hospital that has declared something; nothing before the first checkpoint.

        A checkpoint that cannot be read is passed over for the one before: it may have been deleted just now.
        """
        for path in sorted(self._folder.glob("version-*.safetensors"), reverse=True):
            if path == self._seen:
                break
            mirror = _read_mirror(path)
            if mirror is not None:
                self._seen, self._budgets = path, _budgets_of(mirror)
                break
        return self._budgets


def budgets_of(summary: Summary) -> dict[str, Budget]:
    """Return the budget of every hospital in `summary` that declared something."""
    ledgers = {name: part.ledger for name, part in summary.per_hospital.items()}
    return {
        name: Budget(
            spent=ledger.spent, cap=ledger.cap, delta=ledger.delta, paused=ledger.paused, holds=ledger.claimable
        )
        for name, ledger in ledgers.items()
        if ledger is not None
    }


def _read_mirror(path: Path) -> _Mirror | None:
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
        return _Mirror.model_validate_json(metadata.get("progress", ""))
    except (OSError, SafetensorError, ValidationError):
        return None


def _budgets_of(mirror: _Mirror) -> dict[str, Budget]:
    found = {}
    for name, splits in mirror.spending.items():
        spending = splits.get(TRAINING)
        if spending is None or spending.spent is None or spending.cap is None or spending.delta is None:
            continue
        found[name] = Budget(
            spent=spending.spent,
            cap=spending.cap,
            delta=spending.delta,
            paused=spending.paused,
            holds=not spending.uncovered and not spending.refused,
        )
    return found
