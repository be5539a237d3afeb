"""From the mirror of a hospital's ledger to what a summary says about it."""

from __future__ import annotations

from federation.accounting.accounts import account_of
from federation.metrics import Scores
from server_app.mirror import TRAINING
from server_app.progress import Progress
from server_app.summary import LedgerSummary


def summarize_ledger(progress: Progress, hospital_id: str) -> LedgerSummary | None:
    """Return the mirror of what `hospital_id` released of its training images; None when it declared nothing."""
    spending = progress.spending.get(hospital_id, {}).get(TRAINING)
    if spending is None or spending.delta is None or spending.spent is None or spending.cap is None:
        return None
    history = spending.history
    linear, rdp, pld = (account_of(name).epsilon(history, spending.delta) for name in ("linear", "rdp", "pld"))
    return LedgerSummary(
        mechanism=spending.mechanism,
        relation=spending.relation,
        unit=spending.unit,
        delta=spending.delta,
        account=spending.account,
        releases=history.releases,
        spent=spending.spent,
        cap=spending.cap,
        linear=linear,
        rdp=rdp,
        pld=pld,
        uncovered=spending.uncovered,
        paused=spending.paused,
        contradictions=spending.refused,
    )


def gain_of(progress: Progress, hospital_id: str, final: Scores | None) -> float | None:
    """Return the accuracy that the final model has above the initial one; None where one was not evaluated.

    At the hospital itself where it answered both times, else on the server's images.
    """
    if not progress.curve or progress.curve[0].version != 0:
        return None
    first, last = progress.curve[0], progress.curve[-1]
    if final is not None and hospital_id in first.hospitals:
        return final.accuracy - first.hospitals[hospital_id].accuracy
    if first.central is None or last.central is None:
        return None
    return last.central.accuracy - first.central.accuracy
