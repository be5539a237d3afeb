"""Loading from disk: settings that cannot work, schedulers, and pipelines that are damaged or of another kind."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import replace

import diffusers
import pytest
import torch
from diffusers import StableDiffusionPipeline
from diffusers.utils import logging
from safetensors.torch import load_file, save_file

from aegis_cache.generation.stable_diffusion.pipeline import (
    SCHEDULERS,
    SamplingSettings,
    load_pipeline,
    require_diffusers,
)
from federation.errors import GenerationError

CPU = SamplingSettings(device="cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"attempts": 0}, "attempts=0"),
        ({"guidance": -1.0}, "guidance=-1.0"),
        ({"guidance": float("inf")}, "guidance=inf"),
        ({"guidance": float("nan")}, "guidance=nan"),
        ({"height": 20, "width": 16}, r"\(20, 16\)"),
        ({"height": 16}, r"\(16, 0\)"),
        ({"height": -8, "width": 8}, r"\(-8, 8\)"),
        ({"scheduler": "StableDiffusionPipeline"}, "'StableDiffusionPipeline'"),
        ({"dtype": "int8"}, "'int8'"),
        ({"device": "abacus"}, "'abacus'"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, message):
    with pytest.raises(GenerationError, match=message):
        SamplingSettings(**changes)


@pytest.mark.parametrize(
    ("gpu", "dtype", "expected"),
    [
        (False, "auto", ("cpu", torch.float32)),
        (True, "auto", ("cuda", torch.float16)),
        (True, "bfloat16", ("cuda", torch.bfloat16)),
    ],
)
def test_half_precision_is_for_the_gpu(monkeypatch, gpu, dtype, expected):
    settings = SamplingSettings(dtype=dtype)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)

    found = (settings.choose_device().type, settings.choose_dtype())

    assert found == expected


def test_settings_reach_the_loaded_pipeline(pipelines, caplog):
    pipeline = load_pipeline(pipelines / "plain", replace(CPU, dtype="bfloat16"), needs_negative=True)

    assert isinstance(pipeline, StableDiffusionPipeline)
    assert {part.dtype for part in (pipeline.unet, pipeline.vae, pipeline.text_encoder)} == {torch.bfloat16}
    assert type(pipeline.scheduler).__name__ == "PNDMScheduler"
    assert "Casting directly" not in caplog.text


def test_variant_is_loaded_where_a_component_has_it(own_pipeline):
    plain = own_pipeline / "vae" / "diffusion_pytorch_model.safetensors"
    tensors = {name: torch.zeros_like(tensor) for name, tensor in load_file(plain).items()}
    save_file(tensors, plain.with_suffix(".fp16.safetensors"), metadata={"format": "pt"})

    pipeline = load_pipeline(own_pipeline, replace(CPU, variant="fp16"), needs_negative=True)

    assert not any(parameter.any() for parameter in pipeline.vae.parameters())
    assert any(parameter.any() for parameter in pipeline.unet.parameters())


def test_progress_bars_stay_off_while_loading_and_running_and_are_given_back(pipelines, capfd):
    logging.enable_progress_bar()

    pipeline = load_pipeline(pipelines / "plain", CPU, needs_negative=True)
    pipeline("a cat", num_inference_steps=1, output_type="pt")

    assert "it/s" not in capfd.readouterr().err
    assert logging.is_progress_bar_enabled()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_of_the_list_draws_images(pipelines, name):
    pipeline = load_pipeline(pipelines / "plain", replace(CPU, scheduler=name), needs_negative=True)
    streams = [torch.Generator().manual_seed(seed) for seed in (0, 1)]

    images = pipeline(["a", "b"], num_inference_steps=3, output_type="pt", generator=streams).images

    assert type(pipeline.scheduler) is getattr(diffusers, name)
    assert images.shape == (2, 3, 16, 16)
    assert images.isfinite().all()


def test_scheduler_that_cannot_replace_the_pipelines_own_is_refused(own_pipeline):
    diffusers.FlowMatchEulerDiscreteScheduler().save_pretrained(own_pipeline / "scheduler")
    index = json.loads((own_pipeline / "model_index.json").read_text())
    index["scheduler"] = ["diffusers", "FlowMatchEulerDiscreteScheduler"]
    (own_pipeline / "model_index.json").write_text(json.dumps(index))

    with pytest.raises(GenerationError, match="replace FlowMatchEulerDiscreteScheduler, found DDIMScheduler"):
        load_pipeline(own_pipeline, replace(CPU, scheduler="DDIMScheduler"), needs_negative=True)


def test_own_safety_checker_stays(pipelines):
    pipeline = load_pipeline(pipelines / "checked", CPU, needs_negative=True)

    assert type(pipeline.safety_checker).__name__ == "StableDiffusionSafetyChecker"


def test_damaged_weights_are_refused(own_pipeline):
    weights = own_pipeline / "vae" / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])

    with pytest.raises(GenerationError, match="cannot be read"):
        load_pipeline(own_pipeline, CPU, needs_negative=True)


def test_pickled_weights_are_not_loaded(own_pipeline):
    weights = own_pipeline / "vae" / "diffusion_pytorch_model.safetensors"
    torch.save(load_file(weights), weights.with_suffix(".bin"))
    weights.unlink()

    with pytest.raises(GenerationError, match="cannot be read"):
        load_pipeline(own_pipeline, CPU, needs_negative=True)


def test_pipeline_for_another_task_is_refused(own_pipeline):
    index = json.loads((own_pipeline / "model_index.json").read_text())
    (own_pipeline / "model_index.json").write_text(json.dumps({**index, "_class_name": "DDPMPipeline"}))

    with pytest.raises(GenerationError, match="cannot be read"):
        load_pipeline(own_pipeline, CPU, needs_negative=True)


@pytest.mark.parametrize(
    ("lacking", "needs_negative", "message"),
    [("negative_prompt", True, "leave negative out"), ("guidance_scale", False, r"without \['guidance_scale'\]")],
)
def test_pipeline_that_lacks_an_argument_is_refused(pipelines, monkeypatch, lacking, needs_negative, message):
    signature = inspect.signature(StableDiffusionPipeline.__call__)
    kept = [value for name, value in signature.parameters.items() if name != lacking]
    monkeypatch.setattr(
        StableDiffusionPipeline.__call__, "__signature__", signature.replace(parameters=kept), raising=False
    )

    with pytest.raises(GenerationError, match=message):
        load_pipeline(pipelines / "plain", CPU, needs_negative=needs_negative)


def test_missing_negative_prompt_matters_only_where_there_is_one(pipelines, monkeypatch):
    signature = inspect.signature(StableDiffusionPipeline.__call__)
    kept = [value for name, value in signature.parameters.items() if name != "negative_prompt"]
    monkeypatch.setattr(
        StableDiffusionPipeline.__call__, "__signature__", signature.replace(parameters=kept), raising=False
    )

    pipeline = load_pipeline(pipelines / "plain", CPU, needs_negative=False)

    assert isinstance(pipeline, StableDiffusionPipeline)


@pytest.mark.parametrize("library", ["diffusers", "transformers"])
def test_missing_library_is_answered_with_how_to_install_it(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(GenerationError, match=r"Expected diffusers .*pip install 'aegis-fl\[generate\]'"):
        require_diffusers()
