"""The running server: Flower's database, the runs, the ports, and what the edge lets through."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from deploy.doctor.answers import TROUBLE, judge_closed_paths, judge_health
from deploy.doctor.checks import NETWORK_LIMIT_S, Check, Finding, Status, failed, ok, skipped, warning
from deploy.doctor.consortium_files import open_database, registered_keys
from deploy.doctor.server import Server
from deploy.doctor.volumes import GIB, find_loss, judge_room
from deploy.doctor.wire import Route, explain, trusting

_LIMIT_S = 4 * NETWORK_LIMIT_S
_LARGE_DATABASE = 1 * GIB
_NO_DATABASE, _NO_RUNS, _NO_EDGE = (f"not looked at: no {option}" for option in ("--database", "--runs", "--edge"))


def _keep_database(site: Server) -> Finding:
    if site.database is None:
        return skipped(_NO_DATABASE)
    if not site.database.is_file():
        return failed(f"no file {site.database}")
    loss = find_loss(site.machine, site.database.parent)
    return failed(f"its folder {loss}") if loss else ok(f"on {site.machine.file_system(site.database.parent)}")


def _read_database(site: Server) -> Finding:
    if site.database is None:
        return skipped(_NO_DATABASE)
    try:
        with closing(open_database(site.database)) as opened:
            (answer,) = opened.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        return failed(f"it cannot be read: {error}")
    return ok("every page is sound") if answer == "ok" else failed("a page is damaged")


def _measure_database(site: Server) -> Finding:
    if site.database is None:
        return skipped(_NO_DATABASE)
    size = site.database.stat().st_size
    told = f"{size / GIB:.2f} GiB"
    return warning(told) if size > _LARGE_DATABASE else ok(told)


def _compare_members(site: Server) -> Finding:
    if site.database is None:
        return skipped(_NO_DATABASE)
    try:
        known = registered_keys(site.database)
    except sqlite3.Error:
        return failed("the database has no list of nodes")
    members = site.roster().members
    missing = [member.id for member in members if not known.issuperset(member.keys)]
    strangers = len(known - {key for member in members for key in member.keys})
    faults = [f"not let in: {', '.join(missing)}"] if missing else []
    faults += [f"let in, but of nobody in consortium.toml: {strangers} keys"] if strangers else []
    return failed("; ".join(faults)) if faults else ok(f"{len(known)} keys, each of a hospital that takes part")


def _keep_runs(site: Server) -> Finding:
    if site.runs is None:
        return skipped(_NO_RUNS)
    if not site.runs.is_dir():
        return failed(f"no folder {site.runs}")
    loss = find_loss(site.machine, site.runs)
    return failed(f"it {loss}") if loss else ok(f"on {site.machine.file_system(site.runs)}")


def _leave_room(site: Server) -> Finding:
    folders = [site.folder, *([site.database.parent] if site.database else []), *([site.runs] if site.runs else [])]
    findings = [judge_room(site.machine, folder) for folder in folders if folder.is_dir()]
    return min(findings, key=lambda finding: [Status.FAILED, Status.WARNING, Status.OK].index(finding.status))


def _try_ports(site: Server) -> Finding:
    roster = site.roster()
    internal = next(iter(roster.internal_names), roster.host)
    ports = {"edge": (roster.port, roster.host), "SuperLink": (site.superlink_port, internal)}
    taken = [
        f"the {whose}'s port {port}"
        for whose, (port, name) in ports.items()
        if not site.machine.port_is_free(port) and not _is_ours(site.authority, port, name)
    ]
    return failed(f"somebody else listens on {' and '.join(taken)}") if taken else ok("free, or held by this server")


def _is_ours(authority: Path, port: int, name: str) -> bool:
    return _trust(Route(host="127.0.0.1", port=port, name=name), authority).status is Status.OK


def _trust_edge(site: Server) -> Finding:
    route = site.route()
    return skipped(_NO_EDGE) if route is None else _trust(route, site.authority)


def _trust(route: Route, authority: Path) -> Finding:
    try:
        with closing(route.secure(trusting(authority))) as link:
            return ok(f"{link.version()}, verified for {route.name}")
    except TROUBLE as error:
        return failed(explain(error))


def _ask_edge(site: Server) -> Finding:
    route = site.route()
    return skipped(_NO_EDGE) if route is None else judge_health(route, site.authority)


def _knock_at_edge(site: Server) -> Finding:
    route = site.route()
    return skipped(_NO_EDGE) if route is None else judge_closed_paths(route, site.authority)


CHECKS: tuple[Check[Server], ...] = (
    Check(
        id="database-durable",
        title="where the SuperLink's database lies",
        expected="on a disk, not in memory and not in the container's own layer",
        mend="Mount a volume for --database: without it, every restart forgets hospitals and runs.",
        look=_keep_database,
    ),
    Check(
        id="database-integrity",
        title="the SuperLink's database",
        expected="no damaged page",
        mend="Stop the SuperLink and restore the newest backup of the database.",
        look=_read_database,
        needs=("database-durable",),
        limit_s=300.0,
    ),
    Check(
        id="database-size",
        title="the size of the SuperLink's database",
        expected="1 GiB at most: it grows with every update, and a long lock of a large one throws hospitals out",
        mend="Between two runs, stop the SuperLink, move the database away, and register the hospitals anew.",
        look=_measure_database,
        needs=("database-durable",),
    ),
    Check(
        id="hospitals-registered",
        title="whom the SuperLink lets in",
        expected="the hospitals of consortium.toml, and nobody else",
        mend="Run `aegis enrol register`; if keys are known that nobody enrolled, ask who could reach the Control API.",
        look=_compare_members,
        needs=("consortium-readable", "database-integrity"),
    ),
    Check(
        id="runs-durable",
        title="the folder of the runs",
        expected="a disk that can be written to",
        mend="Mount a volume for the runs, writable for the server's user: without it, a crash costs the whole run.",
        look=_keep_runs,
    ),
    Check(
        id="disk",
        title="room for the consortium, the database and the runs",
        expected="5 GiB, and 1 GiB at the very least",
        mend="Make room: a full disk ends runs.",
        look=_leave_room,
        needs=("consortium-readable",),
    ),
    Check(
        id="ports",
        title="the ports of the edge and of the SuperLink",
        expected="free, or held by this server",
        mend="End what listens there.",
        look=_try_ports,
        needs=("ca-valid",),
        limit_s=_LIMIT_S,
    ),
    Check(
        id="edge-tls",
        title="what the edge shows",
        expected="the server's certificate, verified as hospitals do",
        mend="Start the edge, or let it take the certificate in server/current.",
        look=_trust_edge,
        needs=("ca-valid",),
        limit_s=_LIMIT_S,
        network=True,
    ),
    Check(
        id="edge-health",
        title="whether the SuperLink answers through the edge",
        expected="200 from /health",
        mend="Start the SuperLink, and look at the edge's log.",
        look=_ask_edge,
        needs=("edge-tls",),
        limit_s=_LIMIT_S,
        network=True,
    ),
    Check(
        id="edge-blocks",
        title="what the edge keeps from hospitals",
        expected="403 or 404 from the Control and Runtime API",
        mend="Let the edge pass /v1/fleet/ and /health only: whoever reaches the rest can run code at every hospital.",
        look=_knock_at_edge,
        needs=("edge-tls",),
        limit_s=_LIMIT_S,
        network=True,
    ),
)
