"""A text-to-image pipeline of every real part, small enough to be made, saved and run in a moment."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import transformers
from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker
from safetensors.torch import load_file, save_file
from transformers import CLIPConfig, CLIPImageProcessor, CLIPTextConfig, CLIPTextModel, CLIPTokenizer


def write_tokenizer(folder):
    """Byte-level BPE without merges, in the files that Stable Diffusion's repositories hold."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [*map(chr, visible), *(chr(256 + place) for place in range(256 - len(visible)))]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    configuration = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(configuration))
    return len(words)


def make_networks(words):
    blocks = {"layers_per_block": 1, "norm_num_groups": 4}
    unet = UNet2DConditionModel(
        **blocks,
        sample_size=8,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=2,
    )
    vae = AutoencoderKL(
        **blocks,
        block_out_channels=(4, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        sample_size=16,
    )
    layers = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = CLIPTextModel(
        CLIPTextConfig(**layers, vocab_size=words, bos_token_id=words - 2, eos_token_id=words - 1, pad_token_id=1)
    )
    with torch.no_grad():
        text.get_input_embeddings().weight *= 50  # so that an untrained network tells prompts apart
    return {"unet": unet, "vae": vae, "text_encoder": text}


def make_checker():
    """Refuses everything: whatever an image shows, it is nearer to a concept than this threshold."""
    layers = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    checker = StableDiffusionSafetyChecker(
        CLIPConfig(text_config={**layers}, vision_config={**layers, "image_size": 8, "patch_size": 4}, projection_dim=8)
    )
    torch.nn.init.constant_(checker.concept_embeds_weights, -2.0)
    return checker


def save(folder, tokenizer, parts, **more):
    scheduler = PNDMScheduler(skip_prk_steps=True, steps_offset=1, beta_schedule="scaled_linear")
    absent = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    pipeline = StableDiffusionPipeline(tokenizer=tokenizer, scheduler=scheduler, **parts, **{**absent, **more})
    pipeline.save_pretrained(folder)


def lay_out_as_published(folder, tokenizer):
    """Replace what the installed transformers writes by what Stable Diffusion's repositories hold."""
    shutil.rmtree(folder / "tokenizer")
    shutil.copytree(tokenizer, folder / "tokenizer")
    weights = folder / "text_encoder" / "model.safetensors"
    tensors = {f"text_model.{name}": tensor for name, tensor in load_file(weights).items()}
    save_file(tensors, weights, metadata={"format": "pt"})


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory):
    """A folder with the pipelines "plain" and "checked", the latter with a safety checker. To be read only."""
    root = tmp_path_factory.mktemp("pipelines")
    transformers.logging.disable_progress_bar()
    words = write_tokenizer(root / "tokenizer")
    tokenizer = CLIPTokenizer.from_pretrained(str(root / "tokenizer"))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        parts = make_networks(words)
        checker = make_checker()
    save(root / "plain", tokenizer, parts)
    extractor = CLIPImageProcessor(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    save(root / "checked", tokenizer, parts, safety_checker=checker, feature_extractor=extractor)
    for name in ("plain", "checked"):
        lay_out_as_published(root / name, root / "tokenizer")
    return root


@pytest.fixture
def own_pipeline(pipelines, tmp_path):
    """A copy of "plain" that a test may spoil."""
    return shutil.copytree(pipelines / "plain", tmp_path / "own")
