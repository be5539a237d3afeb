"""What training leaves behind for the release: the update, its bill, and the terms under which both were made.

It is the same value whether it is released at once or waits on the hospital's volume (`client_app.pending`) for the
server's decision.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import safetensors.torch

from client_app.ledger.release import request_as_dict, request_from_dict
from client_app.policy import SitePolicy
from client_app.releasing import Bill, bill_of, request_of
from client_app.site import ReleaseKey
from federation.config import Configuration
from federation.parameters import Parameters
from federation.recorded_updates.metadata import Origin

_LENGTH_BYTES = 4
_RECEIVED = "received/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What an update was trained from, for a copy of what is sent (`client_app.outbox`).

    Attributes:
        origin: what is known of the task.
        parameters: of the model that was received; the same names as the update's.
    """

    origin: Origin
    parameters: Parameters = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedUpdate:
    """The result of one training task, not yet released.

    Attributes:
        run: name of the run, which stays when the run is resumed; the one in `key` is Flower's, which does not.
        key: of the training task; what the ledger books the release under.
        model_version: from which it was trained.
        examples: training images used.
        bill: what its release costs, as planned before training.
        terms: digest of the policy and the request that it was planned under, from `terms_of`.
        update: with the noise of "dp-sgd", without that of "update-gaussian", so never shown.
        received: what it was trained from; None where the hospital keeps no copies.
    """

    run: str
    key: ReleaseKey
    model_version: int
    examples: int
    bill: Bill
    terms: str
    update: Parameters = field(repr=False)
    received: Received | None = None


def terms_of(policy: SitePolicy | None, configuration: Configuration) -> str:
    """Return a digest of everything that decides under which terms an update may leave.

    An update that was trained under other terms must not be released: the policy may have become stricter since.
    """
    terms = {
        "policy": None if policy is None else policy.model_dump(mode="json", by_alias=True),
        "privacy": configuration.privacy.model_dump(mode="json", by_alias=True),
        "masking": configuration.masking.model_dump(mode="json", by_alias=True),
    }
    return hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()


def encode_trained_update(trained: TrainedUpdate) -> bytes:
    """Return `trained` as bytes, in the clear."""
    received = trained.received
    about = {
        "release": request_as_dict(request_of(trained.key, trained.bill)),
        "budget": trained.bill.budget,
        "model-version": trained.model_version,
        "examples": trained.examples,
        "terms": trained.terms,
        "names": list(trained.update),
        "received": None if received is None else received.origin.model_dump_json(by_alias=True),
        "run-name": trained.run,
    }
    head = json.dumps(about).encode()
    tensors = {name: value.contiguous() for name, value in trained.update.items()}
    if received is not None:
        tensors |= {f"{_RECEIVED}{name}": value.contiguous() for name, value in received.parameters.items()}
    return len(head).to_bytes(_LENGTH_BYTES, "big") + head + safetensors.torch.save(tensors)


def decode_trained_update(content: bytes) -> TrainedUpdate:
    """Return the update that `encode_trained_update` turned into `content`, which must be known to be unchanged."""
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "big")
    about: dict[str, Any] = json.loads(content[_LENGTH_BYTES:start])
    request = request_from_dict(about["release"])
    tensors = safetensors.torch.load(content[start:])
    return TrainedUpdate(
        run=about["run-name"],
        key=ReleaseKey(run=request.run_id, message=request.message_id),
        model_version=about["model-version"],
        examples=about["examples"],
        bill=bill_of(request, about["budget"]),
        terms=about["terms"],
        update={name: tensors[name] for name in about["names"]},
        received=_received_of(about, tensors),
    )


def _received_of(about: dict[str, Any], tensors: Parameters) -> Received | None:
    """Return what the update was trained from; a result that an older version of this module has kept does not say."""
    if (origin := about.get("received")) is None:
        return None
    parameters = {name: tensors[f"{_RECEIVED}{name}"] for name in about["names"]}
    return Received(origin=Origin.model_validate_json(origin), parameters=parameters)
