"""Whether it is the consortium's server that answers, and nobody in between."""

from __future__ import annotations

from contextlib import closing

from cryptography import x509

from deploy.doctor.certificates import Lifetime, issuer_of
from deploy.doctor.checks import NETWORK_LIMIT_S, Check, Finding, failed, ok
from deploy.doctor.hospital import Hospital
from deploy.doctor.wire import ProxyError, explain, trusting, trusting_anyone

_LIMIT_S = 4 * NETWORK_LIMIT_S


def _meet_authority(site: Hospital) -> Finding:
    """Say whether the consortium's authority signed what is shown, whatever the names and dates in it."""
    try:
        with closing(site.route().secure(trusting(site.authority, names=False, dates=False))):
            return ok("the consortium's authority signed the server's certificate")
    except (OSError, ProxyError) as error:
        why = explain(error)
    try:
        shown = _shown(site)
    except (OSError, ProxyError) as error:
        return failed(explain(error), "Ask the coordinator whether host and port are right and the server runs.")
    return failed(
        f"a certificate issued by {issuer_of(shown)} ({why})",
        "Something on the way reads TLS: ask whoever runs the firewall or proxy to except this host and port from "
        "inspection. Do not add its authority here. If the issuer is the consortium's, its authority was made anew: "
        "ask the coordinator for a new kit.",
    )


def _read_dates(site: Hospital) -> Finding:
    try:
        return Lifetime.of(_shown(site), site.machine.now()).judge()
    except (OSError, ProxyError) as error:
        return failed(explain(error))


def _trust(site: Hospital) -> Finding:
    route = site.route()
    try:
        with closing(route.secure(trusting(site.authority))) as link:
            return ok(f"{link.version()}, verified for {route.host}")
    except (OSError, ProxyError) as error:
        return failed(explain(error))


def _shown(site: Hospital) -> x509.Certificate:
    """Return the certificate that the server, or whoever is in between, shows."""
    with closing(site.route().secure(trusting_anyone())) as link:
        return x509.load_der_x509_certificate(link.getpeercert(binary_form=True) or b"")


CHECKS: tuple[Check[Hospital], ...] = (
    Check(
        id="tls-private-ca",
        title="who signed what the server shows",
        expected="the consortium's certificate authority, ca.crt of the kit",
        mend="Ask the coordinator for a new kit.",
        look=_meet_authority,
        needs=("ca-valid", "route"),
        limit_s=_LIMIT_S,
        network=True,
    ),
    Check(
        id="tls-dates",
        title="how long the server's certificate is valid",
        expected="30 days at least",
        mend="Ask the coordinator to renew the server's certificate. Look at the check `clock`, too: a clock that is "
        "days off makes good certificates look bad.",
        look=_read_dates,
        needs=("tls-private-ca",),
        limit_s=_LIMIT_S,
        network=True,
    ),
    Check(
        id="tls-chain",
        title="the server's certificate",
        expected="verified against ca.crt alone, for the host in the kit",
        mend="Ask the coordinator whether `host` in kit.toml is a name that stands in the server's certificate.",
        look=_trust,
        needs=("tls-private-ca", "tls-dates"),
        limit_s=_LIMIT_S,
        network=True,
    ),
)
