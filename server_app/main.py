"""The coordinator's Flower ServerApp: from a configuration and a grid to a trained model, a summary and a report."""

from __future__ import annotations

import logging
import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from federation.config import parse_configuration
from server_app.clock import CarriesClock, clock_of
from server_app.grid_link import GridLink
from server_app.interruption import interrupted_at_once
from server_app.session import Session

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one federation.

    Raises:
        AegisError: the run did not reach its end, or a configured hospital contributed nothing; Flower then marks it
            as failed. Summary and report are written all the same.
    """
    configuration, clock = parse_configuration(context.run_config), clock_of(grid)
    if not isinstance(grid, CarriesClock):
        _log_to_stdout()
    link = GridLink(grid, clock, give_up_s=configuration.aggregation.give_up_s)
    with interrupted_at_once():
        Session(link, clock, configuration).run()


def _log_to_stdout() -> None:
    """Show progress lines on standard output, which Flower streams to whoever follows the run."""
    logger = logging.getLogger("aegis")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("aegis  %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
