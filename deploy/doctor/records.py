"""What the hospital keeps for ever and for masking: its privacy ledger with the anchor, and its synthetic images."""

from __future__ import annotations

from pathlib import Path

from aegis_cache.store.cache import open_cache
from client_app.ledger.files import LedgerPaths
from client_app.ledger.inspection import inspect_ledger
from client_app.ledger.verification import Finding as Fault
from deploy.doctor.checks import Check, Finding, failed, ok, skipped
from deploy.doctor.hospital import Hospital
from federation.errors import CacheError, LedgerError

_LIMIT_S = 300.0
_NO_LEDGER = "no ledger yet: the first release makes it"


def _read_ledger(site: Hospital) -> Finding:
    """Look at the rows and their chain; what key and anchor say comes next."""
    paths = _paths(site)
    if not paths.rows.exists():
        return skipped(_NO_LEDGER)
    try:
        found = inspect_ledger(paths.rows.parent, site.policy().hospital_id, key_folder=None)
    except LedgerError:
        return failed("a ledger that cannot be read")
    faults = found.audit.findings
    return failed(_tell(faults)) if faults else ok(f"{len(found.rows)} rows, each fits the one before")


def _compare_anchor(site: Hospital) -> Finding:
    paths = _paths(site)
    if not paths.rows.exists() and not paths.anchor.exists():
        return skipped(_NO_LEDGER)
    if not paths.anchor.exists():
        return failed(f"a ledger, but no anchor {paths.anchor.name} in keys-dir")
    if not paths.rows.exists():
        return failed(f"an anchor, but no ledger {paths.rows.name} in state-dir")
    try:
        found = inspect_ledger(paths.rows.parent, site.policy().hospital_id, key_folder=paths.key.parent)
    except LedgerError:
        return failed("a key or an anchor that is damaged, another hospital's, or open to others")
    if found.audit.findings:
        return failed(_tell(found.audit.findings))
    return ok("the ledger is as new as its anchor, and sealed by this hospital's key")


def _tell(faults: list[Fault]) -> str:
    rows = sorted({fault.seq for fault in faults if fault.seq})
    where = f", at rows {', '.join(map(str, rows[:5]))}" if rows else ""
    return f"{len(faults)} fault{'s' if len(faults) > 1 else ''}{where}"


def _paths(site: Hospital) -> LedgerPaths:
    volumes = site.volumes()
    return LedgerPaths.of(volumes["state-dir"], site.policy().hospital_id, volumes["keys-dir"])


def _read_cache(site: Hospital) -> Finding:
    policy = site.policy()
    if not policy.masking.cache:
        return skipped("site.toml names no cache")
    try:
        opened = open_cache(Path(policy.masking.cache))
    except CacheError as error:
        return failed(str(error))
    purpose = opened.manifest.purpose
    if (purpose.hospital_id, purpose.data_set) != (policy.hospital_id, policy.data.id):
        return failed(f"a cache of {purpose.hospital_id} for {purpose.data_set}")
    return ok(f"{len(opened)} synthetic images, every byte as it was published")


CHECKS: tuple[Check[Hospital], ...] = (
    Check(
        id="ledger-integrity",
        title="the privacy ledger",
        expected="rows that nobody altered, dropped, moved or slipped in",
        mend="Run `aegis ledger verify` for the details, and restore the newest backup of the state volume. Nothing "
        "leaves until it is sound.",
        look=_read_ledger,
        needs=("volumes-present",),
        limit_s=_LIMIT_S,
    ),
    Check(
        id="ledger-anchor",
        title="the ledger's anchor on the keys volume",
        expected="a ledger that is as new as the anchor has seen it, under this hospital's key",
        mend="Run `aegis ledger verify` for the details. Mount the right volumes, or restore the newest backup of the "
        "one that is older: what was spent is not forgotten, and nothing leaves until both agree.",
        look=_compare_anchor,
        needs=("volumes-present", "ledger-integrity"),
        limit_s=_LIMIT_S,
    ),
    Check(
        id="cache-integrity",
        title="the synthetic images for masking",
        expected="a cache for this hospital and data set, every byte as it was published",
        mend="Restore the folder that masking.cache names, or build it anew with `aegis cache build`.",
        look=_read_cache,
        needs=("policy-syntax",),
        limit_s=_LIMIT_S,
    ),
)
