"""The errors and codes that parties raise or exchange: what was expected, what was found, what to do.

Two kinds of failure never mix: an exception stays inside the process (its text may hold paths or data), a code
crosses the wire (it is one of a fixed list and derived from nothing private).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

_LONGEST_DETAIL = 500


class AegisError(Exception):
    """Base of every error this project raises on purpose; its text is for the person at this machine only."""


class ConfigurationError(AegisError):
    """A key, a type or a value of the configuration is not what it must be."""


class DataError(AegisError):
    """A data set is missing, damaged, or not of the kind that was asked for."""


class PartitionError(AegisError):
    """A data set cannot be divided among hospitals as requested."""


class ModelError(AegisError):
    """A model does not exist, or does not fit the data or the parameters it is given."""


class CheckpointError(AegisError):
    """A checkpoint is damaged, foreign, or belongs to another configuration."""


class PrivacyError(AegisError):
    """A privacy parameter is impossible, or a bound was asked for where its formula does not hold."""


class LedgerError(AegisError):
    """A ledger is damaged, foreign, older than its anchor, busy, or its volume cannot be written."""


class AlreadyReleasedError(LedgerError):
    """The task has been answered before; answering it again would be a second release under one entry."""


class BudgetExhaustedError(AegisError):
    """A release would exceed the cap; nothing was spent."""


class GenerationError(AegisError):
    """A generator is missing something, or cannot make the images it is asked for."""


class CacheError(AegisError):
    """A cache of synthetic images is damaged, foreign, incomplete or busy, or its volume cannot be written."""


class RunFailedError(AegisError):
    """A run ended without the result it was started for."""


class RefusalCode(StrEnum):
    """Why a server refused or lost one update. Counted in `summary.json` under `refused`."""

    MALFORMED = "malformed"
    WRONG_PROTOCOL = "wrong-protocol"
    WRONG_NAMES = "wrong-names"
    WRONG_SHAPE = "wrong-shape"
    WRONG_DTYPE = "wrong-dtype"
    NON_FINITE = "non-finite"
    NO_EXAMPLES = "no-examples"
    WRONG_VERSION = "wrong-version"
    TOO_STALE = "too-stale"
    TOO_LARGE = "too-large"
    DISCARDED = "discarded"
    WRONG_HOSPITAL = "wrong-hospital"
    WRONG_KEY = "wrong-key"
    UNKNOWN_NODE = "unknown-node"
    UNKNOWN_MESSAGE = "unknown-message"
    DUPLICATE_REPLY = "duplicate-reply"
    LATE_REPLY = "late-reply"
    INTERRUPTED = "interrupted"
    SITE_ERROR = "site-error"
    NODE_LOST = "node-lost"
    DUPLICATE_HOSPITAL = "duplicate-hospital"
    DATA_MISMATCH = "data-mismatch"
    ROUND_TOO_SMALL = "round-too-small"
    PRIVACY_MISMATCH = "privacy-mismatch"
    BUDGET_CONTRADICTION = "budget-contradiction"
    BUDGET_EXHAUSTED = "budget-exhausted"


class RefusalError(AegisError):
    """A reply that the server does not use.

    Attributes:
        code: the kind of refusal.
        reason: the code, or for a site's own error also which one: what is counted and reported.
        detail: what was expected and what was found, shortened: a reply may hold texts of any length.
    """

    def __init__(self, code: RefusalCode, detail: str, *, reason: str = "") -> None:
        """Build the refusal from its `code` and a `detail` that says what was expected and found."""
        super().__init__(f"{code.value}: {detail[:_LONGEST_DETAIL]}")
        self.code = code
        self.reason = reason or code.value
        self.detail = detail if len(detail) <= _LONGEST_DETAIL else f"{detail[:_LONGEST_DETAIL]}..."


class SiteErrorCode(IntEnum):
    """Everything a hospital ever says about a failure: the code and its fixed sentence, nothing else.

    Flower keeps 0 to 99 for itself, so ours start at 100.
    """

    INTERNAL = 100
    PROTOCOL = 101
    PLAN_REFUSED = 102
    DATA_UNAVAILABLE = 103
    MODEL_MISMATCH = 104
    TRAINING_FAILED = 105
    NON_FINITE_UPDATE = 106
    EMPTY_SPLIT = 107
    CONFIGURATION = 108
    BUDGET_EXHAUSTED = 109
    LEDGER_UNAVAILABLE = 110
    ALREADY_RELEASED = 111
    POLICY_MISSING = 112
    POLICY_MECHANISM = 113
    POLICY_NOISE = 114
    POLICY_MODEL = 115
    POLICY_MASKING = 116
    POLICY_EXAMPLES = 117
    POLICY_METRICS = 118
    NOTHING_PENDING = 119
    MASKING_CACHE = 120
    MASKING_PROVENANCE = 121
    MODEL_CRAFTED = 122

    @property
    def sentence(self) -> str:
        """The fixed text sent beside the code."""
        return _SENTENCES[self]


_SENTENCES = {
    SiteErrorCode.INTERNAL: "The hospital could not answer; its local log says why.",
    SiteErrorCode.PROTOCOL: "The message does not follow the protocol this hospital speaks.",
    SiteErrorCode.PLAN_REFUSED: "The hospital refused what it was asked to do.",
    SiteErrorCode.DATA_UNAVAILABLE: "The hospital's data could not be read.",
    SiteErrorCode.MODEL_MISMATCH: "The model does not fit this hospital's model or data.",
    SiteErrorCode.TRAINING_FAILED: "Local training did not finish.",
    SiteErrorCode.NON_FINITE_UPDATE: "Local training diverged; nothing was released.",
    SiteErrorCode.EMPTY_SPLIT: "The hospital has no data in the split that was asked for.",
    SiteErrorCode.CONFIGURATION: "The configuration was refused.",
    SiteErrorCode.BUDGET_EXHAUSTED: "The release would exceed this hospital's privacy budget.",
    SiteErrorCode.LEDGER_UNAVAILABLE: "The hospital's privacy ledger cannot be used; nothing was released.",
    SiteErrorCode.ALREADY_RELEASED: "The hospital has answered this task before and does not answer it twice.",
    SiteErrorCode.POLICY_MISSING: "The hospital has no site policy; without one nothing is released.",
    SiteErrorCode.POLICY_MECHANISM: "The site policy demands another privacy mechanism.",
    SiteErrorCode.POLICY_NOISE: "The site policy does not allow noise of this kind.",
    SiteErrorCode.POLICY_MODEL: "The site policy does not allow this model.",
    SiteErrorCode.POLICY_MASKING: "The site policy demands masking.",
    SiteErrorCode.POLICY_EXAMPLES: "The hospital has fewer training images than its policy demands.",
    SiteErrorCode.POLICY_METRICS: "The site policy does not let evaluation metrics leave like this.",
    SiteErrorCode.NOTHING_PENDING: "The hospital keeps no result that fits the decision.",
    SiteErrorCode.MASKING_CACHE: "The hospital has no synthetic images that fit the masking that was asked for.",
    SiteErrorCode.MASKING_PROVENANCE: "No epsilon can be claimed with this hospital's synthetic images.",
    SiteErrorCode.MODEL_CRAFTED: "The model looks crafted to read images; the hospital did not train it.",
}


class SiteError(AegisError):
    """A failure at a hospital, with the code that may leave it.

    Attributes:
        code: the only part of this error that crosses the wire.
    """

    def __init__(self, code: SiteErrorCode, detail: str) -> None:
        """Build the error from the public `code` and a `detail` that stays in the hospital's log."""
        super().__init__(detail)
        self.code = code
