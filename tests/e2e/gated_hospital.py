"""The shipped ClientApp behind a gate: it notes every task, and begins none that the test holds.

The node configuration names the gate's folder. `hold-<message type>` there holds tasks of that type; `calls.jsonl`
tells which tasks were entered, begun and answered.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from client_app.main import app as shipped

_LONGEST_HOLD_S = 300.0


class GatedApp(ClientApp):
    """Answers what the shipped app answers, when the gate lets it."""

    def __call__(self, message: Message, context: Context) -> Message:
        gate, kind = Path(str(context.node_config["gate"])), message.metadata.message_type
        _note(gate, "enter", message)
        end = time.monotonic() + _LONGEST_HOLD_S
        while (gate / f"hold-{kind}").exists() and time.monotonic() < end:
            time.sleep(0.05)
        _note(gate, "begin", message)
        answer = shipped(message, context)
        _note(gate, "answer", message)
        return answer


def _note(gate: Path, step: str, message: Message) -> None:
    metadata = message.metadata
    entry = {
        "step": step,
        "kind": metadata.message_type,
        "run": str(metadata.run_id),
        "message": metadata.message_id,
        "time": time.time(),
    }
    with (gate / "calls.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


app = GatedApp()
