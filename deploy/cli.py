"""The `aegis` command; every subcommand lives in a module of its own."""

from __future__ import annotations

import typer

from deploy.simulate import simulate_command

main = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Train imaging models together, hospital by hospital."
)
main.command("simulate")(simulate_command)


@main.callback()
def _group() -> None:
    """Train imaging models together, hospital by hospital."""
