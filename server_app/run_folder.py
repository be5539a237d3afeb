"""The folder of one run: its paths, its resolved configuration, and how an older run of the same name is kept."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tomli_w

from federation.config import Configuration, RunConfig
from federation.durable import write_durably
from federation.errors import RunFailedError


class RunFolder:
    """Paths below `runs/<name>/` (DESIGN section 7)."""

    def __init__(self, path: Path) -> None:
        """Describe the run folder at `path`; nothing is created."""
        self.path = path

    @classmethod
    def of(cls, run: RunConfig) -> RunFolder:
        """Return the folder that `run` names."""
        return cls(Path(run.root).absolute() / run.name)

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def buffer(self) -> Path:
        """Folder of the updates that wait to be applied."""
        return self.path / "buffer"

    @property
    def updates(self) -> Path:
        """Folder of the recorded updates, which is there if the run was asked to record."""
        return self.path / "updates"

    @property
    def events(self) -> Path:
        """Event log, one JSON line per event."""
        return self.path / "events.jsonl"

    @property
    def summary(self) -> Path:
        """The result as JSON."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """The result as a page."""
        return self.path / "report.html"

    @property
    def model(self) -> Path:
        """The final parameters."""
        return self.path / "model.safetensors"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the name of this run for the block.

        Raises:
            RunFailedError: another process holds it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f".{self.path.name}.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFailedError(
                    f"Expected {self.path} to be free, found a run in progress there: choose another run.name."
                ) from None
            yield

    def prepare(self, configuration: Configuration) -> None:
        """Create the folder and write `config.toml`; an older run of this name is moved aside unless it is resumed."""
        if not configuration.run.resume and self.path.exists():
            self.path.rename(self._free_name())
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        content = tomli_w.dumps(configuration.model_dump(by_alias=True))
        write_durably(self.path / "config.toml", content.encode())

    def _free_name(self) -> Path:
        """Return the first of `<name>.1`, `<name>.2`, ... that does not exist."""
        number = 1
        while (candidate := self.path.with_name(f"{self.path.name}.{number}")).exists():
            number += 1
        return candidate
