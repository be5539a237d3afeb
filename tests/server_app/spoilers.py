"""Everything that can be wrong with an answer to a training task, and the reason under which it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from flwr.app import Error, RecordDict

from federation.errors import SiteErrorCode
from federation.records.answers import ModelUpdate
from tests.doubles import changed

SPOILERS: dict[str, tuple[Callable[[ModelUpdate], Any], str]] = {
    "nan": (lambda a: changed(update={k: v * float("nan") for k, v in a.update.items()})(a), "non-finite"),
    "infinity": (lambda a: changed(update={k: v / 0 for k, v in a.update.items()})(a), "non-finite"),
    "shape": (lambda a: changed(update={k: v[..., None] for k, v in a.update.items()})(a), "wrong-shape"),
    "dtype": (lambda a: changed(update={k: v.double() for k, v in a.update.items()})(a), "wrong-dtype"),
    "names": (lambda a: changed(update={f"x{k}": v for k, v in a.update.items()})(a), "wrong-names"),
    "size": (lambda a: changed(update=a.update | {"x": torch.zeros(100_000)})(a), "too-large"),
    "version": (lambda a: changed(model_version=a.model_version + 1)(a), "wrong-version"),
    "hospital": (changed(hospital_id="hospital-000"), "wrong-hospital"),
    "no examples": (changed(examples=0), "no-examples"),
    "too many examples": (changed(examples=10**9), "malformed"),
    "empty records": (lambda a: RecordDict(), "malformed"),
    "site error": (lambda a: Error(int(SiteErrorCode.TRAINING_FAILED), "x"), "site-error:training-failed"),
    "lost node": (lambda a: Error(5, "x"), "node-lost"),
    "foreign error": (lambda a: Error(2, "secret"), "site-error"),
}
