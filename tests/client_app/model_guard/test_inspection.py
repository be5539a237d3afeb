"""Models that were crafted are refused whatever hides them; fresh and trained ones never are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from attacks.guard_samples import Crafting, Disguise
from client_app.model_guard.inspection import inspect_model, require_plausible
from client_app.model_guard.probes import draw_probes
from federation.errors import SiteError, SiteErrorCode
from federation.parameters import digest, read_parameters
from tests.client_app.model_guard.made_up_models import crafted, fresh, phantoms, trained

INFO = phantoms().info
DISGUISES = {
    "plain": Disguise(),
    "permuted": Disguise(permuted=True),
    "noise": Disguise(permuted=True, noise=0.001),
    "half": Disguise(permuted=True, share=0.5, noise=0.001, scaled=True),
}
HIDDEN_KINDS: dict[str, dict[str, Any]] = {
    **{measured: {"measurement": measured} for measured in ("mean", "cosine", "random", "smooth")},
    "one-shot": {"kind": "one-shot"},
    "trap": {"kind": "trap"},
    "gain": {"gain": 1e4},
}


def checks_of(model: nn.Module) -> set[str]:
    return {finding.check for finding in inspect_model(model, INFO)}


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("kind", HIDDEN_KINDS)
def test_crafted_mlp_is_found(kind: str, disguise: str) -> None:
    found = checks_of(crafted("mlp", Crafting(**HIDDEN_KINDS[kind], disguise=DISGUISES[disguise])))

    assert {"trap": "trap-rows", "gain": "large-weights"}.get(kind, "collinear-rows") in found


@pytest.mark.parametrize("disguise", ["plain", "half"])
@pytest.mark.parametrize("kind", ["mean", "random", "one-shot", "trap"])
def test_crafted_cnn_is_found_though_its_convolutions_are_ordinary(kind: str, disguise: str) -> None:
    found = checks_of(crafted("cnn", Crafting(**HIDDEN_KINDS[kind], disguise=DISGUISES[disguise])))

    assert ("trap-rows" if kind == "trap" else "collinear-rows") in found
    assert "plain-kernels" not in found


@pytest.mark.parametrize("model", ["cnn", "resnet18"])
@pytest.mark.parametrize("convolutions", ["identity", "own-block"])
def test_convolutions_that_pass_the_image_on_are_found(model: str, convolutions: Any) -> None:
    assert "plain-kernels" in checks_of(crafted(model, Crafting(convolutions=convolutions)))


def test_ladder_under_noise_as_strong_as_its_rows_is_found_by_what_it_measures() -> None:
    disguise = Disguise(permuted=True, share=0.5, noise=1.0)
    images = torch.rand(100, 1, 1, 1, generator=torch.Generator().manual_seed(1)).expand(100, 1, 28, 28)

    found = checks_of(crafted("mlp", Crafting(disguise=disguise), units=256, images=images))

    assert "shared-measurement" in found
    assert not {"collinear-rows", "repeated-columns"} & found


def test_few_crafted_units_of_a_very_wide_layer_are_found() -> None:
    disguise = Disguise(permuted=True, share=0.05)

    assert "collinear-rows" in checks_of(crafted("mlp", Crafting(disguise=disguise), units=3000))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "units"), [("mlp", 4), ("mlp", 64), ("mlp", 1024), ("cnn", 64), ("linear", 64)])
def test_fresh_model_is_not_refused(name: str, units: int, seed: int) -> None:
    assert inspect_model(fresh(name, units=units, seed=seed), INFO) == ()


def test_fresh_residual_network_is_not_refused() -> None:
    assert inspect_model(fresh("resnet18"), INFO) == ()


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(
    "plan",
    [{"learning_rate": 1e-3}, {"learning_rate": 1e-2}, {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9}],
    ids=["adam", "fast-adam", "momentum"],
)
@pytest.mark.parametrize(("name", "units"), [("mlp", 64), ("mlp", 512), ("linear", 64)])
def test_trained_model_is_not_refused(name: str, units: int, classes: int, plan: dict[str, Any]) -> None:
    model = trained(name, units=units, classes=classes, local_epochs=6, **plan)

    assert inspect_model(model, phantoms(classes).info) == ()


@pytest.mark.parametrize("classes", [2, 4])
def test_trained_convolutional_network_is_not_refused(classes: int) -> None:
    assert inspect_model(trained("cnn", classes=classes, local_epochs=1), phantoms(classes).info) == ()


def test_inspection_is_repeatable_and_leaves_the_model_as_it_is() -> None:
    model = crafted("mlp", Crafting())
    model.train()
    before, state = digest(read_parameters(model)), torch.random.get_rng_state()

    findings = inspect_model(model, INFO)

    assert findings == inspect_model(model, INFO) != ()
    assert digest(read_parameters(model)) == before
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training
    assert all(not module._forward_pre_hooks for module in model.modules())


def test_refusal_says_what_was_found_where_and_what_was_expected() -> None:
    with pytest.raises(SiteError, match=r"collinear-rows in hidden\.weight: expected none, .* found 64") as refused:
        require_plausible(crafted("mlp", Crafting()), INFO)

    assert refused.value.code is SiteErrorCode.MODEL_CRAFTED


def test_probes_are_always_the_same_images_of_all_brightnesses() -> None:
    probes = draw_probes(INFO)
    means = probes.mean(dim=(1, 2, 3))

    assert torch.equal(probes, draw_probes(INFO))
    assert (probes.dtype, tuple(probes.shape)) == (torch.float32, (256, 1, 28, 28))
    assert 0 <= float(probes.min()) < 0.01 < 0.99 < float(probes.max()) <= 1
    assert float(means.quantile(0.1)) < 0.2 < 0.8 < float(means.quantile(0.9))
