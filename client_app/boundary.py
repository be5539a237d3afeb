"""The wall around every handler: whatever happens inside, only records of the contract or a fixed code come out.

Flower sends the text of an exception to the server verbatim, and a handler that returns None stalls a SuperNode for
ever; both end here. This is the one place that may catch everything.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict

from client_app.site import default_state_dir, identify_site
from client_app.site_log import log_failure
from federation.config import parse_configuration
from federation.errors import (
    AegisError,
    AlreadyReleasedError,
    BudgetExhaustedError,
    CacheError,
    ConfigurationError,
    DataError,
    LedgerError,
    ModelError,
    PartitionError,
    PrivacyError,
    RefusalCode,
    RefusalError,
    SiteError,
    SiteErrorCode,
)

Handler = Callable[[Message, Context], RecordDict]

_LOGGER = logging.getLogger("aegis.client")

_CODES: dict[type[AegisError], SiteErrorCode] = {
    ConfigurationError: SiteErrorCode.CONFIGURATION,
    DataError: SiteErrorCode.DATA_UNAVAILABLE,
    PartitionError: SiteErrorCode.DATA_UNAVAILABLE,
    ModelError: SiteErrorCode.MODEL_MISMATCH,
    PrivacyError: SiteErrorCode.CONFIGURATION,
    BudgetExhaustedError: SiteErrorCode.BUDGET_EXHAUSTED,
    AlreadyReleasedError: SiteErrorCode.ALREADY_RELEASED,
    LedgerError: SiteErrorCode.LEDGER_UNAVAILABLE,
    CacheError: SiteErrorCode.MASKING_CACHE,
}
_PROTOCOL_REFUSALS = (RefusalCode.MALFORMED, RefusalCode.WRONG_PROTOCOL)


def guarded(handler: Handler) -> Callable[[Message, Context], Message]:
    """Return `handler` as Flower calls it, answering every message with its records or with a scrubbed error.

    Guarantee: the reply to a failed task is one `SiteErrorCode` and its fixed sentence; the exception, with everything
    its text may hold, goes to the hospital's own log only.
    Not guaranteed: that the records of a successful task are free of private information.
    """

    @functools.wraps(handler)
    def answer(message: Message, context: Context) -> Message:
        try:
            content = handler(message, context)
            if not isinstance(content, RecordDict):
                raise SiteError(SiteErrorCode.INTERNAL, f"Expected records, the handler returned {type(content)}.")
            return Message(content, reply_to=message)
        except (Exception, SystemExit) as error:
            code = code_of(error)
            _log_locally(context, code, error)
            return Message(Error(int(code), code.sentence), reply_to=message)

    return answer


def code_of(error: BaseException) -> SiteErrorCode:
    """Return the code under which `error` is told to the server."""
    if isinstance(error, SiteError):
        return error.code
    if isinstance(error, RefusalError):
        return SiteErrorCode.PROTOCOL if error.code in _PROTOCOL_REFUSALS else SiteErrorCode.MODEL_MISMATCH
    return _CODES.get(type(error), SiteErrorCode.INTERNAL) if isinstance(error, AegisError) else SiteErrorCode.INTERNAL


def _log_locally(context: Context, code: SiteErrorCode, error: BaseException) -> None:
    """Log `error` at the hospital; a failure to do so costs a warning without details, never the scrubbed reply."""
    try:
        folder, hospital_id = _where_to_log(context)
        log_failure(folder, hospital_id, code, error)
    except Exception:
        _LOGGER.warning("A failure could not be logged.")


def _where_to_log(context: Context) -> tuple[Path, str]:
    """Return the site's log folder and id, or the default folder when the site itself is misconfigured."""
    try:
        site = identify_site(context, parse_configuration(context.run_config))
    except AegisError:
        return default_state_dir(), "unidentified"
    return site.state_dir, site.hospital_id
