"""What the server says to this hospital, and what it must not say."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.error import ApiErrorCode
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

from deploy.doctor.certificates import read_key
from deploy.doctor.checks import NETWORK_LIMIT_S, Check, Finding, failed, ok, warning
from deploy.doctor.hospital import Hospital
from deploy.doctor.wire import Answer, ProxyError, Route, explain, trusting

_LIMIT_S = 4 * NETWORK_LIMIT_S
_CLOSED = ("/v1/control/list-nodes", "/v1/control/start-run", "/v1/runtime/acquire-task")
_SHUT = (403, 404)
_OK, _UNAUTHORIZED = 200, 401
_NEVER_S = 0.0
_NOTICED_S, _WRONG_S = 2.0, 60.0
TROUBLE = (OSError, ProxyError, http.client.HTTPException)
"""What can happen to a request."""


def judge_health(route: Route, authority: Path) -> Finding:
    """Return whether a server says that it is well."""
    try:
        answer = route.ask(trusting(authority), "/health")
    except TROUBLE as error:
        return failed(explain(error))
    return ok("200") if answer.status == _OK else failed(f"{answer.status}")


def judge_closed_paths(route: Route, authority: Path) -> Finding:
    """Knock where no hospital belongs, with requests that Flower refuses before it acts on them: they say nothing."""
    context = trusting(authority)
    try:
        found = {path: route.ask(context, path, method="POST", body=b"").status for path in _CLOSED}
    except TROUBLE as error:
        return failed(explain(error))
    open_paths = [f"{path} answers {status}" for path, status in found.items() if status not in _SHUT]
    return failed("; ".join(open_paths)) if open_paths else ok("everything but the Fleet API is shut")


def _ask_health(site: Hospital) -> Finding:
    return judge_health(site.route(), site.authority)


def _try_closed_paths(site: Hospital) -> Finding:
    return judge_closed_paths(site.route(), site.authority)


def _read_clock(site: Hospital) -> Finding:
    """Compare the clocks over a connection that ignores dates: with a wrong clock no other comes about."""
    begun = site.machine.now()
    try:
        answer = site.route().ask(trusting(site.authority, names=False, dates=False), "/health")
    except TROUBLE as error:
        return failed(explain(error))
    try:
        # The date is the begin of a second.
        theirs = parsedate_to_datetime(answer.headers.get("date", "")).timestamp() + 0.5
    except (TypeError, ValueError):
        return warning("the server tells no time", "Compare this machine's clock with another one.")
    lead = (begun + site.machine.now()) / 2 - theirs
    told = f"{abs(lead):.0f} s {'ahead of' if lead > 0 else 'behind'} the server's"
    if abs(lead) <= _NOTICED_S:
        return ok("within 2 s of the server's")
    return failed(told) if lead > SYSTEM_TIME_TOLERANCE or abs(lead) > _WRONG_S else warning(told)


def _be_known(site: Hospital) -> Finding:
    """Ask to be activated with a heartbeat interval that Flower refuses, but only of a node that it knows.

    Nothing changes at the server: the interval is looked at after the signature and the key, and before the node.
    """
    answer = _ask_activation(site)
    if isinstance(answer, Finding):
        return answer
    code = _error_code(answer)
    if code == ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL:
        return ok("the server knows this hospital's key")
    if code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
        return failed("the server does not know this hospital's key, or no longer")
    if answer.status == _UNAUTHORIZED:
        return failed(
            "the server refuses this hospital's signature",
            "Look at the checks `clock` and `kit-key-matches`; if both are well, ask the coordinator.",
        )
    return failed(f"an answer that this version does not know: {answer.status}")


def _ask_activation(site: Hospital) -> Answer | Finding:
    key = read_key(site.key)
    public_key = public_key_to_bytes(key.public_key())
    timestamp = datetime.fromtimestamp(site.machine.now(), UTC).isoformat()
    signature = sign_message(key, timestamp.encode("ascii"))
    headers = {
        "Content-Type": PROTOBUF_MEDIA_TYPE,
        "Accept": PROTOBUF_MEDIA_TYPE,
        TIMESTAMP_HEADER: timestamp,
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public_key).decode("ascii"),
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(signature).decode("ascii"),
    }
    request = ActivateNodeRequest(public_key=public_key, heartbeat_interval=_NEVER_S)
    try:
        return site.route().ask(
            trusting(site.authority),
            "/v1/fleet/activate-node",
            method="POST",
            headers=headers,
            body=request.SerializeToString(),
        )
    except TROUBLE as error:
        return failed(explain(error))


def _error_code(answer: Answer) -> int | None:
    try:
        content = json.loads(answer.body)
    except ValueError:
        return None
    code = content.get("code") if isinstance(content, dict) else None
    return code if isinstance(code, int) else None


CHECKS: tuple[Check[Hospital], ...] = (
    Check(
        id="health",
        title="the server's own word",
        expected="200 from /health",
        mend="Tell the coordinator that the server is up but not well.",
        look=_ask_health,
        needs=("tls-chain",),
        limit_s=_LIMIT_S,
        network=True,
    ),
    Check(
        id="fleet-only",
        title="what the server keeps from hospitals",
        expected="403 or 404 from the Control and Runtime API",
        mend="Tell the coordinator at once: whoever reaches these paths can run code at every hospital. The server's "
        "edge must pass /v1/fleet/ and /health only.",
        look=_try_closed_paths,
        needs=("tls-chain",),
        limit_s=_LIMIT_S,
        network=True,
    ),
    Check(
        id="clock",
        title="this machine's clock",
        expected="within 2 s of the server's; signatures are refused from 5 s ahead",
        mend="Let this machine set its clock by NTP; a container takes its host's.",
        look=_read_clock,
        needs=("tls-private-ca",),
        limit_s=_LIMIT_S,
        network=True,
    ),
    Check(
        id="auth",
        title="whether the server accepts this hospital's key",
        expected="a signed request is answered, and nothing is changed by it",
        mend="Ask the coordinator to register this hospital, and compare the public key in kit.toml with theirs.",
        look=_be_known,
        needs=("kit-key-matches", "tls-chain", "clock"),
        limit_s=_LIMIT_S,
        network=True,
    ),
)
