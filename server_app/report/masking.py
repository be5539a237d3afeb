"""The part of a report about masking: what was asked for, and how many images a server is expected to read even so.

It is shown when masking was on. Masking is an empirical defence, never differential privacy: the numbers are counts of
`federation.occupancy`, no bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from federation.config import MaskingConfig, PrivacyConfig, TrainingConfig
from federation.occupancy import automatic_size, expected_verbatim_share
from server_app.masking_words import describe_account, list_effects, list_gaps, weighs_equally
from server_app.report.formats import MISSING, Value, show_count
from server_app.report.order import natural_key
from server_app.report.pieces import Figure
from server_app.summary import Summary

MULTIPLES = (1, 4, 16)
"""How many times the assumed bins a server is taken to have: the number is its own choice."""

_MODES = {
    "interleaved": "The synthetic images were divided among the mini-batches, and every step took the mean over both: "
    "in one epoch a synthetic image weighs as much as a real one.",
    "joint": "Every step took the mean over a mini-batch and all synthetic images: a synthetic image weighs as much as "
    "a real one in each step, and over one epoch as many times that as there are mini-batches.",
    "sequential": "A step on the mean over all synthetic images ended each epoch, unweighted: in one epoch a synthetic "
    "image weighs batch size / M of a real one.",
}
_LAMBDA = "A step on all synthetic images ended each epoch, weighted by numbers of images: "
_WEIGHTS_KEPT = "in one epoch a synthetic image weighs as much as a real one, under SGD without momentum."
_WEIGHTS_LOST = (
    "a synthetic image would weigh as much as a real one under SGD without momentum, but not with this optimizer."
)
_CLIPPED = " That is before DP-SGD clips the gradients of real images, and of these alone."
_NEVER = "never enrolled"


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """An expected share of images read verbatim; `above` says whether it exceeds the target."""

    value: Value
    above: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskingRow:
    """One line of the table: `masked` holds a share for each of `MULTIPLES`."""

    hospital: str
    images: Value
    synthetic: Value
    weight: Value
    unmasked: Value
    masked: list[Share]
    above: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Masking:
    """What the section shows: `lead` in a sentence, key numbers, the table, and both lists of words.

    `bins` are the numbers of bins of the columns, `counted` says whether synthetic images count in them.
    """

    lead: str
    figures: list[Figure]
    bins: list[str]
    target: str
    counted: bool
    rows: list[MaskingRow]
    effects: list[str]
    gaps: list[str]
    account: str


def describe_masking(summary: Summary) -> Masking | None:
    """Return what the report of `summary` says about masking; None for a run without it."""
    # Unchecked, so that the values of a later version are told as they are.
    masking = MaskingConfig.model_construct(**_table("masking", summary))
    if not masking.is_on:
        return None
    training = TrainingConfig.model_construct(**_table("training", summary))
    mechanism = PrivacyConfig.model_construct(**_table("privacy", summary)).mechanism
    return Masking(
        lead=_lead(masking, training) + (_CLIPPED if mechanism == "dp-sgd" else ""),
        figures=_figures(masking),
        bins=[show_count(masking.capacity * multiple).text for multiple in MULTIPLES],
        target=f"{masking.target:g}",
        counted=weighs_equally(masking, training),
        rows=_rows(summary, masking, training),
        effects=[_capitalize(text) for text in list_effects(masking, training, mechanism)],
        gaps=[_capitalize(text) for text in list_gaps(masking, training)],
        account=describe_account(mechanism),
    )


def _table(name: str, summary: Summary) -> dict[str, Any]:
    """Return the keys of one table of the flat configuration; those that are not there have their defaults."""
    start = f"{name}."
    return {key.removeprefix(start): value for key, value in summary.configuration.items() if key.startswith(start)}


def _lead(masking: MaskingConfig, training: TrainingConfig) -> str:
    if masking.mode == "lambda":
        return _LAMBDA + (_WEIGHTS_KEPT if weighs_equally(masking, training) else _WEIGHTS_LOST)
    return _MODES.get(masking.mode, f"The mode was {masking.mode}.")


def _figures(masking: MaskingConfig) -> list[Figure]:
    size, automatic = masking.images, f"resolved per hospital for the target {masking.target:g}"
    unchanged = not masking.refreshes
    return [
        Figure(label="Mode", value=Value(text=masking.mode), note="empirical, not differential privacy"),
        Figure(
            label="Synthetic images per epoch (M)",
            value=show_count(size) if size else Value(text=masking.size),
            note="at every hospital" if size else automatic,
        ),
        Figure(
            label="Assumed bins (k)", value=show_count(masking.capacity), note="a server chooses, and may have more"
        ),
        Figure(
            label="Refresh between updates",
            value=Value(text=masking.refresh),
            note="what is new between two updates stands alone in their difference" if unchanged else "",
            alarming=unchanged,
        ),
    ]


def _rows(summary: Summary, masking: MaskingConfig, training: TrainingConfig) -> list[MaskingRow]:
    """Return a row for every hospital: the fewest images, of which most are read, first; unknown ones last."""
    images = {name: part.examples for name, part in summary.per_hospital.items()}
    ids = sorted(images, key=lambda name: (images[name] or math.inf, natural_key(name)))
    return [_row(name, images[name], masking, training) if images[name] else _missing(name) for name in ids]


def _row(hospital: str, real: int, masking: MaskingConfig, training: TrainingConfig) -> MaskingRow:
    steps = -(-real // training.batch_size) if masking.mode == "interleaved" else 1
    synthetic = masking.images or automatic_size(real, masking.capacity, masking.target, steps=steps)
    counted = synthetic if weighs_equally(masking, training) else 0
    shares = [expected_verbatim_share(real, counted, masking.capacity * multiple) for multiple in MULTIPLES]
    above = [share > masking.target for share in shares]
    return MaskingRow(
        hospital=hospital,
        images=show_count(real),
        synthetic=show_count(synthetic),
        weight=_weight(real, synthetic, masking, training),
        unmasked=_share(expected_verbatim_share(real, 0, masking.capacity), real),
        masked=[Share(value=_share(share, real), above=over) for share, over in zip(shares, above, strict=True)],
        above=above[0],
    )


def _missing(hospital: str) -> MaskingRow:
    none = Value(text=MISSING, title=_NEVER, missing=True)
    return MaskingRow(
        hospital=hospital,
        images=none,
        synthetic=none,
        weight=none,
        unmasked=none,
        masked=[Share(value=none) for _ in MULTIPLES],
        above=False,
    )


def _weight(real: int, synthetic: int, masking: MaskingConfig, training: TrainingConfig) -> Value:
    """Return what a synthetic image weighs in one epoch beside a real one."""
    batch = min(real, training.batch_size)
    if masking.mode == "sequential":
        return Value(text=f"{batch / synthetic:.3g}", title=f"{batch}/{synthetic}")
    if not weighs_equally(masking, training):
        return Value(text=MISSING, title="the optimizer does not keep the weights", missing=True)
    return show_count(-(-real // training.batch_size) if masking.mode == "joint" else 1)


def _share(share: float, real: int) -> Value:
    """Return a share rounded up, so that it is never shown as nothing, with the number of images it stands for."""
    rounded_up = max(1, math.ceil(share * 1000 - 1e-6)) / 1000
    return Value(text=f"{rounded_up:.3f}", title=f"{share:.4g}, {share * real:.3g} of {real} images")


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
