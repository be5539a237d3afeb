"""The `aegis` command; every subcommand lives in a module of its own, which is imported when it is called.

A hospital's `aegis doctor` or `aegis enrol` starts at once: libraries for training are none of their business.
"""

from __future__ import annotations

from collections.abc import Callable

import click
import typer
from typer.core import TyperGroup


def _simulate() -> Callable[..., None]:
    from deploy.simulate import simulate_command

    return simulate_command


def _report() -> Callable[..., None]:
    from deploy.rebuild_report import report_command

    return report_command


def _experiment() -> typer.Typer:
    from deploy.experiments.command import experiment

    return experiment


def _data() -> typer.Typer:
    from deploy.inspect_data import data

    return data


def _cache() -> typer.Typer:
    from deploy.cache.command import cache

    return cache


def _attack() -> typer.Typer:
    from deploy.attack.command import attack

    return attack


def _ledger() -> typer.Typer:
    from deploy.ledger import ledger

    return ledger


def _policy() -> typer.Typer:
    from deploy.policy import policy

    return policy


def _enrol() -> typer.Typer:
    from deploy.trust.command import enrol

    return enrol


def _node() -> typer.Typer:
    from deploy.node.command import node

    return node


def _federate() -> typer.Typer:
    from deploy.federate.command import federate

    return federate


def _status() -> typer.Typer:
    from deploy.status_page.command import status

    return status


def _doctor() -> typer.Typer:
    from deploy.doctor.command import doctor

    return doctor


def _bundle() -> typer.Typer:
    from deploy.bundle.command import bundle

    return bundle


def _coordinator() -> typer.Typer:
    from deploy.coordinator.command import coordinator

    return coordinator


COMMANDS: dict[str, Callable[[], typer.Typer | Callable[..., None]]] = {
    "simulate": _simulate,
    "report": _report,
    "experiment": _experiment,
    "data": _data,
    "cache": _cache,
    "attack": _attack,
    "ledger": _ledger,
    "policy": _policy,
    "enrol": _enrol,
    "bundle": _bundle,
    "doctor": _doctor,
    "node": _node,
    "status": _status,
    "federate": _federate,
    "coordinator": _coordinator,
}
"""What each subcommand is, by name: a group of commands, or the function of a single one."""


class LazyGroup(TyperGroup):
    """The group of all subcommands, each imported when it is asked for; the list of them asks for all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand called `cmd_name`; None where there is none."""
        del ctx
        load = COMMANDS.get(cmd_name)
        if load is None:
            return None
        found = load()
        if isinstance(found, typer.Typer):
            group = found
        else:
            group = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)
            group.command(cmd_name)(found)
        command = typer.main.get_command(group)
        command.name = cmd_name
        return command


main = typer.Typer(cls=LazyGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


@main.callback()
def _group() -> None:
    """Train imaging models together, hospital by hospital."""


if __name__ == "__main__":
    main()
