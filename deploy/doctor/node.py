"""The node that runs here, or should: its state, its switch, its ports, and whether another one is in its place."""

from __future__ import annotations

from deploy.doctor.checks import Check, Finding, failed, ok, skipped, warning
from deploy.doctor.hospital import Hospital
from deploy.node.pause import is_paused
from deploy.node.state import NodeState, Phase
from federation.errors import DataError

_HOUR_S = 3600.0
_MANY_RESTARTS = 3
_WATCHED = 12  # Longer than the ten seconds within which a supervisor writes its state again.
_PAUSE_S = 1.0
_BROKEN = frozenset({Phase.UNREACHABLE, Phase.REFUSED, Phase.CLOCK_SKEWED, Phase.MISCONFIGURED})
_SUFFIXES = {"state-dir": (".ledger",), "keys-dir": (".anchor", ".key")}


def _be_alone(site: Hospital) -> Finding:
    strangers = [
        f"{path.name} in {name}"
        for name, folder in site.volumes().items()
        for path in sorted(folder.iterdir())
        if path.suffix in _SUFFIXES[name] and path.stem != site.policy().hospital_id
    ]
    if strangers:
        return failed(f"another hospital's files: {', '.join(strangers)}")
    if _is_shared(site):
        return failed(
            "two supervisors write to the state volume in turn",
            "End one of the two containers; each needs an id, a kit and volumes of its own.",
        )
    return ok("nobody else's files, and no second node")


def _is_shared(site: Hospital) -> bool:
    """Return whether the state changes hands while one looks: every supervisor writes when it was started."""
    first = _fresh(site)
    if first is None:
        return False
    for _ in range(_WATCHED):
        site.machine.pause(_PAUSE_S)
        state = _fresh(site)
        if state is not None and state.started != first.started:
            return True
    return False


def _fresh(site: Hospital) -> NodeState | None:
    """Return the node's state where it is fresh and can be read; a damaged file is another check's business."""
    try:
        return site.fresh_node_state()
    except DataError:
        return None


def _watch(site: Hospital) -> Finding:
    try:
        state = site.node_state()
    except DataError:
        return failed("the node's state cannot be read", "Restart the container: it writes its state anew.")
    if state is None:
        return skipped("no node has run here yet")
    if site.fresh_node_state() is None:
        return warning(f"last heard of {(site.machine.now() - state.written) / 60:.0f} minutes ago")
    recent = sum(site.machine.now() - restart.time < _HOUR_S for restart in state.restarts)
    told = f"{state.phase.value}, {recent} restarts within the last hour"
    if state.phase in _BROKEN:
        return failed(f"{told}: {state.detail}")
    if recent > _MANY_RESTARTS:
        return warning(f"{told}; the last: {state.restarts[-1].reason}")
    return ok(told) if state.phase is Phase.CONNECTED else warning(told)


def _read_switch(site: Hospital) -> Finding:
    if is_paused(site.volumes()["state-dir"]):
        return warning("this hospital has paused itself, so it takes no part")
    return ok("not paused")


def _try_ports(site: Hospital) -> Finding:
    if _fresh(site) is not None:
        return skipped("the hospital's own node is running and holds them")
    taken = [str(port) for port in (site.page_port, site.runtime_port) if not site.machine.port_is_free(port)]
    return failed(f"somebody listens on {' and '.join(taken)}") if taken else ok("both are free")


CHECKS: tuple[Check[Hospital], ...] = (
    Check(
        id="duplicate-hospital-id",
        title="whether another hospital or a second node uses these volumes",
        expected="files of this hospital only, and one node that writes there",
        mend="Mount this hospital's own volumes, or correct hospital-id in site.toml: one id is one ledger.",
        look=_be_alone,
        needs=("volumes-present",),
        limit_s=3 * _WATCHED,
    ),
    Check(
        id="watchdog",
        title="how the node stands",
        expected="connected, and not restarted more than three times within an hour",
        mend="Mend what else failed here; the node's own log lies in `node` on the state volume.",
        look=_watch,
        needs=("volumes-present",),
    ),
    Check(
        id="stop-switch",
        title="the stop switch",
        expected="not paused",
        mend="Resume on the status page or with `aegis status resume`, when whoever paused it agrees.",
        look=_read_switch,
        needs=("volumes-present",),
    ),
    Check(
        id="ports",
        title="the ports of the status page and of Flower's own API",
        expected="free, or held by this hospital's node",
        mend="End what listens there, or give the node other ports.",
        look=_try_ports,
        needs=("volumes-present",),
    ),
)
