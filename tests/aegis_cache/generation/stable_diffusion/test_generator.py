"""A real text-to-image pipeline behind the interface: what it draws, what it redraws, and when it gives up."""

from __future__ import annotations

import functools
import shutil
import sys

import pytest
import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from safetensors.torch import load_file, save_file

from aegis_cache.generation.stable_diffusion.generator import StableDiffusionGenerator
from aegis_cache.generation.stable_diffusion.pipeline import SamplingSettings
from aegis_cache.generation.stable_diffusion.prompt_template import PromptTemplate
from aegis_cache.store.provenance import Provenance, Source
from federation.errors import GenerationError

NAMES = ("benign", "malignant")
TEMPLATE = PromptTemplate(template="scan, {class}", negative="text")


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def make(folder, *, prompts=TEMPLATE, names=NAMES, provenance=None, say=lambda _: None, **settings):
    chosen = SamplingSettings(**{"steps": 2, "device": "cpu", "scheduler": "DDIMScheduler", **settings})
    return StableDiffusionGenerator(names, prompts, model=str(folder), settings=chosen, provenance=provenance, say=say)


def record_calls(monkeypatch):
    """Return a list that fills with the arguments of every call of the pipeline."""
    calls, real = [], StableDiffusionPipeline.__call__

    @functools.wraps(real)
    def call(self, **arguments):
        calls.append(arguments)
        return real(self, **arguments)

    monkeypatch.setattr(StableDiffusionPipeline, "__call__", call)
    return calls


def run_short_of_memory(monkeypatch, largest):
    """Let the network fail as a GPU does where it is given more than `largest` images, each with its empty prompt."""
    real = UNet2DConditionModel.forward

    def forward(self, sample, *arguments, **more):
        if len(sample) > 2 * largest:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(self, sample, *arguments, **more)

    monkeypatch.setattr(UNet2DConditionModel, "forward", forward)


def refuse(monkeypatch, verdicts):
    """Let the safety checker refuse, batch by batch, what `verdicts` says, and blacken it as the real one does."""
    waiting = iter(verdicts)

    def check(self, image, device, dtype):
        flags = next(waiting)
        for place, flag in enumerate(flags):
            if flag:
                image[place] = 0
        return image, flags

    monkeypatch.setattr(StableDiffusionPipeline, "run_safety_checker", check)


def test_images_have_the_shape_and_range_of_the_interface(pipelines):
    images = make(pipelines / "plain").generate(torch.tensor([1, 0]), 2, stream())

    assert images.shape == (4, 3, 16, 16)
    assert (images.dtype, images.device.type) == (torch.float32, "cpu")
    assert 0 <= images.min() < images.max() <= 1


def test_height_and_width_are_those_asked_for(pipelines):
    images = make(pipelines / "plain", height=24, width=32).generate(torch.tensor([0]), 1, stream())

    assert images.shape == (1, 3, 24, 32)


def test_half_precision_comes_back_as_single(pipelines):
    images = make(pipelines / "plain", dtype="bfloat16").generate(torch.tensor([0]), 1, stream())

    assert images.dtype == torch.float32


