"""The `aegis` command; every subcommand lives in a module of its own, which is imported when it is called.

A hospital's `aegis doctor` or `aegis enrol` starts at once: libraries for training are none of their business.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import click
import typer
from typer.core import TyperGroup

from deploy.exits import usage_errors
from federation.errors import ConfigurationError


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

_LEFT_OUT = {"experiment": "deploy.experiments", "attack": "deploy.attack"}
"""The subcommands whose packages a hospital's image leaves out, and these packages."""


class LazyGroup(TyperGroup):
    """The group of all subcommands, each imported when it is asked for; the list of them asks for all there are."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands of this installation."""
        del ctx
        return [name for name in COMMANDS if _is_installed(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand called `cmd_name`; None where there is none.

        Raises:
            typer.Exit: with code 2, where this installation leaves it out.
        """
        del ctx
        load = COMMANDS.get(cmd_name)
        if load is None:
            return None
        with usage_errors():
            _require_installed(cmd_name)
        found = load()
        if isinstance(found, typer.Typer):
            group = found
        else:
            group = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)
            group.command(cmd_name)(found)
        command = typer.main.get_command(group)
        command.name = cmd_name
        return command


def _is_installed(name: str) -> bool:
    return name not in _LEFT_OUT or importlib.util.find_spec(_LEFT_OUT[name]) is not None


def _require_installed(name: str) -> None:
    """Check that the package of the subcommand is there; a library that it lacks is its own business."""
    if not _is_installed(name):
        raise ConfigurationError(
            f"aegis {name} is not part of this installation: a hospital's image holds no attack code and no "
            "experiments; use a checkout of the repository, on another machine."
        )


main = typer.Typer(cls=LazyGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


@main.callback()
def _group() -> None:
    """Train imaging models together, hospital by hospital."""


if __name__ == "__main__":
    main()
