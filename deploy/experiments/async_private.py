"""Settings that ladder and sweep share: twenty hospitals of unequal speed at the baseline parameters of the field."""

from __future__ import annotations

from deploy.experiments.async_settings import MODEL, Settings
from deploy.experiments.cells import Result

HOSPITALS, ROUNDS, SAMPLED = 20, 60, 6
TASK_S = 60.0
SLOWNESS = (1.0, 1.25, 1.5, 2.0, 6.0)
SECONDS = [TASK_S * SLOWNESS[site % len(SLOWNESS)] for site in range(HOSPITALS)]
"""Virtual seconds of a task at each hospital: one hospital in five is six times slower than the fastest."""

BASE: Settings = {
    **MODEL,
    "data.name": "pneumoniamnist",
    "data.partition": "dirichlet",
    "data.dirichlet-alpha": 0.5,
    "data.min-examples": 20,
    "training.class-prior": "0.26,0.74",
    "training.learning-rate": 0.03,
    "training.local-epochs": 5,
    "aggregation.sample-fraction": SAMPLED / HOSPITALS,
    "aggregation.server-optimizer": "momentum",
    "aggregation.server-momentum": 0.9,
}
SYNCHRONOUS: Settings = {
    "aggregation.rule": "fedavg",
    "aggregation.rounds": ROUNDS,
    "aggregation.average-last": ROUNDS // 2,
    "run.checkpoint-every": 10,
    "run.evaluate-every": 5,
}
BUFFER = 2
ASYNCHRONOUS: Settings = {
    "aggregation.rule": "buffered",
    "aggregation.buffer-size": BUFFER,
    "aggregation.rounds": ROUNDS * SAMPLED // BUFFER,
    "aggregation.average-last": ROUNDS * SAMPLED // BUFFER // 2,
    "aggregation.server-learning-rate": BUFFER / SAMPLED,
    "aggregation.staleness": "exponential",
    "aggregation.staleness-alpha": 0.93,
    "aggregation.max-staleness": 1000,
    "run.evaluate-every": 5 * SAMPLED // BUFFER,
}
"""As many updates as the synchronous run, each moving the model by the same share when it is fresh."""

RELEASES = 20
DP_SGD: Settings = {
    "privacy.mechanism": "dp-sgd",
    "privacy.delta": 1e-5,
    "privacy.clip-norm": 1.0,
    "privacy.physical-batch": 1024,
    "privacy.releases": RELEASES,
}


def final_accuracy(cell: Result) -> float:
    """Return the accuracy of the last model on the pooled test images, in percent."""
    return 100 * float(cell["curve"][-1][1])