def test_the_random_generator_alone_decides_what_is_drawn(pipelines):
    generator = make(pipelines / "plain")
    labels = torch.tensor([0, 1])

    first, again, other = (generator.generate(labels, 2, stream(seed)) for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert not torch.allclose(first[0], first[1])


def test_global_random_generator_has_no_part(pipelines):
    generator = make(pipelines / "plain", scheduler="EulerAncestralDiscreteScheduler")
    before = torch.default_generator.get_state()

    generator.generate(torch.tensor([0]), 2, stream())

    assert torch.equal(torch.default_generator.get_state(), before)


@pytest.mark.parametrize("scheduler", ["DDIMScheduler", "EulerAncestralDiscreteScheduler"])
def test_size_of_the_batches_changes_images_by_rounding_only(pipelines, scheduler):
    labels = torch.tensor([0, 1, 0])

    single, large = (
        make(pipelines / "plain", scheduler=scheduler, batch_size=size).generate(labels, 2, stream()) for size in (1, 4)
    )

    torch.testing.assert_close(single, large, rtol=0, atol=1e-4)


def test_every_class_has_its_own_prompt_and_all_settings_reach_the_pipeline(pipelines, monkeypatch):
    calls = record_calls(monkeypatch)

    make(pipelines / "plain", batch_size=3, guidance=4.0).generate(torch.tensor([1, 0]), 2, stream())

    assert [call["prompt"] for call in calls] == [["scan, malignant"] * 2 + ["scan, benign"], ["scan, benign"]]
    assert [call["negative_prompt"] for call in calls] == [["text"] * 3, ["text"]]
    assert {(call["num_inference_steps"], call["guidance_scale"]) for call in calls} == {(2, 4.0)}


def test_prompt_changes_the_image(pipelines):
    labels = torch.tensor([0])
    prompts = (
        TEMPLATE,
        PromptTemplate(template="drawing, {class}", negative="text"),
        PromptTemplate(template="{class}"),
    )

    first, second, third = (
        make(pipelines / "plain", prompts=prompt).generate(labels, 1, stream()) for prompt in prompts
    )

    assert not torch.allclose(first, second, atol=1e-4)
    assert not torch.allclose(second, third, atol=1e-4)


def test_class_without_prompt_is_named_before_anything_is_loaded(tmp_path):
    prompts = PromptTemplate(template="{class}", classes={"benign": "a mass"})

    with pytest.raises(GenerationError, match=r"found none for \['malignant'\]"):
        make(tmp_path / "nowhere", prompts=prompts)


def test_missing_weights_are_named(own_pipeline):
    (own_pipeline / "unet" / "diffusion_pytorch_model.safetensors").unlink()

    with pytest.raises(GenerationError, match=r"missing \['unet/diffusion_pytorch_model.safetensors'\]"):
        make(own_pipeline)


def test_missing_library_is_answered_with_how_to_install_it(pipelines, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)

    with pytest.raises(GenerationError, match=r"pip install 'aegis-fl\[generate\]'"):
        make(pipelines / "plain")


def test_label_that_names_no_class_is_refused(pipelines):
    with pytest.raises(GenerationError, match=r"found \[2\]"):
        make(pipelines / "plain").generate(torch.tensor([2]), 1, stream())


def test_batch_is_halved_until_the_memory_suffices_and_that_is_said(pipelines, monkeypatch):
    labels = torch.tensor([0, 1])
    said: list[str] = []
    expected = make(pipelines / "plain", batch_size=8).generate(labels, 4, stream())
    generator = make(pipelines / "plain", batch_size=8, say=said.append)
    run_short_of_memory(monkeypatch, largest=2)

    images = generator.generate(labels, 4, stream())

    torch.testing.assert_close(images, expected, rtol=0, atol=1e-4)
    assert said == [
        "The memory does not suffice for 8 images at a time: going on with 4.",
        "The memory does not suffice for 4 images at a time: going on with 2.",
    ]


def test_batch_stays_halved_in_later_calls(pipelines, monkeypatch):
    said: list[str] = []
    generator = make(pipelines / "plain", batch_size=4, say=said.append)
    run_short_of_memory(monkeypatch, largest=2)

    generator.generate(torch.tensor([0]), 4, stream())
    generator.generate(torch.tensor([0]), 4, stream())

    assert len(said) == 1


def test_memory_too_small_for_one_image_ends_it(pipelines, monkeypatch):
    generator = make(pipelines / "plain", batch_size=2)
    run_short_of_memory(monkeypatch, largest=0)

    with pytest.raises(GenerationError, match="memory for one image"):
        generator.generate(torch.tensor([0]), 2, stream())


def test_refused_images_alone_are_drawn_again(pipelines, monkeypatch):
    labels = torch.tensor([0, 1])
    expected = make(pipelines / "plain").generate(labels, 2, stream())
    calls = record_calls(monkeypatch)
    refuse(monkeypatch, [[False, True, False, True], [True, False], [False]])

    images = make(pipelines / "plain").generate(labels, 2, stream())

    prompts = [call["prompt"] for call in calls]
    assert prompts[1:] == [["scan, benign", "scan, malignant"], ["scan, benign"]]
    torch.testing.assert_close(images[[0, 2]], expected[[0, 2]])
    for place in (1, 3):
        assert images[place].max() > 0
        assert not torch.allclose(images[place], expected[place], atol=1e-4)


def test_class_that_the_real_checker_never_lets_through_is_named(pipelines, monkeypatch):
    calls = record_calls(monkeypatch)
    generator = make(pipelines / "checked", attempts=3)

    with pytest.raises(GenerationError, match=r"found none of \['malignant'\] in 3 attempts"):
        generator.generate(torch.tensor([1]), 2, stream())

    assert len(calls) == 3


def test_pixels_that_are_not_numbers_end_it(pipelines, monkeypatch):
    generator = make(pipelines / "plain")
    real = UNet2DConditionModel.forward

    def overflow(self, sample, *arguments, **more):
        return tuple(part * torch.nan for part in real(self, sample, *arguments, **more))

    monkeypatch.setattr(UNet2DConditionModel, "forward", overflow)

    with pytest.raises(GenerationError, match=r"found NaN: take dtype 'bfloat16'"):
        generator.generate(torch.tensor([0]), 1, stream())


def test_identity_is_public_and_says_what_the_images_depend_on(pipelines):
    identity = make(pipelines / "plain").identity

    assert (identity.kind, identity.name) == ("stable-diffusion", "plain")
    assert identity.provenance == Provenance.public()
    assert identity.settings == {
        "template": "scan, {class}",
        "negative": "text",
        "steps": 2,
        "guidance": 7.5,
        "height": 0,
        "width": 0,
        "scheduler": "DDIMScheduler",
        "dtype": "float32",
    }


def test_caller_says_the_provenance(pipelines):
    given = Provenance(source=Source.PRIVATE_ADAPTED, uses=("The weights were adapted to images of the hospital.",))

    identity = make(pipelines / "plain", provenance=given).identity

    assert identity.provenance == given


def test_digest_follows_prompts_and_settings_but_not_the_place_or_the_batch(pipelines, own_pipeline):
    first = make(pipelines / "plain").identity.digest

    same = [make(own_pipeline), make(pipelines / "plain", batch_size=2)]
    others = [
        make(pipelines / "plain", prompts=PromptTemplate(template="drawing, {class}", negative="text")),
        make(pipelines / "plain", prompts=PromptTemplate(template="scan, {class}")),
        make(pipelines / "plain", prompts=TEMPLATE.model_copy(update={"classes": dict(zip(NAMES, "ab", strict=True))})),
        make(pipelines / "plain", names=NAMES[::-1]),
        make(pipelines / "plain", steps=3),
        make(pipelines / "plain", scheduler="PNDMScheduler"),
    ]

    assert {generator.identity.digest for generator in same} == {first}
    assert len({first, *(generator.identity.digest for generator in others)}) == 1 + len(others)


@pytest.mark.parametrize("part", ["unet/diffusion_pytorch_model", "vae/diffusion_pytorch_model", "text_encoder/model"])
def test_digest_follows_the_weights(pipelines, own_pipeline, part):
    path = own_pipeline / f"{part}.safetensors"
    tensors = load_file(path)
    name = sorted(tensors)[0]
    save_file({**tensors, name: tensors[name] + 1e-3}, path, metadata={"format": "pt"})

    digests = {make(folder).identity.digest for folder in (pipelines / "plain", own_pipeline)}

    assert len(digests) == 2


def test_digest_is_computed_once_and_only_when_asked_for(own_pipeline):
    generator = make(own_pipeline)
    first = generator.identity
    shutil.rmtree(own_pipeline)

    assert generator.identity is first
