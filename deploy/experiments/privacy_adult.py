"""Part of the privacy experiment: what epsilon costs on a table of income data, five participants, three a round."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from client_app.dp_sgd import suggest_clip_norm, survey_gradient_norms
from client_app.noise.simulated import SimulatedNoise
from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claim
from deploy.experiments.federations import run_federation
from federation.accounting.accounts import ACCOUNTS
from federation.accounting.events import GaussianRelease, History
from federation.accounting.gaussian import gaussian_epsilon
from federation.config import Configuration, flatten, parse_configuration
from federation.datasets.sites import load_site
from federation.models import build_model

COMMAND = "aegis experiment privacy --part adult"
SEEDS = (0, 1, 2, 3, 4)
HOSPITALS, SAMPLED, ROUNDS = 5, 3, 30
RELEASES = ROUNDS * SAMPLED // HOSPITALS
DELTA = 1e-5

ADULT: dict[str, Any] = {
    "run.hospital-evaluation": False,
    "run.evaluate-every": 10,
    "run.keep-checkpoints": 1,
    "run.checkpoint-every": ROUNDS,
    "data.name": "adult",
    "data.partition": "iid",
    "model.name": "mlp",
    "model.hidden-units": 64,
    "training.optimizer": "sgd",
    "training.learning-rate": 0.5,
    "training.batch-size": 256,
    "training.local-epochs": 2,
    "aggregation.rounds": ROUNDS,
    "aggregation.sample-count": SAMPLED,
}
DP_SGD: dict[str, Any] = {
    **ADULT,
    "privacy.mechanism": "dp-sgd",
    "privacy.delta": DELTA,
    "privacy.releases": RELEASES,
    "privacy.clip-norm": 1.0,
    "privacy.physical-batch": 1024,
}
"""DP-SGD by record; every participant plans its budget for its fair share of the rounds and is paused after it."""

VARIANTS: dict[str, dict[str, Any]] = {
    "no-dp": ADULT,
    "eps5": {**DP_SGD, "privacy.epsilon": 5.0},
    "eps1": {**DP_SGD, "privacy.epsilon": 1.0},
    "eps1-c0.5": {**DP_SGD, "privacy.epsilon": 1.0, "privacy.clip-norm": 0.5},
    "eps1-c2": {**DP_SGD, "privacy.epsilon": 1.0, "privacy.clip-norm": 2.0},
    "eps1-e5": {**DP_SGD, "privacy.epsilon": 1.0, "training.local-epochs": 5},
    "no-dp-e5": {**ADULT, "training.local-epochs": 5},
}


def literal_settings(release_epsilon: float) -> dict[str, Any]:
    """Return the literal recipe: the whole update clipped to 1, sigma = 2 C sqrt(2 ln(1.25 / delta)) / epsilon each.

    Noise of 2 C sqrt(...) / epsilon over the sensitivity 2 C of replace-one is the classic noise multiplier. The
    system's own planning would refuse the formula for an epsilon above 1, so the multiplier is given by hand.
    """
    return {
        **ADULT,
        "training.batch-size": 32,
        "privacy.mechanism": "update-gaussian",
        "privacy.relation": "replace-one",
        "privacy.delta": DELTA,
        "privacy.clip-norm": 1.0,
        "privacy.account": "pld",
        "privacy.epsilon": 1000.0,
        "privacy.noise-multiplier": classic_multiplier(release_epsilon),
    }


def classic_multiplier(epsilon: float) -> float:
    """Return sqrt(2 ln(1.25 / delta)) / epsilon, whether or not its proof holds for `epsilon`."""
    return math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon


def adult_cells(data_root: str) -> list[Cell]:
    """Return the cells; `data_root` holds the subfolder `adult`."""
    root = str(Path(data_root) / "adult")
    variants = {**VARIANTS, "literal-eps5": literal_settings(5.0), "literal-eps1": literal_settings(1.0)}
    cells = [
        Cell(
            name=f"adult-{name}-{seed}",
            compute=run_federation,
            settings={
                "hospitals": HOSPITALS,
                "configuration": {
                    **settings,
                    "run.seed": seed,
                    "run.name": f"adult-{name}-{seed}",
                    "run.hospitals": HOSPITALS,
                    "data.root": root,
                },
            },
        )
        for name, settings in variants.items()
        for seed in SEEDS
    ]
    survey = {"configuration": {**DP_SGD, "data.root": root}, "noise_multiplier": 50.0}
    literal = {"release_epsilons": [5.0, 1.0], "delta": DELTA, "releases": RELEASES}
    return [
        *cells,
        Cell(name="adult-norm-survey", compute=survey_norms, settings=survey),
        Cell(name="adult-literal-guarantee", compute=analyse_literal_recipe, settings=literal),
    ]


def adult_claims(results: dict[str, Result]) -> list[Claim]:
    """Return the three claims on accuracy."""
    targets = (("adult_no_dp_pct", "no-dp", ">= 85.0"), ("adult_eps5_pct", "eps5", ">= 84.7"))
    wanted = (*targets, ("adult_eps1_pct", "eps1", ">= 84.2"))
    return [
        claim(
            identity,
            target,
            accuracies(results, name),
            unit="%",
            command=COMMAND,
            seeds=[seed for seed in SEEDS if f"adult-{name}-{seed}" in results],
            cells=[f"adult-{name}-{seed}" for seed in SEEDS if f"adult-{name}-{seed}" in results],
            note=f"test accuracy after {ROUNDS} rounds, {SAMPLED} of {HOSPITALS} participants a round, record level, "
            "delta 1e-5",
        )
        for identity, name, target in wanted
    ]


def accuracies(results: dict[str, Result], name: str) -> list[float]:
    """Return the final test accuracies of one variant in percent, a value per finished seed."""
    found = [results[f"adult-{name}-{seed}"] for seed in SEEDS if f"adult-{name}-{seed}" in results]
    return [100 * cell["final"]["accuracy"] for cell in found]


def survey_norms(settings: dict[str, Any], folder: Path) -> Result:
    """Return the noisy histogram of gradient norms at the initial model of the first participant, and its cost."""
    del folder
    configuration = parse_configuration({**flatten(Configuration()), **settings["configuration"]})
    dataset = load_site(configuration.data, site=0, sites=HOSPITALS, seed=0)
    model = build_model(configuration.model, dataset.info, seed=0)
    edges = [0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0]
    histogram, event = survey_gradient_norms(
        model,
        dataset.train,
        dataset.info,
        configuration.training,
        configuration.privacy,
        edges=edges,
        noise_multiplier=settings["noise_multiplier"],
        noise=SimulatedNoise(0),
        generator=torch.Generator().manual_seed(0),
        device=torch.device("cpu"),
    )
    counts = [float(value) for value in histogram]
    return {
        "edges": edges,
        "noisy_counts": counts,
        "suggested_clip_norm": suggest_clip_norm(histogram, edges, quantile=0.9),
        "epsilon": gaussian_epsilon(event.noise_multiplier, DELTA),
        "delta": DELTA,
    }


def analyse_literal_recipe(settings: dict[str, Any], folder: Path) -> Result:
    """Return what the literal recipe guarantees: per release, and over all releases of one participant."""
    del folder
    found = {}
    for epsilon in settings["release_epsilons"]:
        multiplier = classic_multiplier(epsilon)
        event = GaussianRelease(noise_multiplier=multiplier)
        history = History.of([event]).plus(event, settings["releases"] - 1)
        found[f"{epsilon:g}"] = {
            "noise_multiplier": multiplier,
            "exact_epsilon_per_release": gaussian_epsilon(multiplier, settings["delta"]),
            "releases": settings["releases"],
            **{name: account.epsilon(history, settings["delta"]) for name, account in ACCOUNTS.items()},
        }
    return {"recipes": found}
