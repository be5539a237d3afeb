"""The page's numbers for the hospital's own monitoring: no path, no name of a run, nothing derived from an image."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from client_app.ledger.release import ACCOUNT_NAMES
from deploy.node.state import NodeState, Phase
from deploy.status_page.connection import UNKNOWN, phase_of
from deploy.status_page.observer import Snapshot
from deploy.status_page.site_log import SiteLog
from deploy.status_page.spending import Account, Spending
from deploy.status_page.view import recent_restarts
from deploy.web.metrics import Sample

_PHASES = (*(phase.value for phase in Phase), UNKNOWN)
_LABELS = ("aegis", "flwr", "torch", "python", "image")

_up = partial(Sample, name="aegis_node_up", help="1 while the server answers this hospital's node.")
_phase = partial(Sample, name="aegis_node_phase", help="1 for how the node stands with the server, else 0.")
_paused = partial(Sample, name="aegis_paused", help="1 while the stop switch is on.")
_contact = partial(Sample, name="aegis_last_contact_seconds", help="Seconds since the server last answered the node.")
_skew = partial(Sample, name="aegis_clock_skew_seconds", help="The server's clock minus this machine's.")
_restarts = partial(
    Sample,
    name="aegis_restarts_total",
    help="Restarts of the node since its supervisor started, of which it remembers at most 20.",
    kind="counter",
)
_recent = partial(Sample, name="aegis_restarts_last_day", help="Those of the last 24 hours.")
_build = partial(Sample, name="aegis_build_info", help="Always 1; the labels say what runs here.")
_releases = partial(
    Sample, name="aegis_releases_total", help="Releases that the ledger has booked and not cancelled.", kind="counter"
)
_sound = partial(
    Sample, name="aegis_ledger_sound", help="1 for a ledger without a fault, 0 for one that is not usable."
)
_spent = partial(Sample, name="aegis_epsilon_spent", help="Epsilon of the protected releases, by each account.")
_left = partial(
    Sample, name="aegis_epsilon_left", help="Epsilon left of the newest run's cap, by the account that binds."
)
_claimable = partial(Sample, name="aegis_epsilon_claimable", help="1 while these epsilons bound everything released.")
_expiry = partial(
    Sample, name="aegis_certificate_expiry_seconds", help="Seconds until the certificate ends; negative: since it did."
)
_tasks = partial(
    Sample,
    name="aegis_tasks_total",
    help="Finished tasks by what came of them, as far as the log goes.",
    kind="counter",
)
_refused = partial(
    Sample, name="aegis_refusals_total", help="Refusals and failures by code, as far as the log goes.", kind="counter"
)


def sample(seen: Snapshot) -> Iterator[Sample]:
    """Yield the numbers of `seen`; what is not known is left out."""
    phase = phase_of(seen.node, seen.now)
    yield _up(value=phase == Phase.CONNECTED)
    yield from (_phase(value=phase == name, labels={"phase": name}) for name in _PHASES)
    yield _paused(value=seen.pause is not None)
    if isinstance(seen.node, NodeState):
        yield from _sample_node(seen.node, seen.now)
    if isinstance(seen.spending, Spending):
        yield _releases(value=seen.spending.releases)
        for account in seen.spending.accounts:
            yield from _sample_account(account)
    yield _sound(value=isinstance(seen.spending, Spending) and not seen.spending.findings)
    for which, end in seen.certificates.items():
        if isinstance(end, float):
            yield _expiry(value=round(end - seen.now), labels={"which": which})
    if isinstance(seen.log, SiteLog):
        yield from (_tasks(value=number, labels={"event": event}) for event, number in seen.log.counts.items())
        yield from (_refused(value=item.count, labels={"code": item.name}) for item in seen.log.refusals)


def _sample_node(node: NodeState, now: float) -> Iterator[Sample]:
    if node.last_contact is not None:
        yield _contact(value=round(now - node.last_contact, 1))
    if node.clock_skew_s is not None:
        yield _skew(value=node.clock_skew_s)
    yield _restarts(value=len(node.restarts))
    yield _recent(value=recent_restarts(node, now))
    yield _build(value=1, labels={name: node.versions.get(name, "") for name in _LABELS})


def _sample_account(account: Account) -> Iterator[Sample]:
    line = account.line
    if line.latest is None or line.spend is None:
        yield _claimable(value=not line.unprotected, labels={"data_set": line.data_set, "delta": ""})
        return
    labels = {"data_set": line.data_set, "delta": f"{line.latest.delta:g}"}
    for name in ACCOUNT_NAMES:
        yield _spent(value=line.spend.epsilon(name), labels={**labels, "account": name})
    if line.left is not None:
        yield _left(value=line.left, labels={**labels, "account": line.latest.account})
    yield _claimable(value=line.spend.claimable, labels=labels)
