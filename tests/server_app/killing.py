"""How a test plays SIGKILL at a chosen point of a server."""

from __future__ import annotations

from typing import Any

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
