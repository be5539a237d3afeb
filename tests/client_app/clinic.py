"""A deployed hospital in a folder, and the server's side of it: what it is asked, answers, and has spent."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from flwr.app import Context, Message

from client_app.ledger import Ledger, Spend
from client_app.main import app
from federation.config import TrainingConfig, parse_configuration
from federation.datasets.image_set import Dataset
from federation.datasets.sites import load_own_folder
from federation.models import build_model
from federation.parameters import Parameters, read_parameters
from federation.records.tasks import encode_decision, encode_evaluation_task, encode_training_task
from federation.records.tensors import encode_parameters
from tests.client_app.calls import deployed_node, flat_configuration, make_context, make_message, save_own_images

DELTA = 1e-5


class Clinic:
    """Hospital "north" with 60 training images whose files bring a split of their own."""

    def __init__(
        self,
        folder: Path,
        *,
        policy: dict[str, Any] | None = None,
        given_split: bool = True,
        class_names: str = "class",
        seed: int = 0,
        white: int = 0,
        **settings: Any,
    ) -> None:
        self.folder = folder
        images = save_own_images(folder, given_split=given_split, class_names=class_names, seed=seed, white=white)
        own = {"name": "npz", "root": str(images)}
        self.node = deployed_node(folder, **(policy or {}))
        self.flat = flat_configuration(folder, **{"privacy__delta": DELTA, **settings})
        self.configuration = parse_configuration(self.flat)
        self.data: Dataset = load_own_folder(self.configuration.data.model_copy(update=own), seed=0)

    def context(self, run_id: int = 1) -> Context:
        context = make_context(self.flat, **self.node)
        context.run_id = run_id
        return context

    def build(self) -> Parameters:
        return read_parameters(build_model(self.configuration.model, self.data.info, seed=0))

    def train(
        self,
        message_id: str = "m1",
        *,
        version: int = 0,
        run_id: int = 1,
        parameters: Parameters | None = None,
        **plan: Any,
    ) -> Message:
        settings = TrainingConfig(**{"device": "cpu", "batch_size": 20, **plan})
        arrays = encode_parameters(parameters or self.build())
        content = encode_training_task(arrays, model_version=version, plan=settings, seed=7, run="run")
        return app(make_message(content, "train", message_id=message_id), self.context(run_id))

    def decide(self, message_type: str, version: int = 0, *, run_id: int = 1, message_id: str = "d1") -> Message:
        """Ask for a decision, `RELEASE` or `DISCARD`, on what was trained from `version`."""
        return app(
            make_message(encode_decision(version, "run"), message_type, message_id=message_id), self.context(run_id)
        )

    def evaluate(
        self, message_id: str = "e1", split: str = "validation", *, parameters: Parameters | None = None
    ) -> Message:
        arrays = encode_parameters(parameters or self.build())
        content = encode_evaluation_task(arrays, model_version=0, split=split, run="run")
        return app(make_message(content, "evaluate", message_id=message_id), self.context())

    def ask(self, kind: str, message_id: str = "m1") -> Message:
        return self.train(message_id) if kind == "train" else self.evaluate(message_id)

    @property
    def ledger(self) -> Path:
        return self.folder / "state" / "north.ledger"

    def open_ledger(self) -> Ledger:
        return Ledger.open(self.folder / "state", hospital_id="north", key_folder=self.folder / "keys", wait_s=0)

    def spend(self, data_set: str = "scans", delta: float = DELTA) -> Spend:
        with self.open_ledger() as ledger:
            return ledger.spend(data_set, delta)

    def rows(self) -> list[str]:
        """The kinds of the rows on the disk; none where there is no ledger."""
        if not self.ledger.is_file():
            return []
        with closing(sqlite3.connect(self.ledger)) as database:
            return [kind for (kind,) in database.execute("SELECT kind FROM rows ORDER BY seq")]

    @property
    def slot(self) -> Path:
        """Where the hospital keeps a result under two-phase release."""
        return self.folder / "state" / "pending" / "north.pending"

    def log(self) -> str:
        path = self.folder / "state" / "north.log"
        return path.read_text() if path.is_file() else ""
