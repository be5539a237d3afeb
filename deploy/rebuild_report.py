"""`aegis report`: the report of a finished run, written again from its summary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from deploy.exits import usage_errors
from deploy.outcome import finish
from federation.errors import ConfigurationError
from server_app.run_folder import RunFolder
from server_app.summary import Summary


def report_command(
    run: Annotated[Path, typer.Argument(help="Folder of the run, for example runs/demo.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, nothing else.")] = False,
) -> None:
    """Write report.html of a finished run again and show its summary."""
    folder = RunFolder(run.absolute())
    from server_app.report import write_report

    with usage_errors():
        write_report(read_summary(folder), folder.report)
    finish(folder, as_json=as_json)


def read_summary(folder: RunFolder) -> Summary:
    """Return the summary in `folder`.

    Raises:
        ConfigurationError: there is none, or it is not one of ours.
    """
    try:
        return Summary.model_validate_json(folder.summary.read_text(encoding="utf-8"))
    except OSError:
        raise ConfigurationError(f"Expected a finished run at {folder.path}, found no {folder.summary.name}.") from None
    except ValidationError as error:
        raise ConfigurationError(f"{folder.summary} is not a summary of this version: {error}") from None
