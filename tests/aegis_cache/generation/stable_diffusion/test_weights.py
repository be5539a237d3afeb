"""The files of a pipeline: found where they lie, named where they are missing, hashed as they are."""

from __future__ import annotations

import json

import pytest

from aegis_cache.generation.stable_diffusion.weights import find_files, find_folder, hash_files
from federation.errors import GenerationError

UNET = "diffusion_pytorch_model"


def names(folder, variant=""):
    return [path.relative_to(folder).as_posix() for path in find_files(folder, variant, "org/model")]


def test_every_file_that_loading_reads_is_found_and_no_other(own_pipeline):
    for stranger in ("unet/diffusion_pytorch_model.bin", "unet/diffusion_pytorch_model.fp16.safetensors", "all.ckpt"):
        (own_pipeline / stranger).touch()

    found = names(own_pipeline)

    assert found == [
        "model_index.json",
        "scheduler/scheduler_config.json",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "tokenizer/merges.txt",
        "tokenizer/tokenizer_config.json",
        "tokenizer/vocab.json",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
    ]


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("unet/diffusion_pytorch_model.safetensors", "unet/diffusion_pytorch_model.safetensors"),
        ("unet/config.json", "unet/config.json"),
        ("text_encoder/model.safetensors", "text_encoder/model.safetensors"),
        ("scheduler/scheduler_config.json", "scheduler/scheduler_config.json"),
        ("tokenizer/vocab.json", "tokenizer/tokenizer.json or vocab.json or"),
    ],
)
def test_missing_file_is_named_with_the_way_to_fetch_it(own_pipeline, missing, named):
    (own_pipeline / missing).unlink()

    with pytest.raises(GenerationError) as caught:
        names(own_pipeline)

    assert f"missing ['{named}" in str(caught.value)
    assert "hf download org/model --local-dir FOLDER" in str(caught.value)


def test_pickled_weights_do_not_count_and_are_named(own_pipeline):
    (own_pipeline / "unet" / f"{UNET}.safetensors").rename(own_pipeline / "unet" / f"{UNET}.bin")

    with pytest.raises(GenerationError, match=r"missing .*There are \['unet/diffusion_pytorch_model.bin'\]"):
        names(own_pipeline)


def test_variant_is_preferred_where_a_component_has_it(own_pipeline):
    (own_pipeline / "unet" / f"{UNET}.fp16.safetensors").touch()

    found = names(own_pipeline, "fp16")

    assert [name for name in found if name.endswith(".safetensors")] == [
        "text_encoder/model.safetensors",
        "unet/diffusion_pytorch_model.fp16.safetensors",
        "vae/diffusion_pytorch_model.safetensors",
    ]


def split_into_shards(folder):
    parts = [f"{UNET}-0000{number}-of-00002.safetensors" for number in (1, 2)]
    (folder / "unet" / f"{UNET}.safetensors").unlink()
    index = {"weight_map": {"a": parts[0], "b": parts[1], "c": parts[0]}}
    (folder / "unet" / f"{UNET}.safetensors.index.json").write_text(json.dumps(index))
    (folder / "unet" / parts[0]).touch()
    return folder / "unet" / parts[1]


def test_every_part_of_divided_weights_is_found(own_pipeline):
    split_into_shards(own_pipeline).touch()

    found = names(own_pipeline)

    assert [name for name in found if "-of-" in name] == [
        f"unet/{UNET}-00001-of-00002.safetensors",
        f"unet/{UNET}-00002-of-00002.safetensors",
    ]
    assert f"unet/{UNET}.safetensors.index.json" in found


def test_missing_part_of_divided_weights_is_named(own_pipeline):
    split_into_shards(own_pipeline)

    with pytest.raises(GenerationError, match=rf"missing \['unet/{UNET}-00002-of-00002.safetensors'\]"):
        names(own_pipeline)


def test_damaged_list_of_parts_is_named(own_pipeline):
    split_into_shards(own_pipeline)
    (own_pipeline / "unet" / f"{UNET}.safetensors.index.json").write_text("{}")

    with pytest.raises(GenerationError, match="list of weight files"):
        names(own_pipeline)


@pytest.mark.parametrize("text", [None, "nonsense", "[]"])
def test_folder_that_holds_no_pipeline_is_refused(tmp_path, text):
    if text is not None:
        (tmp_path / "model_index.json").write_text(text)

    with pytest.raises(GenerationError, match=r"model_index.json of a diffusers pipeline"):
        names(tmp_path)


def test_hash_is_the_sha256_of_each_file(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"abc")

    digests = hash_files(tmp_path, [tmp_path / "a" / "b"])

    # FIPS 180-2, appendix B.1.
    assert digests == {"a/b": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}


def test_snapshot_in_the_cache_is_found_by_its_name(tmp_path, monkeypatch):
    repository = tmp_path / "models--org--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("c0ffee")
    (repository / "snapshots" / "c0ffee").mkdir(parents=True)
    (repository / "snapshots" / "c0ffee" / "model_index.json").write_text("{}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    folder = find_folder("org/model")

    assert folder == repository / "snapshots" / "c0ffee"


@pytest.mark.parametrize("model", ["org/no-such-model", "/no/such/folder"])
def test_model_that_lies_nowhere_is_refused_with_the_way_to_fetch_it(tmp_path, monkeypatch, model):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(GenerationError, match=rf"found neither.*hf download {model} --local-dir FOLDER"):
        find_folder(model)
