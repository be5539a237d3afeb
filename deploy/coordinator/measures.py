"""The overview as numbers for Prometheus; what is not known has no sample, never a zero."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from deploy.coordinator.overview import Connection, Overview
from deploy.coordinator.run import Participant, Run
from deploy.coordinator.watch import Weight, find
from deploy.web.metrics import Sample

_ONLINE = "Whether the SuperLink counts the hospital's node as online."
_REFUSED = "Answers that were not used in the run, by reason, over all senders."


def measure(overview: Overview) -> Iterator[Sample]:
    """Yield everything that can be watched; numbers of a run are those of the run that `overview` shows."""
    yield Sample(
        name="aegis_superlink_up",
        value=not overview.superlink.failure,
        help="Whether the SuperLink answered when it was last asked.",
    )
    counts = Counter(seat.connection for seat in overview.seats)
    for state in Connection:
        yield Sample(
            name="aegis_hospitals",
            value=counts[state],
            help="Hospitals that were ever enrolled, by how they stand with the SuperLink.",
            labels={"state": state.value},
        )
    for seat in overview.seats:
        if seat.connection not in (Connection.UNKNOWN, Connection.REVOKED):
            labels = {"hospital": seat.hospital}
            yield Sample(name="aegis_hospital_online", value=seat.connected, help=_ONLINE, labels=labels)
    for certificate in overview.certificates:
        if certificate.ends is not None:
            yield Sample(
                name="aegis_certificate_expiry_seconds",
                value=certificate.ends - overview.now,
                help="Seconds until the certificate ends; negative after its end.",
                labels={"which": certificate.name},
            )
    findings = Counter(item.weight for item in find(overview))
    for weight in Weight:
        yield Sample(
            name="aegis_findings",
            value=findings[weight],
            help="What needs a hand, as the coordinator's page names it.",
            labels={"weight": weight.value},
        )
    if overview.run is not None:
        yield from _measure_run(overview.run, overview.now)


def _measure_run(run: Run, now: float) -> Iterator[Sample]:
    yield Sample(
        name="aegis_run_info",
        value=1,
        help="The run that the other numbers are of.",
        labels={"run": run.name, "status": run.standing.value},
    )
    yield Sample(name="aegis_model_version", value=run.version, help="Newest model version.")
    optional = (
        ("aegis_staleness_mean", run.staleness, "Mean staleness of applied updates, in versions."),
        ("aegis_accuracy", run.accuracy, "Accuracy on the server's images, newest evaluated version."),
        ("aegis_worst_accuracy", run.worst.accuracy if run.worst else None, "Accuracy at the worst hospital."),
    )
    for name, value, explained in optional:
        if value is not None and math.isfinite(value):
            yield Sample(name=name, value=value, help=explained)
    for code, count in sorted(run.refused.items()):
        yield Sample(
            name="aegis_updates_refused_total", value=count, help=_REFUSED, kind="counter", labels={"code": code}
        )
    for part in run.participants:
        yield from _measure_part(part, now)


def _measure_part(part: Participant, now: float) -> Iterator[Sample]:
    labels = {"hospital": part.hospital}
    yield Sample(
        name="aegis_updates_applied_total",
        value=part.updates,
        help="Updates of the hospital in the model of the run.",
        kind="counter",
        labels=labels,
    )
    if part.updated is not None:
        yield Sample(
            name="aegis_hospital_last_update_seconds",
            value=max(0.0, now - part.updated),
            help="Seconds since the hospital's last update was accepted in the run.",
            labels=labels,
        )
    if part.budget is not None and part.budget.holds:
        for name, value in (("aegis_epsilon_spent", part.budget.spent), ("aegis_epsilon_left", part.budget.left)):
            explained = "Epsilon by the account that binds at the hospital, as the server mirrors its ledger."
            yield Sample(name=name, value=value, help=explained, labels=labels)
