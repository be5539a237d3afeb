"""Gaussians per class: what fitting finds, what moments give, and every way in which they can be wrong."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from sklearn.decomposition import PCA

from aegis_cache.generation.gaussian import GaussianGenerator
from aegis_cache.store.provenance import Provenance, Source
from federation.datasets.image_set import ImageSet
from federation.errors import GenerationError

NAMES = ("benign", "malignant")
SHAPE = (1, 3, 4)


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def make_images(count=60, shape=SHAPE, seed=0):
    """Two classes around different greys, each with one strong direction of its own."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    ramp = np.linspace(-1, 1, np.prod(shape)).reshape(shape)
    strength = rng.normal(0, 25, (count, 1, 1, 1)) * np.where(labels, 1, 0.4)[:, None, None, None]
    values = 110 + 30 * labels[:, None, None, None] + strength * ramp + rng.normal(0, 4, (count, *shape))
    return ImageSet(images=values.clip(0, 255).astype(np.uint8), labels=labels.astype(np.int64))


def moments_of(images):
    """Means and second moments of both classes, pixels in [0, 1], float64."""
    values = torch.from_numpy(images.images.reshape(len(images), -1) / 255.0)
    groups = [values[torch.from_numpy(images.labels) == label] for label in (0, 1)]
    means = torch.stack([group.mean(dim=0) for group in groups])
    return means, torch.stack([group.T @ group / len(group) for group in groups])


def tensors_of(generator, folder):
    generator.save(folder / "saved.safetensors")
    return safetensors.torch.load_file(folder / "saved.safetensors")


@pytest.mark.parametrize(("count", "shape"), [(60, SHAPE), (16, (3, 4, 4))], ids=["more images", "more pixels"])
def test_fit_agrees_with_the_principal_components_of_scikit_learn(tmp_path, count, shape):
    images = make_images(count, shape)

    fitted = tensors_of(GaussianGenerator.fit(images, NAMES, rank=3), tmp_path)

    for label in (0, 1):
        values = images.images[images.labels == label].reshape(-1, np.prod(shape)) / 255.0
        known = PCA(n_components=3, svd_solver="full").fit(values)
        unbias = (len(values) - 1) / len(values)
        rest = values.var(axis=0).sum() - unbias * known.explained_variance_.sum()
        np.testing.assert_allclose(fitted["means"][label], known.mean_, atol=1e-6)
        np.testing.assert_allclose(fitted["variances"][label], unbias * known.explained_variance_, rtol=1e-4)
        np.testing.assert_allclose(fitted["remainder"][label], rest / (np.prod(shape) - 3), rtol=1e-4)
        overlap = np.abs(fitted["directions"][label].numpy() @ known.components_.T)
        np.testing.assert_allclose(overlap, np.eye(3), atol=1e-4)


def test_samples_have_the_mean_and_covariance_of_the_model():
    values = 12
    mean = torch.full((1, values), 0.5)
    axis = torch.nn.functional.normalize(torch.arange(1.0, values + 1), dim=0)
    covariance = 0.001 * torch.eye(values) + 0.004 * torch.outer(axis, axis)
    moment = (covariance + torch.outer(mean[0], mean[0]))[None]
    model = GaussianGenerator.from_moments(mean, moment, ["one"], SHAPE, rank=1, provenance=Provenance.public())

    samples = model.generate(torch.tensor([0]), 40_000, stream()).flatten(1)

    np.testing.assert_allclose(samples.mean(dim=0), mean[0], atol=2e-3)
    np.testing.assert_allclose(np.cov(samples.T.numpy()), covariance, atol=1e-4)


def test_moments_of_the_images_give_what_fitting_gives(tmp_path):
    images = make_images()
    means, seconds = moments_of(images)

    fitted = tensors_of(GaussianGenerator.fit(images, NAMES, rank=2), tmp_path)
    given = tensors_of(
        GaussianGenerator.from_moments(means, seconds, NAMES, SHAPE, rank=2, provenance=Provenance.public()), tmp_path
    )

    for name in ("means", "variances", "remainder"):
        torch.testing.assert_close(fitted[name], given[name], rtol=1e-4, atol=1e-6)


