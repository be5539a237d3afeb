"""What the page says, as words in the order in which they are shown; the terminal and `--json` say the same.

Nothing here is escaped: templates escape everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploy.node.state import NodeState
from deploy.status_page.account_view import AccountView, view_account
from deploy.status_page.connection import Connection, describe, is_healthy, say_skew
from deploy.status_page.observer import Fault, PolicyWords, Snapshot
from deploy.status_page.site_log import SiteLog, newest
from deploy.status_page.spending import Spending
from deploy.web.words import ago, count, day, in_days, moment, span

_TASKS_SHOWN = 10
_DAY_S = 86_400.0
_SOON_S = 30 * _DAY_S
_CERTIFICATES = {"ca": "The consortium's authority (ca.crt)", "server": "The server's certificate"}

MASKING = (
    "Masking mixes synthetic images into training, so that an update shows less of the real ones. It is an empirical "
    "defence, no differential privacy: it lowers what known attacks read and bounds nothing. What the ledger counts is "
    "bounded by noise alone."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One labelled value."""

    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something at a time: a task, a restart."""

    time: str
    ago: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalView:
    """The refusals of one code."""

    name: str
    sentence: str
    count: int
    latest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateView:
    """One certificate: what it is for, until when it holds, and whether that is well."""

    name: str
    until: str
    warning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The whole page.

    Attributes:
        hospital_id: whose; empty where nobody says.
        consortium: of the kit; empty for none.
        time: of the look.
        well: whether nobody need do anything: connected, starting or paused, ledger and policy sound.
        connection: the top.
        paused: whether the stop switch is on.
        facts: beside the connection.
        restarts: of the last day, newest first.
        tasks: newest first.
        task_notes: what else there is to say of the log.
        refusals: by code, newest first.
        accounts: of the ledger.
        account_notes: what else there is to say of the ledger.
        allows: what the policy allows.
        doubts: what to think about in it.
        certificates: and until when they hold.
        versions: what runs here.
        masking: what it is and is not.
    """

    hospital_id: str
    consortium: str
    time: str
    well: bool
    connection: Connection
    paused: bool
    facts: tuple[Fact, ...]
    restarts: tuple[Happening, ...]
    tasks: tuple[Happening, ...]
    task_notes: tuple[str, ...]
    refusals: tuple[RefusalView, ...]
    accounts: tuple[AccountView, ...]
    account_notes: tuple[str, ...]
    allows: tuple[str, ...]
    doubts: tuple[str, ...]
    certificates: tuple[CertificateView, ...]
    versions: tuple[Fact, ...]
    masking: str = MASKING


def build_view(seen: Snapshot) -> View:
    """Return what the page says of `seen`."""
    now, node = seen.now, seen.node
    state = node if isinstance(node, NodeState) else None
    log = seen.log if isinstance(seen.log, SiteLog) else SiteLog()
    spending = seen.spending if isinstance(seen.spending, Spending) else Spending()
    policy = seen.policy if isinstance(seen.policy, PolicyWords) else PolicyWords(allows=(), doubts=())
    sound = isinstance(seen.spending, Spending) and not spending.findings and isinstance(seen.policy, PolicyWords)
    return View(
        hospital_id=seen.hospital_id,
        consortium=seen.consortium,
        time=moment(now),
        well=is_healthy(node, now) and sound,
        connection=describe(node, seen.pause, now),
        paused=seen.pause is not None,
        facts=_facts(state, now) if state else (),
        restarts=_restarts(state, now) if state else (),
        tasks=tuple(_happening(entry.time, entry.words, now) for entry in newest(log, _TASKS_SHOWN)),
        task_notes=_task_notes(seen.log, spending),
        refusals=tuple(
            RefusalView(name=item.name, sentence=item.sentence, count=item.count, latest=ago(now - item.latest))
            for item in log.refusals
        ),
        accounts=tuple(view_account(account, now) for account in spending.accounts),
        account_notes=_account_notes(seen.spending),
        allows=policy.allows,
        doubts=(seen.policy.sentence,) if isinstance(seen.policy, Fault) else policy.doubts,
        certificates=tuple(_certificate(name, end, now) for name, end in seen.certificates.items()),
        versions=tuple(Fact(label=name, value=text) for name, text in sorted(state.versions.items())) if state else (),
    )


def recent_restarts(node: NodeState, now: float) -> int:
    """Return how often the SuperNode was started anew within the last day, of the newest twenty times."""
    return sum(now - _DAY_S <= restart.time <= now for restart in node.restarts)


def _facts(node: NodeState, now: float) -> tuple[Fact, ...]:
    contact = "never since the start" if node.last_contact is None else ago(now - node.last_contact)
    skew = "not known" if node.clock_skew_s is None else say_skew(node.clock_skew_s)
    return (
        Fact(label="Server", value=node.server or "not known"),
        Fact(label="Last contact", value=contact),
        Fact(label="Clocks", value=skew),
        Fact(label="Restarts in the last day", value=str(recent_restarts(node, now))),
        Fact(label="State", value=f"{node.phase.value} for {span(max(0.0, now - node.since))}"),
        Fact(label="Supervisor started", value=ago(now - node.started)),
    )


def _restarts(node: NodeState, now: float) -> tuple[Happening, ...]:
    recent = [restart for restart in reversed(node.restarts) if now - _DAY_S <= restart.time <= now]
    return tuple(_happening(restart.time, restart.reason, now) for restart in recent)


def _happening(time: float, words: str, now: float) -> Happening:
    return Happening(time=moment(time), ago=ago(now - time), words=words)


def _task_notes(log: SiteLog | Fault, spending: Spending) -> tuple[str, ...]:
    if isinstance(log, Fault):
        return (log.sentence,)
    notes = []
    if spending.under_way:
        paid = count(spending.under_way, "release")
        notes.append(f"{paid} paid for in the ledger and not finished: under way, or broken off.")
    if log.damaged:
        notes.append(f"{count(log.damaged, 'line')} of the log cannot be read.")
    return tuple(notes)


def _account_notes(spending: Spending | Fault) -> tuple[str, ...]:
    if isinstance(spending, Fault):
        return (spending.sentence,)
    notes = []
    if spending.findings:
        faults = count(spending.findings, "fault")
        notes.append(f"The ledger is not sound ({faults}), so nothing is released: `aegis ledger verify` names them.")
    if not spending.anchored:
        notes.append("Seals and anchor are not checked: this page may not look at the keys.")
    return tuple(notes)


def _certificate(name: str, end: float | Fault, now: float) -> CertificateView:
    if isinstance(end, Fault):
        return CertificateView(name=_CERTIFICATES[name], until="not known", warning=end.sentence)
    left = end - now
    warning = "expired" if left < 0 else "ends soon: ask the coordinator for the next one" if left < _SOON_S else ""
    return CertificateView(name=_CERTIFICATES[name], until=f"{day(end)}, {in_days(left)}", warning=warning)
