"""How a test plays SIGKILL at a chosen point of a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Killed(BaseException):
    """Plays SIGKILL: nothing in the product may catch it."""


def kill_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, *, after: bool) -> None:
    """Let the process "die" at the `call`-th call of `owner.name`, before or after its work."""
    original, calls = getattr(owner, name), [0]

    def deadly(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == call and not after:
            raise Killed
        result = original(*args, **kwargs)
        if calls[0] == call:
            raise Killed
        return result

    monkeypatch.setattr(owner, name, deadly)


class Point(NamedTuple):
    """Where a server dies: at the `call`-th call of `owner.name`, before or after its work."""

    owner: Any
    name: str
    call: int
    after: bool

    def __str__(self) -> str:
        return f"{self.name}-{self.call}-{'after' if self.after else 'before'}"


def break_off(monkeypatch: pytest.MonkeyPatch, point: Point, start: Callable[[], object]) -> None:
    """Let the server that `start` runs die at `point`."""
    with monkeypatch.context() as patch:
        kill_at(patch, point.owner, point.name, point.call, after=point.after)
        with pytest.raises(Killed):
            start()