def test_noise_in_moments_leaves_variances_possible_and_ordered(tmp_path):
    means, seconds = moments_of(make_images())
    noisy = seconds + 0.02 * torch.randn(seconds.shape, generator=stream(), dtype=torch.float64)

    model = GaussianGenerator.from_moments(means, noisy, NAMES, SHAPE, rank=8, provenance=Provenance.public())

    found = tensors_of(model, tmp_path)
    assert (found["remainder"] >= 0).all()
    assert (found["variances"] >= found["remainder"][:, None]).all()
    assert (found["variances"].diff(dim=1) <= 0).all()
    assert model.generate(torch.tensor([0, 1]), 4, stream()).isfinite().all()


def test_only_the_symmetric_part_of_noisy_moments_counts():
    means, seconds = moments_of(make_images())
    noise = 0.02 * torch.randn(seconds.shape, generator=stream(), dtype=torch.float64)

    models = [
        GaussianGenerator.from_moments(means, seconds + part, NAMES, SHAPE, rank=2, provenance=Provenance.public())
        for part in (noise, (noise + noise.mT) / 2)
    ]

    lopsided, symmetric = (model.generate(torch.tensor([0, 1]), 2, stream()) for model in models)
    torch.testing.assert_close(lopsided, symmetric)


def test_images_come_in_the_order_of_the_labels_within_the_unit_interval():
    model = GaussianGenerator.fit(make_images(), NAMES, rank=2)

    images = model.generate(torch.tensor([1, 0, 1]), 50, stream())

    assert images.shape == (150, *SHAPE)
    assert images.dtype == torch.float32
    assert 0 <= images.min() <= images.max() <= 1
    greys = images.reshape(3, 50, -1).mean(dim=(1, 2))
    np.testing.assert_allclose(greys, np.array([140, 110, 140]) / 255, atol=0.02)


def test_values_outside_the_unit_interval_are_clipped():
    seconds = torch.eye(12)[None] * 4
    model = GaussianGenerator.from_moments(
        torch.zeros(1, 12), seconds, ["one"], SHAPE, rank=1, provenance=Provenance.public()
    )

    images = model.generate(torch.tensor([0]), 20, stream())

    assert images.min() == 0
    assert images.max() == 1


