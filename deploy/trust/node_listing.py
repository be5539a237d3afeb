"""`python -m deploy.trust.node_listing CONNECTION`: who is registered at a SuperLink, with their keys, as JSON.

`flwr supernode list` leaves the keys out, and without them nobody can tell which hospital a node is; this asks the
same API through Flower's own client. A process of its own, because Flower reads its settings from the environment.
"""

from __future__ import annotations

import contextlib
import json
import sys

from flwr.cli.flower_config import read_superlink_connection
from flwr.cli.utils import init_http_client_from_connection
from flwr.proto.control_pb2 import ListNodesRequest


def main() -> None:
    """Write a list of nodes with `id`, `key` in PEM, and `status` to standard output."""
    with contextlib.redirect_stdout(sys.stderr):
        client = init_http_client_from_connection(read_superlink_connection(sys.argv[1]))
        try:
            nodes = client.ListNodes(ListNodesRequest()).nodes_info
        finally:
            client.close()
    content = [
        {"id": str(node.node_id), "key": node.public_key.decode(errors="replace"), "status": node.status}
        for node in nodes
    ]
    sys.stdout.write(json.dumps(content))


if __name__ == "__main__":
    main()
