"""How every subcommand ends: exit codes 0 good, 1 failed, 2 wrong usage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from federation.errors import AegisError, ConfigurationError


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a `ConfigurationError` of the block into its text and exit code 2."""
    try:
        yield
    except ConfigurationError as error:
        Console(stderr=True).print(str(error), style="red", markup=False)
        raise typer.Exit(2) from None


@contextmanager
def exit_codes(*, as_json: bool) -> Iterator[None]:
    """Turn an error of the block into its text and exit code 2 for wrong usage, 1 for everything else."""
    try:
        yield
    except (AegisError, OSError) as error:
        usage = isinstance(error, ConfigurationError)
        if as_json:
            typer.echo(json.dumps({"status": "refused" if usage else "failed", "reason": str(error)}))
        else:
            Console(stderr=True).print(str(error), style="red", markup=False)
        raise typer.Exit(2 if usage else 1) from None