def test_the_random_generator_alone_decides_what_is_drawn():
    model = GaussianGenerator.fit(make_images(), NAMES, rank=2)
    labels = torch.tensor([0, 1])

    first, again, other = (model.generate(labels, 3, stream(seed)) for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_identity_says_private_unless_told_otherwise_and_its_digest_follows_the_parameters():
    images = make_images()

    private = GaussianGenerator.fit(images, NAMES, rank=2).identity
    same = GaussianGenerator.fit(images, NAMES, rank=2, provenance=Provenance.public()).identity
    others = [
        GaussianGenerator.fit(make_images(seed=1), NAMES, rank=2).identity,
        GaussianGenerator.fit(images, NAMES, rank=3).identity,
        GaussianGenerator.fit(images, ("a", "b"), rank=2).identity,
    ]

    assert (private.kind, private.settings) == ("gaussian", {"rank": 2})
    assert private.provenance.source is Source.PRIVATE_ADAPTED
    assert private.provenance.uses[0].endswith("images.")
    assert same.provenance == Provenance.public()
    assert same.digest == private.digest
    assert len({private.digest, *(other.digest for other in others)}) == 4


def test_saved_generator_draws_the_same_and_is_readable_by_its_owner_only(tmp_path):
    model = GaussianGenerator.fit(make_images(), NAMES, rank=2, name="greys")
    path = tmp_path / "greys.safetensors"
    model.save(path)

    loaded = GaussianGenerator.load(path)

    assert loaded.identity == model.identity
    labels = torch.tensor([0, 1])
    assert torch.equal(loaded.generate(labels, 2, stream()), model.generate(labels, 2, stream()))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_altered_file_is_refused(tmp_path):
    path = tmp_path / "greys.safetensors"
    GaussianGenerator.fit(make_images(), NAMES, rank=2).save(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = safetensors.torch.load_file(path)
    tensors["means"] += 0.01
    path.write_bytes(safetensors.torch.save(tensors, metadata=metadata))

    with pytest.raises(GenerationError, match="digest"):
        GaussianGenerator.load(path)


@pytest.mark.parametrize("content", [None, b"nonsense", safetensors.torch.save({"means": torch.zeros(1)})])
def test_file_of_another_kind_is_refused(tmp_path, content):
    path = tmp_path / "greys.safetensors"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(GenerationError, match=r"Expected Gaussians .*greys"):
        GaussianGenerator.load(path)


def test_class_with_too_few_images_is_named():
    images = make_images(20).take([*range(0, 20, 2), 1, 3, 5])

    with pytest.raises(GenerationError, match=r"at least 4 images .*\{'malignant': 3\}"):
        GaussianGenerator.fit(images, NAMES, rank=2)


@pytest.mark.parametrize(
    ("images", "names", "rank", "message"),
    [
        (make_images(), NAMES, 0, "rank=0"),
        (make_images(), NAMES, 12, "below the 12 values"),
        (make_images(), ("one",), 2, r"labels from 0 to 0.*found 0 to 1"),
        (make_images(0), NAMES, 2, "one label each"),
        (ImageSet(images=make_images().images, labels=np.zeros((60, 2), np.int64)), NAMES, 2, "one label each"),
    ],
)
def test_what_cannot_be_fitted_is_refused(images, names, rank, message):
    with pytest.raises(GenerationError, match=message):
        GaussianGenerator.fit(images, names, rank=rank)


@pytest.mark.parametrize(
    ("means", "seconds", "message"),
    [
        (torch.zeros(2, 11), torch.zeros(2, 12, 12), "means of shape"),
        (torch.zeros(2, 12), torch.zeros(2, 12, 11), "second moments of shape"),
        (torch.full((2, 12), torch.nan), torch.zeros(2, 12, 12), "finite moments"),
        (torch.zeros(2, 12), torch.full((2, 12, 12), torch.inf), "finite moments"),
    ],
)
def test_impossible_moments_are_refused(means, seconds, message):
    with pytest.raises(GenerationError, match=message):
        GaussianGenerator.from_moments(means, seconds, NAMES, SHAPE, rank=2, provenance=Provenance.public())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: {"means": found["means"][:, 1:].contiguous()}, "means finite, float32 and of shape"),
        (lambda found: {"means": found["means"].double()}, "means finite, float32"),
        (lambda found: {"remainder": found["remainder"] * torch.nan}, "remainder finite"),
        (lambda found: {"variances": -found["variances"]}, "variances >= 0"),
        (lambda found: {"remainder": -found["remainder"]}, "variances >= 0"),
    ],
)
def test_parameters_that_make_no_gaussian_are_refused(tmp_path, change, message):
    path = tmp_path / "greys.safetensors"
    found = tensors_of(GaussianGenerator.fit(make_images(), NAMES, rank=2), tmp_path)
    with safe_open(tmp_path / "saved.safetensors", framework="pt") as file:
        path.write_bytes(safetensors.torch.save({**found, **change(found)}, metadata=file.metadata()))

    with pytest.raises(GenerationError, match=message):
        GaussianGenerator.load(path)


@pytest.mark.parametrize(
    ("labels", "n", "message"),
    [
        (torch.tensor([0, 2]), 1, r"labels from 0 to 1.*found \[2\]"),
        (torch.tensor([-1]), 1, r"found \[-1\]"),
        (torch.tensor([0]), 0, "n=0"),
        (torch.tensor([0.0]), 1, "float32"),
        (torch.tensor([[0]]), 1, r"\(1, 1\)"),
        (torch.tensor([], dtype=torch.int64), 1, "L >= 1"),
    ],
)
def test_request_for_what_it_does_not_know_is_refused(labels, n, message):
    model = GaussianGenerator.fit(make_images(), NAMES, rank=2)

    with pytest.raises(GenerationError, match=message):
        model.generate(labels, n, stream())


def test_gaussians_and_folders_need_no_optional_library():
    blocked = "".join(f"sys.modules[{name!r}] = None; " for name in ("diffusers", "transformers", "huggingface_hub"))
    imports = "import aegis_cache.generation.folder, aegis_cache.generation.gaussian"

    finished = subprocess.run(
        [sys.executable, "-c", f"import sys; {blocked}{imports}"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == 0, finished.stderr
