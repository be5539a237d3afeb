"""Flower's own FedAvg strategy with clients that answer at once: the usual `flwr run` simulation, as a baseline."""

from __future__ import annotations

import json
import time
from pathlib import Path

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from deploy.experiments.noop_app import EXAMPLES, zeros

TIMES_FILE = "stock-times.json"

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run `aggregation.rounds` rounds, sampling `aggregation.sample-count` nodes, and write when each ended."""
    config = context.run_config
    nodes, sampled = int(config["run.hospitals"]), int(config["aggregation.sample-count"])
    times: list[float] = []

    def note_time(server_round: int, arrays: ArrayRecord) -> None:
        del server_round, arrays
        times.append(time.monotonic())

    strategy = FedAvg(
        fraction_train=sampled / nodes, fraction_evaluate=0.0, min_train_nodes=sampled, min_available_nodes=nodes
    )
    strategy.start(grid, zeros(), num_rounds=int(config["aggregation.rounds"]), evaluate_fn=note_time)
    (Path(str(config["run.root"])) / TIMES_FILE).write_text(json.dumps(times), encoding="utf-8")


@client.train()
def train(message: Message, context: Context) -> Message:
    """Answer with zeros of the model's shape."""
    del context
    content = RecordDict({"arrays": zeros(), "metrics": MetricRecord({"num-examples": EXAMPLES})})
    return Message(content, reply_to=message)
