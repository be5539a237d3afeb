"""How fast an update becomes part of the model: against a bare torch axpy, and against Flower's own aggregation."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from flwr.app import RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

from client_app.device import cpu_threads
from deploy.experiments.async_server_replies import draw_update, model_like
from deploy.experiments.cells import Result
from deploy.experiments.noop_app import EXAMPLES, INFO
from federation.config import AggregationConfig
from federation.parameters import Parameters, finite_norm
from federation.records.answers import (
    ModelUpdate,
    decode_enrolment,
    decode_training_answer,
    encode_enrolment,
    encode_model_update,
)
from server_app.admission import admit_update
from server_app.aggregation.norm_history import NormHistory
from server_app.aggregation.rule import Update
from server_app.aggregation.weighing import Weighing
from server_app.correspondence import expect
from server_app.dispatch import Dispatch
from server_app.global_model import GlobalModel
from server_app.roster import Member

_DISTINCT = 8


def measure_apply(settings: dict[str, Any], folder: Path) -> Result:
    """Return how long torch's axpy takes over the bytes of replies, divided by how long a model takes to apply them.

    Applying is all of `GlobalModel.apply`: accumulate, check, next version. Both take turns in this process with one
    thread, so that a drifting machine cancels out, and are timed by that thread's processor time, in which others do
    not count; the first version, for which the whole model is looked through, is not in it.

    Both read the very same bytes and write the very same bytes, the axpy as one piece, the model as its tensors in it:
    where memory lies alone can make the same addition take twice as long. What applying takes where every update and
    the model have memory of their own, as received, stands beside it in `apart`.

    Args:
        settings: `models`, `updates_per_version`, `repetitions`.
        folder: not used.
    """
    del folder
    cases, apart = {}, {}
    with cpu_threads(1):
        for name, size in itertools.product(settings["models"], settings["updates_per_version"]):
            answers = [expect(ModelUpdate, decode_training_answer(record)) for record in make_replies(name, size)]
            received, own = [answer.update for answer in answers], model_like(name)
            pieces, target = [_in_one_piece(update) for update in received], _in_one_piece(own)
            views = [_views(piece, own) for piece in pieces]
            case, repetitions = f"{name}, K={size}", settings["repetitions"]
            cases[case] = _take_turns(_axpy(pieces, target), _apply(views, _views(target, own)), repetitions)
            apart[case] = _take_turns(_axpy(pieces, target), _apply(received, own), repetitions)
    worst = min(case["ratio"] for case in cases.values())
    return {"baseline": "torch axpy", "cases": cases, "apart": apart, "worst": worst}


def measure_against_flower(settings: dict[str, Any], folder: Path) -> Result:
    """Return how long Flower's own aggregation of replies takes, divided by how long ours takes from the same records.

    Flower's is `aggregate_arrayrecords`, the part of its FedAvg that makes the model. Ours decodes every reply, admits
    it by all checks, weighs it, applies it, and encodes the next broadcast, which Flower's result is already. `worst`
    is over what a server waits, with all cores, of which torch makes use and Flower's NumPy does not; beside it stands
    the processor time with one thread. `once_ms` is what looking through every value a single time takes, which no
    server that checks what it receives can go below.

    Args:
        settings: `models`, `replies`, `repetitions`.
        folder: not used.
    """
    del folder
    cases, waited = {}, []
    for (threads, remark, clock), name, replies in itertools.product(_WAYS, settings["models"], settings["replies"]):
        with cpu_threads(threads):
            records = make_replies(name, replies)
            updates = [expect(ModelUpdate, decode_training_answer(record)).update for record in records]
            case = _take_turns(
                lambda records=records: aggregate_arrayrecords(records, "examples"),  # type: ignore[misc]
                OurAggregation(name, records),
                settings["repetitions"],
                clock,
            )
            case["once_ms"] = 1000 * min(_time(lambda updates=updates: _look_through(updates), clock) for _ in range(3))  # type: ignore[misc]
        cases[f"{name}, {replies} replies, {remark}"] = case
        waited += [case["ratio"]] if clock is time.perf_counter else []
    return {"baseline": "Flower", "cases": cases, "worst": min(waited)}


_WAYS: tuple[tuple[int, str, Callable[[], float]], ...] = (
    (0, "all cores", time.perf_counter),
    (1, "processor time", time.thread_time),
)


def _look_through(updates: Sequence[Parameters]) -> None:
    for update in updates:
        finite_norm(update)


def _take_turns(
    theirs: Callable[[], object],
    ours: Callable[[], object],
    repetitions: int,
    clock: Callable[[], float] = time.thread_time,
) -> dict[str, Any]:
    """Return the median ratio of their time to ours, pair by pair, after one pair that does not count."""
    pairs = [(_time(theirs, clock), _time(ours, clock)) for _ in range(repetitions + 1)][1:]
    ratios = [theirs_s / ours_s for theirs_s, ours_s in pairs]
    return {
        "ratio": statistics.median(ratios),
        "theirs_ms": 1000 * statistics.median(theirs_s for theirs_s, _ in pairs),
        "ours_ms": 1000 * statistics.median(ours_s for _, ours_s in pairs),
        "ratios": ratios,
    }


def _time(call: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    call()
    return clock() - started


def _axpy(pieces: Sequence[torch.Tensor], target: torch.Tensor) -> Callable[[], None]:
    """Return torch's axpy of all updates, each as one piece of memory, which is the fastest way."""

    def add() -> None:
        for piece in pieces:
            target.add_(piece, alpha=1 / len(pieces))

    return add


