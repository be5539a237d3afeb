"""Flower's SuperExec beside the server, patient with a slow machine: `python -m deploy.federate.superexec ...`."""

from __future__ import annotations

from flwr.supercore.cli.flower_superexec import flower_superexec
from flwr.supercore.superexec.executor import factory

from deploy.vouching import VouchingExecutor


def main() -> None:
    """Run the SuperExec until it is told to stop."""
    factory.SubprocessExecutor = VouchingExecutor  # type: ignore[attr-defined]
    flower_superexec()


if __name__ == "__main__":
    main()
