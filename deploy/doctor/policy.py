"""The hospital's own policy: whether it can be read, what it means, and whose it is."""

from __future__ import annotations

from client_app.policy import SitePolicy
from deploy.doctor.checks import Check, Finding, failed, ok, warning
from deploy.doctor.hospital import Hospital
from deploy.policy import find_doubts
from federation.errors import SiteError


def _read(site: Hospital) -> Finding:
    try:
        policy = site.policy()
    except SiteError as error:
        return failed(str(error))
    return ok(f"the policy of {policy.hospital_id} for {policy.data.id}")


def _weigh(site: Hospital) -> Finding:
    policy = site.policy()
    if _refuses_everything(policy):
        return failed("a policy under which every training task is refused")
    doubts = list(find_doubts(policy))
    return warning(" ".join(doubts)) if doubts else ok("nothing to think about")


def _refuses_everything(policy: SitePolicy) -> bool:
    masking = policy.masking
    nothing_allowed = not policy.models.allowed or not policy.privacy.mechanisms
    return nothing_allowed or (masking.required and not masking.cache)


def _compare_ids(site: Hospital) -> Finding:
    own, given = site.policy().hospital_id, site.kit().hospital_id
    if own == given:
        return ok(f"{own} in both")
    return failed(f"{own} in the policy, {given} in the kit")


CHECKS: tuple[Check[Hospital], ...] = (
    Check(
        id="policy-syntax",
        title="the site policy",
        expected="a site.toml without unknown keys or impossible values",
        mend="Correct site.toml; docs/site-policy.md explains every key, `aegis policy check` reads it again.",
        look=_read,
    ),
    Check(
        id="policy-meaning",
        title="what the site policy amounts to",
        expected="something is allowed, and nothing is to be thought about",
        mend="Read `aegis policy check`, and let whoever signs the policy decide.",
        look=_weigh,
        needs=("policy-syntax",),
    ),
    Check(
        id="policy-hospital-id",
        title="whose policy it is",
        expected="the hospital-id of the kit",
        mend="Write the kit's hospital-id into site.toml, or mount this hospital's own kit.",
        look=_compare_ids,
        needs=("kit-readable", "policy-syntax"),
    ),
)
