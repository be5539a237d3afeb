"""Settings of the straggler experiments: two data sets, one linear layer on fixed features, and the algorithms."""

from __future__ import annotations

from typing import Any

Settings = dict[str, Any]

MODEL: Settings = {
    "data.features": "wavelet",
    "model.name": "linear",
    "training.optimizer": "sgd",
    "training.batch-size": 64,
    "training.local-epochs": 1,
}
DATA: dict[str, Settings] = {
    "pneumonia": {**MODEL, "data.name": "pneumoniamnist", "training.class-prior": "0.26,0.74"},
    "organa": {**MODEL, "data.name": "organamnist", "training.label-skew": "logit-adjustment"},
}
"""The class prior is that of the published training split of PneumoniaMNIST, in which every hospital has both classes;
at OrganAMNIST hospitals lack most classes, which logit adjustment keeps from pulling the model away from them."""

TITLES = {"pneumonia": "PneumoniaMNIST", "organa": "OrganAMNIST"}
ROUNDS, UPDATES = 24, 240
"""Length of a run: rounds of synchronous rules, applied updates of asynchronous ones."""

_ANY_AGE = {"aggregation.max-staleness": 1000}
_POLYNOMIAL = {"aggregation.staleness": "polynomial", "aggregation.staleness-exponent": 0.5}
RULES: dict[str, Settings] = {
    "fedavg": {"aggregation.rule": "fedavg", "run.checkpoint-every": 10},
    "fedavg-drop": {"aggregation.rule": "fedavg", "aggregation.deadline-s": 75.0, "run.checkpoint-every": 10},
    "fedasync": {"aggregation.rule": "fedasync", **_POLYNOMIAL, **_ANY_AGE},
    "fedbuff": {"aggregation.rule": "buffered", "aggregation.buffer-size": 4, **_POLYNOMIAL, **_ANY_AGE},
    "ours": {
        "aggregation.rule": "buffered",
        "aggregation.buffer-size": 7,
        "aggregation.balance": 1.0,
        **_POLYNOMIAL,
        **_ANY_AGE,
    },
}
RULE_TITLES = {
    "fedavg": "FedAvg, synchronous",
    "fedavg-drop": "FedAvg that drops who misses the deadline",
    "fedasync": "FedAsync, polynomial",
    "fedbuff": "FedBuff, K = 4",
    "ours": "ours",
}
GRID: dict[str, tuple[float, ...]] = {
    "fedavg": (1.0, 1.5, 2.0, 3.0),
    "fedasync": (0.15, 0.3, 0.5, 0.8),
    "fedbuff": (0.35, 0.5, 0.7, 1.0, 1.5, 2.0),
    "ours": (1.0, 1.3, 1.7, 2.0, 2.6),
}
"""Server learning rates that were tried for each rule, each with every one of `LOCAL_RATES`."""

LOCAL_RATES = {"pneumonia": (3.0, 10.0, 30.0), "organa": (3.0, 10.0, 30.0)}
RATES: dict[str, dict[str, tuple[float, float]]] = {
    "pneumonia": {"fedavg": (10.0, 1.0), "fedasync": (10.0, 0.3), "fedbuff": (10.0, 0.5), "ours": (10.0, 1.3)},
    "organa": {"fedavg": (30.0, 1.5), "fedasync": (30.0, 0.5), "fedbuff": (30.0, 1.0), "ours": (30.0, 2.0)},
}
"""Local and server learning rate that reached 97 % of FedAvg's plateau first, or level with the first, on the tuning
seeds."""


def length(rule: str, *, rounds: int = ROUNDS, updates: int = UPDATES) -> Settings:
    """Return how many versions a run of `rule` makes: `rounds` if it is synchronous, else those of `updates`."""
    if RULES[rule]["aggregation.rule"] == "fedavg":
        return {"aggregation.rounds": rounds}
    return {"aggregation.rounds": updates // RULES[rule].get("aggregation.buffer-size", 1)}


def rates(local: float, server: float) -> Settings:
    """Return the two learning rates as settings."""
    return {"training.learning-rate": local, "aggregation.server-learning-rate": server}


def tuned(rule: str, data: str) -> Settings:
    """Return the settings of `rule` on `data` with its tuned learning rates, `fedavg-drop` with those of `fedavg`."""
    chosen = RATES[data]["fedavg" if rule == "fedavg-drop" else rule]
    return {**DATA[data], **RULES[rule], **length(rule), **rates(*chosen)}


def shown(settings: Settings, *, but: Settings | None = None) -> str:
    """Return `settings` as Markdown, without those of `run` and those that are the same in `but`."""
    kept = {key: value for key, value in settings.items() if not key.startswith("run.")}
    return ", ".join(f"`{key}={value}`" for key, value in kept.items() if (but or {}).get(key) != value)
