"""All checks, in the order in which they are carried out: each after those that it needs."""

from __future__ import annotations

from deploy.doctor import (
    answers,
    consortium,
    data,
    identity,
    kit,
    network,
    node,
    policy,
    records,
    resources,
    service,
    software,
    tls,
    volumes,
)
from deploy.doctor.checks import Check
from deploy.doctor.hospital import Hospital
from deploy.doctor.server import Server

HOSPITAL_CHECKS: tuple[Check[Hospital], ...] = (
    *kit.CHECKS,
    *network.CHECKS,
    *tls.CHECKS,
    *answers.CHECKS,
    *policy.CHECKS,
    *data.CHECKS,
    *identity.CHECKS,
    *volumes.CHECKS,
    *records.CHECKS,
    *node.CHECKS,
    *resources.RESOURCES,
    *resources.GRAPHICS,
    *software.PROCESS,
    *software.IMAGE,
)

SERVER_CHECKS: tuple[Check[Server], ...] = (
    *consortium.CHECKS,
    *service.CHECKS,
    *resources.RESOURCES,
    *software.PROCESS,
)
