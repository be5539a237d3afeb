"""What a run guarantees and what it does not, in words for whoever answers for the patients."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Context

from federation.config import MaskingConfig, PrivacyConfig, TrainingConfig
from federation.errors import RefusalCode
from server_app.masking_words import describe_masking
from server_app.summary import HospitalSummary, LedgerSummary

_WHAT_LEAVES = (
    "Guaranteed: a hospital sends model updates, the number of its training images, the shape of its data and a digest "
    "of its class names, accuracy and AUROC where this run asks for them, and error codes from a fixed list; no image."
)
_NO_NOISE = (
    "Not guaranteed: privacy of what these reveal. This run added no noise, so no epsilon is claimed: whoever sees an "
    "update can try to reconstruct images from it, and exact scores on few images can reveal labels."
)
_MEASURED = "Measured, not guaranteed: accuracy and AUROC, on the images named beside them."
_UNITS = {"record": "one training image", "patient": "one patient", "update": "all that a hospital put into one update"}
_RELATIONS = {
    "add-remove": "is added or removed",
    "zero-out": "is replaced by nothing",
    "replace-one": "is replaced by anything else",
}
_NOT_BOUNDED = (
    "Not guaranteed: the number of training images (or patients) is told as it is; error codes and the time an answer "
    "takes are not noised; the guarantee is each hospital's own, for images that no other hospital holds. A simulation "
    "draws its noise from a seed: its epsilon describes the method, and protects nobody."
)

_SCORES = (
    "Guaranteed (metrics): the accuracies that a hospital tells of one split are together differentially private with "
    "at most epsilon {epsilon} and delta {delta}, when one image of that split is added or removed; its ledger keeps "
    "the count for each split, and AUROC stays at home. An image lies in one split; whoever has images in training, "
    "validation and test, as a patient may, loses the sum of their epsilons, and more with several images in one."
)
_SCORES_AT_HOME = "Guaranteed: scores stayed at home; no hospital told accuracy or AUROC."
_SCORES_REFUSED = (
    "Not guaranteed: privacy of scores that a hospital told without an acceptable declaration; this run refused them."
)
_SCORES_UNCOVERED = (
    "No epsilon is claimed for scores on splits whose scores were also told without a mechanism, or under another unit."
)
_SCORES_REASONS = {
    f"evaluation:{code.value}"
    for code in (RefusalCode.MALFORMED, RefusalCode.PRIVACY_MISMATCH, RefusalCode.BUDGET_CONTRADICTION)
}
_LATE = (RefusalCode.LATE_REPLY.value, RefusalCode.TOO_STALE.value)
_SPENT_IN_VAIN = (
    "Not guaranteed: that what is spent is of use. {count} updates came too late: they had left their hospitals and "
    "stand in their ledgers, and the model holds nothing of them."
)
_DISCARDED = (
    "Guaranteed (two-phase release): {count} results that came too late were deleted at their hospitals, unreleased, "
    "which costs no epsilon; the server was told of each that it was ready, and when."
)


def describe_guarantees(
    privacy: PrivacyConfig,
    hospitals: Mapping[str, HospitalSummary],
    *,
    masking: MaskingConfig,
    training: TrainingConfig,
) -> list[str]:
    """Return the sentences of a run.

    Args:
        privacy: what the server asked for.
        hospitals: as they declared and the mirror recomputed it.
        masking: what the server asked for.
        training: the same; it decides what synthetic images weigh.
    """
    masked = describe_masking(masking, training, privacy.mechanism)
    if privacy.mechanism == "none":
        return [_WHAT_LEAVES, _NO_NOISE, _MEASURED, *masked]
    ledgers = {name: item.ledger for name, item in hospitals.items() if item.ledger is not None}
    return [
        _WHAT_LEAVES,
        *_proven(ledgers),
        *_unproven(ledgers),
        *_about_the_late(hospitals),
        _NOT_BOUNDED,
        *_about_scores(hospitals),
        _MEASURED,
        *masked,
    ]


def _proven(ledgers: Mapping[str, LedgerSummary]) -> list[str]:
    clean = {name: ledger for name, ledger in ledgers.items() if ledger.claimable}
    kinds = sorted({(item.mechanism, item.unit, item.relation, item.delta) for item in clean.values()})
    sentences = []
    for mechanism, unit, relation, delta in kinds:
        spent = max(
            item.spent
            for item in clean.values()
            if (item.mechanism, item.unit, item.relation, item.delta) == (mechanism, unit, relation, delta)
        )
        sentences.append(
            f"Guaranteed ({mechanism}): all updates of a hospital together are differentially private with epsilon "
            f"{_round_up(spent)} and delta {_round_up(delta)}, when {_UNITS[unit]} {_RELATIONS[relation]}; "
            "every hospital keeps the count in its own ledger."
        )
    return sentences


def _unproven(ledgers: Mapping[str, LedgerSummary]) -> list[str]:
    open_books = sorted(name for name, ledger in ledgers.items() if not ledger.claimable)
    if not open_books:
        return []
    return [
        f"No epsilon is claimed for {', '.join(open_books)}: the same images were also released without a mechanism "
        "or under another unit, or a declaration was refused."
    ]


def _round_up(value: float) -> str:
    """Return `value` in three significant digits, never less than it is."""
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(value))):.3g}"


def _about_the_late(hospitals: Mapping[str, HospitalSummary]) -> list[str]:
    """Return what updates that came too late have cost, and what those that were not released have not."""
    late = sum(item.refused.get(reason, 0) for item in hospitals.values() for reason in _LATE)
    discarded = sum(item.discarded for item in hospitals.values())
    counted = ((_SPENT_IN_VAIN, late), (_DISCARDED, discarded))
    return [sentence.format(count=count) for sentence, count in counted if count]


def _about_scores(hospitals: Mapping[str, HospitalSummary]) -> list[str]:
    """Return what holds for scores: their largest epsilon, or that none were told."""
    booked = [item for hospital in hospitals.values() for item in hospital.scores.values()]
    refused = any(_SCORES_REASONS & hospital.refused.keys() for hospital in hospitals.values())
    sentences = [_SCORES_REFUSED] if refused else []
    if not booked:
        return sentences or [_SCORES_AT_HOME]
    if any(item.uncovered for item in booked):
        sentences.append(_SCORES_UNCOVERED)
    if clean := [item for item in booked if not item.uncovered]:
        epsilon, delta = max(item.epsilon for item in clean), max(item.delta for item in clean)
        sentences.insert(0, _SCORES.format(epsilon=_round_up(epsilon), delta=_round_up(delta)))
    return sentences
