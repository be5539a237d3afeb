"""Flower's SuperExec, starting the hospital's own ClientApp for every task: `python -m deploy.node.superexec ...`.

The server says of which kind a run's tasks are, and for some kinds Flower has other commands that run a bundle's code:
a server that called its run an agent's would otherwise get past `clientapp`.
"""

from __future__ import annotations

from flwr.supercore.cli.flower_superexec import flower_superexec
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supercore.superexec.executor import factory

from deploy.vouching import VouchingExecutor

CLIENT_APP_COMMAND = "aegis-clientapp"
"""The command, on the PATH of the installation, that `clientapp` is."""


def main() -> None:
    """Run the SuperExec until it is told to stop."""
    TASK_TYPE_TO_COMMAND.update(dict.fromkeys(TASK_TYPE_TO_COMMAND, CLIENT_APP_COMMAND))
    factory.SubprocessExecutor = VouchingExecutor  # type: ignore[attr-defined]
    flower_superexec()


if __name__ == "__main__":
    main()
