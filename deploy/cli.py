"""The `aegis` command; every subcommand lives in a module of its own."""

from __future__ import annotations

import typer

from deploy.attack.command import attack
from deploy.cache.command import cache
from deploy.experiments.command import experiment
from deploy.federate.command import federate
from deploy.inspect_data import data
from deploy.ledger import ledger
from deploy.node.command import node
from deploy.policy import policy
from deploy.rebuild_report import report_command
from deploy.simulate import simulate_command
from deploy.trust.command import enrol

main = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)
main.command("simulate")(simulate_command)
main.command("report")(report_command)
main.add_typer(experiment, name="experiment")
main.add_typer(data, name="data")
main.add_typer(cache, name="cache")
main.add_typer(attack, name="attack")
main.add_typer(ledger, name="ledger")
main.add_typer(policy, name="policy")
main.add_typer(enrol, name="enrol")
main.add_typer(node, name="node")
main.add_typer(federate, name="federate")


@main.callback()
def _group() -> None:
    """Train imaging models together, hospital by hospital."""


if __name__ == "__main__":
    main()
