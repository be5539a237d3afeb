"""The shipped ServerApp on a link that says everything twice: every task is sent again, every answer asked for again.

What the real link makes of the repetitions goes on to the server, and so does every answer once more as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from server_app.main import app as shipped


class RepeatingGrid:
    """A grid that repeats; what it does not repeat, it passes on."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Push every message twice; the link must take the second for the first."""
        once = list(messages)
        first, second = list(self._grid.push_messages(once)), list(self._grid.push_messages(once))
        if first != second:
            raise RuntimeError(f"Expected the same ids for the same messages, found {first} and {second}.")
        return first

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return what has come, what the link says when it is asked for that again, and what has come once more."""
        replies = list(self._grid.pull_messages(list(message_ids)))
        answered = [reply.metadata.reply_to_message_id for reply in replies]
        again = list(self._grid.pull_messages(answered)) if answered else []
        if any(reply.has_content() for reply in again):
            raise RuntimeError("Expected no answer to be delivered twice.")
        return [*replies, *again, *replies]


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the shipped app on the repeating link."""
    shipped(RepeatingGrid(grid), context)  # type: ignore[arg-type]
