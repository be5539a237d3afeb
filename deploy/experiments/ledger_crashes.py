"""Clients of the ledger that are killed wherever they touch the disk, and what is on the disk afterwards.

Run as a program of its own (`python -m deploy.experiments.ledger_crashes FOLDER KILLS SEED`), because it forks: a
child works until it dies, the parent reads what is left.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from client_app.ledger.inspection import inspect_ledger
from deploy.experiments.ledger_victim import DATA_SET, DELTA, EVENT, HOSPITAL, Kill, Site, live
from federation.accounting.accounts import ACCOUNTS
from federation.accounting.events import History

_MESSAGES_PER_LIFE = 4


@dataclass(slots=True, kw_only=True)
class Toll:
    """What all kills together did.

    Attributes:
        kills: clients that died where they should.
        points: names of the points at which one died.
        unrecorded_releases: messages that left without a committed row.
        double_spends: messages charged, committed or released more than once, and charges that no row explains.
        lost_beyond_one: reservations lost in a kill beyond the first.
        faults: findings in ledgers, and clients that ended otherwise than by the kill.
        slowest_restart_s: longest time to open a ledger afterwards, in seconds.
        releases: messages that left.
        rows: in all ledgers.
    """

    kills: int = 0
    points: list[str] = field(default_factory=list)
    unrecorded_releases: int = 0
    double_spends: int = 0
    lost_beyond_one: int = 0
    faults: list[str] = field(default_factory=list)
    slowest_restart_s: float = 0.0
    releases: int = 0
    rows: int = 0


def run_matrix(folder: Path, kills: int, seed: int) -> Toll:
    """Kill clients at every named point, then at random ones until `kills` were meant to die, and return the toll.

    Args:
        folder: for the ledgers; should be empty.
        kills: how many in all, at least; 0 for every point once, in a first or a later client.
        seed: decides points and their order.
    """
    draw = np.random.default_rng(seed)
    toll = Toll()
    for account in ACCOUNTS.values():
        account.epsilon(History.of([EVENT]), DELTA)  # Libraries that are loaded now are not loaded in every child.
    first, later = discover_points(folder / "discovery")
    points = [(True, *item) for item in first.items() if item[0] not in later or kills]
    points += [(False, *item) for item in later.items()]
    chosen = [*range(len(points)), *draw.integers(len(points), size=max(0, kills - len(points)))]
    old = Site(folder / "old")
    run_client(old, [], None, expire=False, abandoned="left")
    for number, (birth, point, hits) in enumerate(points[index] for index in chosen):
        last = Kill(birth=birth, point=point, hit=int(draw.integers(hits)) + 1)
        site = Site(folder / f"birth-{number}") if birth else old
        strike(site, last, number, toll, expire=bool(draw.integers(2)))
    toll.points = sorted({point for _, point, _ in points})
    finish(old, last, toll)
    return toll


def discover_points(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the points that a first and a later client pass, with how often."""
    site = Site(folder)
    counts = []
    for life in range(2):
        messages = [f"m{life}-{number}" for number in range(_MESSAGES_PER_LIFE)]
        run_client(site, messages, None, expire=True)
        counts.append(json.loads((site.root / "passed.json").read_text(encoding="utf-8")))
        run_client(site, [], None, expire=False, abandoned="left")
    return counts[0], counts[1]


def run_client(
    site: Site, messages: Sequence[str], kill: Kill | None, *, expire: bool, abandoned: str = ""
) -> int | None:
    """Run a client in a forked process and return its exit code, -9 when it was killed."""
    site.root.mkdir(parents=True, exist_ok=True)
    options = {"expire": expire, "abandoned": abandoned}
    process = multiprocessing.get_context("fork").Process(target=live, args=(site, messages, kill), kwargs=options)
    process.start()
    process.join()
    return process.exitcode


def strike(site: Site, kill: Kill, number: int, toll: Toll, *, expire: bool) -> None:
    """Let a client die by `kill`, look at what it left, and let another answer the same messages.

    What that one leaves is seen after the next kill, or at the end.
    """
    messages = [f"m{number}-{index}" for index in range(_MESSAGES_PER_LIFE)]
    lost = lost_reservations(site)
    if run_client(site, messages, kill, expire=True) == -signal.SIGKILL:
        toll.kills += 1
    else:
        toll.faults.append(f"{kill}: not killed")
    examine(site, kill, toll)
    toll.lost_beyond_one += max(0, lost_reservations(site) - lost - 1)
    if run_client(site, messages, None, expire=expire, abandoned=f"left-{number}"):
        toll.faults.append(f"{kill}: the next client failed")
    if kill.birth:
        finish(site, kill, toll)


def examine(site: Site, kill: Kill, toll: Toll) -> None:
    """Open the ledger as a restarted client does, and compare its rows, read by plain SQL, with what left."""
    started = time.perf_counter()
    with site.open() as ledger:
        toll.slowest_restart_s = max(toll.slowest_restart_s, time.perf_counter() - started)
        spend = ledger.spend(DATA_SET, DELTA)
    audit = inspect_ledger(site.folder, HOSPITAL, key_folder=site.keys).audit
    toll.faults += [f"{kill}: row {finding.seq}: {finding.text}" for finding in audit.findings]
    charged, committed, _ = read_messages(site)
    left = Counter(line.split()[0] for line in _outbox_lines(site))
    toll.unrecorded_releases += sum(1 for message in left if message not in committed)
    repeated = [times for counter in (left, charged, committed) for times in counter.values() if times > 1]
    toll.double_spends += len(repeated) + (spend.history.releases != sum(charged.values()))


def read_messages(site: Site) -> tuple[Counter[str], Counter[str], int]:
    """Return how often each message is charged and committed in the rows, and how many are charged in vain."""
    database = sqlite3.connect(site.folder / f"{HOSPITAL}.ledger")
    rows = [(seq, kind, json.loads(body)) for seq, kind, body in database.execute("SELECT seq, kind, body FROM rows")]
    database.close()
    names = {seq: body["message"] for seq, kind, body in rows if kind == "reserve"}
    cancelled = {body["reserve"] for _, kind, body in rows if kind == "cancel"}
    done = {body["reserve"] for _, kind, body in rows if kind == "commit"}
    committed = Counter(names[body["reserve"]] for _, kind, body in rows if kind == "commit")
    charged = Counter(name for seq, name in names.items() if seq not in cancelled)
    return charged, committed, len(names.keys() - cancelled - done)


def lost_reservations(site: Site) -> int:
    """Return how many reservations are paid for and neither cancelled nor committed."""
    return read_messages(site)[2] if (site.folder / f"{HOSPITAL}.ledger").exists() else 0


def finish(site: Site, kill: Kill, toll: Toll) -> None:
    """Look for the last time at a hospital that is done with, and add its rows and releases."""
    examine(site, kill, toll)
    toll.rows += len(inspect_ledger(site.folder, HOSPITAL, key_folder=None).rows)
    toll.releases += len(_outbox_lines(site))


def _outbox_lines(site: Site) -> list[str]:
    return site.outbox.read_text(encoding="utf-8").splitlines() if site.outbox.exists() else []


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(run_matrix(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))
