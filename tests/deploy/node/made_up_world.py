"""A supervisor in a world of its own: a clock that stands still, processes that never were, a server that is said."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.node import supervisor
from deploy.node.contact import Contact
from deploy.node.route import Probe
from deploy.node.state import NodeState, read_state
from deploy.node.supervisor import Supervisor
from tests.deploy.node.made_up_node import make_settings

BEGIN = 1_000_000.0


class MadeUpChild:
    """A process as the supervisor sees it.

    Attributes:
        below: whether a ClientApp runs below it.
        stopped: whether it was told to end.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], started: float) -> None:
        self.name, self.command, self.environment, self.started = name, list(command), dict(environment), started
        self.running, self.stopped, self.below = True, False, False
        self.exit_code: int | None = None
        self.last_lines: deque[str] = deque()

    def runs_below(self, command: str) -> bool:
        return self.below and command == "aegis-clientapp"

    def stop(self) -> None:
        self.running, self.stopped = False, True

    def end(self, *lines: str) -> None:
        """End by itself, with `lines` as its last words."""
        self.running, self.exit_code = False, 1
        self.last_lines.extend(lines)


class World:
    """Everything around a supervisor.

    Attributes:
        now: what the machine's clock shows.
        steady: a clock that nobody sets.
        skew: the server's clock minus it.
        reachable: whether the way to the server is open.
        certificate: that the server shows.
        probed: when it was tried.
        children: every process that was started, oldest first.
        answering: whether the server answers every request of a SuperNode that runs: a heartbeat and a question each
            second.
        asking: whether the SuperNode asks for tasks.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.now, self.skew, self.reachable, self.certificate = BEGIN, 0.0, True, ""
        self.steady = 1000.0
        self.answering, self.asking = True, True
        self.probed: list[float] = []
        self.children: list[MadeUpChild] = []
        self.settings = make_settings(folder)
        self.settings.scratch.mkdir()
        patch.setattr(supervisor, "time", SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.steady))
        patch.setattr(supervisor, "Prober", lambda *_: SimpleNamespace(probe=self._probe))
        patch.setattr(supervisor, "Child", self._start)
        patch.setattr(os, "fsync", lambda _: None)  # no power cut here, and a state is written thousands of times
        self.supervisor = Supervisor(self.settings)

    def pass_time(self, seconds: int = 1, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let the supervisor take a step each second, for so many seconds or until something holds."""
        for _ in range(seconds):
            self.supervisor._step()
            self.now, self.steady = self.now + 1, self.steady + 1
            self._answer()
            if until():
                return

    def close(self) -> None:
        """Close the log of the processes that never were."""
        self.supervisor._log._handler.close()

    def run(self, steps: int, at_each: Callable[[], None] = lambda: None) -> None:
        """Let the supervisor run for so many steps, and then be stopped."""
        self.supervisor.run(_Stop(self, steps, at_each))

    @property
    def node(self) -> MadeUpChild:
        """The SuperNode that was started last."""
        return self.all("supernode")[-1]

    @property
    def superexec(self) -> MadeUpChild:
        """The SuperExec that was started last."""
        return self.all("superexec")[-1]

    def all(self, name: str) -> list[MadeUpChild]:
        return [child for child in self.children if child.name == name]

    @property
    def running(self) -> list[str]:
        return [child.name for child in self.children if child.running]

    @property
    def state(self) -> NodeState:
        found = read_state(self.settings.state_dir)
        assert found is not None
        return found

    def note(self, **contact: Any) -> None:
        """Note what the server said, as the SuperNode would."""
        self.settings.contact_file.write_text(Contact(**contact).model_dump_json(), encoding="utf-8")

    def _answer(self) -> None:
        if not (self.answering and self.reachable and "supernode" in self.running):
            return
        pulled = self.now if self.asking else self.node.started
        self.note(answered=self.now, pulled=pulled, status=200)

    def _probe(self, *_: object) -> Probe:
        self.probed.append(self.now)
        if not self.reachable:
            return Probe(reachable=False, found="ConnectError: refused", time=self.now)
        return Probe(reachable=True, clock_skew_s=self.skew, certificate=self.certificate, time=self.now)

    def _start(self, name: str, command: Sequence[str], environment: Mapping[str, str], _: object) -> MadeUpChild:
        self.children.append(MadeUpChild(name, command, environment, self.now))
        return self.children[-1]


class _Stop(threading.Event):
    def __init__(self, world: World, steps: int, at_each: Callable[[], None]) -> None:
        super().__init__()
        self._world, self._left, self._at_each = world, steps, at_each

    def wait(self, timeout: float | None = None) -> bool:
        self._world.now += timeout or 0.0
        self._world.steady += timeout or 0.0
        self._world._answer()
        self._at_each()
        self._left -= 1
        if self._left == 0:
            self.set()
        return self.is_set()
