"""One whole simulated federation in this process, by the same ServerApp that a deployment runs."""

from __future__ import annotations

from collections.abc import Sequence

from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp

from federation.config import Configuration, flatten
from server_app.main import app as server_app
from server_app.run_folder import RunFolder
from server_app.simulation.timing import SiteTiming
from server_app.simulation.virtual_grid import Tamper, VirtualGrid, VirtualSite
from server_app.summary import Summary


def simulate(
    configuration: Configuration,
    client_app: ClientApp,
    timings: Sequence[SiteTiming],
    *,
    fidelity: bool = False,
    tamper: Tamper = lambda message: [message],
) -> Summary:
    """Run a federation of `len(timings)` simulated hospitals and return its summary.

    Args:
        configuration: of the run.
        client_app: what every hospital runs.
        timings: virtual speed per hospital.
        fidelity: serialize every message as deployment does.
        tamper: what the network makes of a reply; for tests.

    Raises:
        AegisError: the run failed; its summary is written all the same.
    """
    flat = flatten(configuration)
    sites = [
        VirtualSite(node_config={"partition-id": index, "num-partitions": len(timings)}, timing=timing)
        for index, timing in enumerate(timings)
    ]
    grid = VirtualGrid(client_app, sites, flat, fidelity=fidelity, tamper=tamper)
    server_app(grid, Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(flat)))
    return Summary.model_validate_json(RunFolder.of(configuration.run).summary.read_text())
