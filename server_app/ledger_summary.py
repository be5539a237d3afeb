"""From the mirror of a hospital's ledger to what a summary says about it."""

from __future__ import annotations

from federation.accounting.accounts import ACCOUNTS
from server_app.mirror import TRAINING
from server_app.progress import Progress
from server_app.summary import LedgerSummary, ScoresSummary


def summarize_ledger(progress: Progress, hospital_id: str) -> LedgerSummary | None:
    """Return the mirror of what `hospital_id` released of its training images; None when it declared nothing."""
    spending = progress.spending.get(hospital_id, {}).get(TRAINING)
    if spending is None or spending.delta is None or spending.spent is None or spending.cap is None:
        return None
    history = spending.history
    epsilons = {name: account.epsilon(history, spending.delta) for name, account in ACCOUNTS.items()}
    return LedgerSummary(
        mechanism=spending.mechanism,
        relation=spending.relation,
        unit=spending.unit,
        delta=spending.delta,
        account=spending.account,
        releases=history.releases,
        spent=spending.spent,
        cap=spending.cap,
        uncovered=spending.uncovered,
        paused=spending.paused,
        contradictions=spending.refused,
        **epsilons,
    )


def summarize_scores(progress: Progress, hospital_id: str) -> dict[str, ScoresSummary]:
    """Return the mirror of what `hospital_id` told about its scores, for each split that it declared something of."""
    return {
        split: ScoresSummary(
            releases=spending.history.releases,
            epsilon=spending.spent,
            delta=spending.delta,
            uncovered=spending.uncovered,
        )
        for split, spending in progress.spending.get(hospital_id, {}).items()
        if split != TRAINING and spending.spent is not None and spending.delta is not None
    }


def gain_of(progress: Progress, hospital_id: str) -> float | None:
    """Return the accuracy that the last version of the curve has above the initial one; None where it is not known.

    Both on the hospital's validation images where it answered both times, else both on the server's images. The
    hospital's accuracies were noised before they left it, so that their difference holds the noise of two answers.
    """
    if len(progress.curve) < 2 or progress.curve[0].version != 0:
        return None
    first, last = progress.curve[0], progress.curve[-1]
    if hospital_id in first.hospitals and hospital_id in last.hospitals:
        return last.hospitals[hospital_id].accuracy - first.hospitals[hospital_id].accuracy
    if first.central is None or last.central is None:
        return None
    return last.central.accuracy - first.central.accuracy
