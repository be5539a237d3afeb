"""A made-up consortium, for pictures of the page and for trying it out: a real, small run on phantoms, nobody's data.

The run is simulated on the virtual clock and told as if that were the wall clock; one hospital is slow, and one stops
answering, as a node does whose worker has died. It is shown as it was some versions before its end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import Message

from client_app.main import app as client_app
from deploy.coordinator.superlink import Answer, Node
from deploy.trust.consortium import Consortium, Hospital
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.enrolment import found_consortium, today
from deploy.trust.hospital_key import make_key, public_line
from federation.config import Configuration, flatten, parse_configuration
from server_app.run_folder import RunFolder
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming

HOSPITALS = 5
_DAY_S = 86_400.0
_ROUNDS = 14
_SHOWN = 11
_SLOW, _DYING = 2, 3
_LIVES_FOR = 2
_SETTINGS: dict[str, Any] = {
    "run.name": "chest-xray-2",
    "run.hospitals": HOSPITALS,
    "run.allow-silent-hospitals": True,
    "run.keep-checkpoints": _ROUNDS,
    "data.phantom-examples": 4000,
    "data.dirichlet-alpha": 2.0,
    "model.name": "mlp",
    "training.optimizer": "sgd",
    "training.learning-rate": 0.5,
    "privacy.mechanism": "dp-sgd",
    "aggregation.rule": "buffered",
    "aggregation.buffer-size": 3,
    "aggregation.rounds": _ROUNDS,
    "aggregation.max-staleness": 1,
}


def make_consortium(folder: Path) -> None:
    """Found a consortium in the new folder `folder`: those of the run, and three others."""
    place = ConsortiumFolder(path=folder)
    founded = Consortium(name="Chest X-ray consortium", host="fl.example.org", created=today())
    found_consortium(place, founded, days=21, internal_days=730)
    people = [
        Hospital(id=_id(index), public_key=_key(), enrolled=today(), node_id=str(index)) for index in range(HOSPITALS)
    ]
    people.append(Hospital(id="st-elsewhere", public_key=_key(), enrolled=today(), revoked=today(), node_id="5"))
    people.append(Hospital(id="princeton", public_key=_key(), enrolled=today(), node_id="6"))
    people.append(Hospital(id="lowood", public_key=_key(), enrolled=today()))
    place.write(founded.model_copy(update={"hospitals": tuple(people)}))


def make_run(root: Path, now: float) -> None:
    """Leave a run below `root` as it is at `now`, in the middle, with an event half a minute old."""
    flat = dict(flatten(Configuration())) | _SETTINGS | {"run.root": str(root)}
    configuration = parse_configuration(flat)
    usual = SiteTiming(train_s=1500.0, evaluate_s=30.0)
    timings = [usual.slower(2.5) if index == _SLOW else usual for index in range(HOSPITALS)]
    simulate(configuration, client_app, timings, tamper=_losing_answers_of(_id(_DYING)))
    folder = RunFolder.of(configuration.run)
    lines = [_on_the_wall(line) for line in folder.events.read_text(encoding="utf-8").splitlines()]
    end = next(index for index, line in enumerate(lines) if (line["event"], line.get("version")) == ("apply", _SHOWN))
    folder.events.write_text("".join(json.dumps(line) + "\n" for line in lines[: end + HOSPITALS]), encoding="utf-8")
    os.utime(folder.events, (now - 30, now - 30))
    folder.summary.unlink()
    for late in sorted(folder.checkpoints.iterdir())[_SHOWN:]:
        late.unlink()


def answer(now: float) -> Answer:
    """Return what the SuperLink says of the consortium at `now`: those of the run are online, another is gone."""
    online = {
        str(index): Node(status="online", online_at=now - 3 * _DAY_S - 700 * index, offline_at=None)
        for index in range(HOSPITALS)
    }
    revoked = Node(status="unregistered", online_at=now - 9 * _DAY_S, offline_at=now - 8 * _DAY_S)
    gone = Node(status="offline", online_at=now - 2 * _DAY_S, offline_at=now - 19_000)
    return Answer(asked_at=now - 4, nodes={**online, "5": revoked, "6": gone})


def _id(index: int) -> str:
    return f"hospital-{index:03d}"


def _key() -> str:
    return public_line(make_key().public_key())


def _on_the_wall(line: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(line)
    return event | {"wall_s": event["elapsed_s"]}


def _losing_answers_of(hospital: str) -> Callable[[Message], Iterable[Message]]:
    """Return a network that loses what `hospital` answers after its second update."""
    answered = 0

    def lose(message: Message) -> Iterable[Message]:
        nonlocal answered
        records = message.content.config_records if message.has_content() else {}
        if not any(record.get("hospital-id") == hospital for record in records.values()):
            return [message]
        answered += message.metadata.message_type == "train"
        return [message] if answered <= _LIVES_FOR else []

    return lose