def _apply(updates: Sequence[Parameters], parameters: Parameters) -> Callable[[], None]:
    model, coefficients = GlobalModel(parameters, version=0), [1 / len(updates)] * len(updates)
    loads = [lambda update=update: update for update in updates]
    norm = math.fsum(finite_norm(update) for update in updates) / len(updates)
    return lambda: model.apply(loads, coefficients, norm=norm)


def _in_one_piece(parameters: Parameters) -> torch.Tensor:
    return torch.cat([value.reshape(-1) for value in parameters.values()])


def _views(piece: torch.Tensor, like: Parameters) -> Parameters:
    """Return `piece` as tensors with the names and shapes of `like`, without copying."""
    parts = piece.split([value.numel() for value in like.values()])
    return {name: part.view(value.shape) for (name, value), part in zip(like.items(), parts, strict=True)}


def make_replies(name: str, count: int) -> list[RecordDict]:
    """Return as many replies for the model called `name`; from the ninth on the first ones again, to spare memory."""
    distinct = [
        encode_model_update(
            ModelUpdate(
                hospital_id=_hospital(number),
                model_version=0,
                examples=EXAMPLES,
                update=draw_update(model_like(name), number),
            )
        )
        for number in range(min(count, _DISTINCT))
    ]
    return [distinct[number % _DISTINCT] for number in range(count)]


def _hospital(number: int) -> str:
    return f"hospital-{number % _DISTINCT:03d}"


class OurAggregation:
    """Our way from the records of replies to the next model and its broadcast.

    Attributes:
        model: that the replies are applied to, over and over.
    """

    def __init__(self, name: str, records: Sequence[RecordDict]) -> None:
        """Prepare the aggregation of `records` into the model called `name`, which begins with zeros."""
        self.model = GlobalModel(model_like(name), version=0)
        self._records = records
        self._members = {
            _hospital(number): Member(
                node_id=2, enrolment=decode_enrolment(encode_enrolment(_hospital(number), EXAMPLES, INFO))
            )
            for number in range(len(records))
        }
        self._weighing = Weighing(AggregationConfig(), lambda: dict.fromkeys(self._members, EXAMPLES))

    def __call__(self) -> None:
        """Decode, admit, weigh and apply all replies, and encode the broadcast."""
        updates = [self._admit(number, record) for number, record in enumerate(self._records)]
        weights = self._weighing.weigh(updates, version=0, applied={}, norms=NormHistory())
        coefficients = self._weighing.coefficients(weights)
        length = math.fsum(c * update.norm for c, update in zip(coefficients, updates, strict=True))
        self.model.apply([update.load for update in updates], coefficients, norm=length)
        self.model.broadcast()

    def _admit(self, number: int, record: RecordDict) -> Update:
        hospital = _hospital(number)
        dispatch = Dispatch(
            message_id=str(number),
            node_id=2,
            hospital_id=hospital,
            kind="train",
            model_version=0,
            sent_at=0.0,
            number=number,
        )
        answer = expect(ModelUpdate, decode_training_answer(record))
        return admit_update(answer, dispatch, self._members[hospital], self.model.parameters)
