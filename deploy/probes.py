"""Health checks of containers, which have no curl: `python -m deploy.probes http URL [CA]` or `... grpc ADDRESS`."""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request

_TIMEOUT_S = 5.0
_OK = 200


def answers_http(url: str, authority: str = "") -> bool:
    """Return whether `url` answers 200; over TLS, under the certificate authority in the file `authority`."""
    context = ssl.create_default_context(cafile=authority) if authority else None
    # A proxy that the environment names, as Docker may for every container, is none on the way to oneself.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with direct.open(url, timeout=_TIMEOUT_S) as answer:
            return bool(answer.status == _OK)
    except (urllib.error.URLError, OSError):
        return False


def answers_grpc(address: str) -> bool:
    """Return whether the gRPC health service that Flower offers at `address` says that it serves."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


if __name__ == "__main__":
    kind, *given = sys.argv[1:]
    sys.exit(0 if (answers_grpc if kind == "grpc" else answers_http)(*given) else 1)
