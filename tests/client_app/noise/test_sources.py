"""The contract of every noise source, and what only one of them promises."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import random
import re

import numpy as np
import pytest
import torch

from client_app.noise.cryptographic import CryptographicNoise
from client_app.noise.draw_bounds import LARGEST_STDDEV, SMALLEST_STDDEV
from client_app.noise.keystream import Keystream
from client_app.noise.simulated import SimulatedNoise
from client_app.noise.source import NoiseSource
from federation.errors import ConfigurationError, PrivacyError

CPU = torch.device("cpu")


class NoiseSourceContract:
    """What every source promises; subclasses provide the fixture `noise`."""

    @pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 5), torch.Size([4, 1, 7]), (32769,), (80001,)])
    def test_noise_has_the_asked_shape_in_float32_on_the_device(self, noise: NoiseSource, shape) -> None:
        drawn = noise.normal(shape, 1.0, device=CPU)

        assert (drawn.shape, drawn.dtype, drawn.device) == (torch.Size(shape), torch.float32, CPU)
        assert drawn.is_contiguous()
        assert drawn.isfinite().all()

    @pytest.mark.parametrize("count", [1, 2, 3, 9999, 32768, 32769, 50001])
    def test_every_element_is_a_draw_of_its_own(self, noise: NoiseSource, count: int) -> None:
        drawn = noise.normal((count,), 1.0, device=CPU)

        # float32 collisions: below 50001^2 / 2 pairs at 2^-22 or rarer each, far below a hundredth of the draws.
        assert drawn.unique().numel() > 0.98 * count
        assert drawn.count_nonzero() == count

    @pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
    def test_empty_shape_gives_an_empty_tensor(self, noise: NoiseSource, shape: tuple[int, ...]) -> None:
        assert noise.normal(shape, 1.0, device=CPU).shape == shape

    def test_no_noise_is_zeros(self, noise: NoiseSource) -> None:
        assert torch.equal(noise.normal((3, 2), 0.0, device=CPU), torch.zeros(3, 2))

    @pytest.mark.parametrize("stddev", [SMALLEST_STDDEV, 1e-3, 7.0, LARGEST_STDDEV])
    def test_noise_has_the_asked_standard_deviation(self, noise: NoiseSource, stddev: float) -> None:
        drawn = noise.normal((200_000,), stddev, device=CPU).double() / stddev

        # The relative error of a standard deviation from n normals is 1 / sqrt(2 n); 6.5 of them: 8e-11.
        assert drawn.square().mean().sqrt().item() == pytest.approx(1, abs=6.5 / math.sqrt(400_000))

    @pytest.mark.parametrize("stddev", [-1.0, -1e-300, math.nan, math.inf, -math.inf, 1e-31, 5e-324, 1e31])
    def test_impossible_standard_deviation_is_refused(self, noise: NoiseSource, stddev: float) -> None:
        with pytest.raises(PrivacyError, match=re.escape(f"Expected noise_stddev={stddev} ")):
            noise.normal((2,), stddev, device=CPU)

    @pytest.mark.parametrize("shape", [(-1,), (-2, -3), (0, -1)])
    def test_negative_size_is_refused(self, noise: NoiseSource, shape: tuple[int, ...]) -> None:
        with pytest.raises(PrivacyError, match=">= 0"):
            noise.normal(shape, 1.0, device=CPU)

    def test_uniform_numbers_are_float64_in_the_half_open_unit_interval(self, noise: NoiseSource) -> None:
        drawn = noise.uniform(100_000)

        assert (drawn.shape, drawn.dtype, drawn.device) == ((100_000,), torch.float64, CPU)
        assert 0 <= drawn.min() < 1e-3  # of 100,000 draws none is below 1e-3 with probability e^-100
        assert 1 - 1e-3 < drawn.max() < 1
        assert drawn.unique().numel() == 100_000

    def test_no_uniform_numbers_are_an_empty_tensor(self, noise: NoiseSource) -> None:
        assert noise.uniform(0).shape == (0,)

    def test_negative_count_of_uniform_numbers_is_refused(self, noise: NoiseSource) -> None:
        with pytest.raises(PrivacyError, match="Expected count=-1 >= 0"):
            noise.uniform(-1)

    def test_global_generators_are_left_alone(self, noise: NoiseSource) -> None:
        def states() -> tuple[object, ...]:
            numpy_state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 -- the one that must not move
            return torch.get_rng_state().tolist(), numpy_state["key"].tolist(), numpy_state["pos"], random.getstate()

        before = states()

        noise.normal((100,), 1.0, device=CPU)
        noise.uniform(100)

        assert states() == before

    def test_surrounding_torch_defaults_do_not_matter(self, noise: NoiseSource) -> None:
        torch.set_default_dtype(torch.float64)
        try:
            with torch.device("meta"), torch.inference_mode():
                drawn, uniform = noise.normal((3,), 1.0, device=CPU), noise.uniform(3)
        finally:
            torch.set_default_dtype(torch.float32)

        assert (drawn.dtype, drawn.device, uniform.device) == (torch.float32, CPU, CPU)
        assert drawn.count_nonzero() == 3


class TestCryptographicNoise(NoiseSourceContract):
    @pytest.fixture
    def noise(self) -> NoiseSource:
        return CryptographicNoise()

    def test_constructor_and_draws_accept_no_seed(self) -> None:
        assert not inspect.signature(CryptographicNoise).parameters
        assert list(inspect.signature(CryptographicNoise.normal).parameters) == ["self", "shape", "stddev", "device"]
        assert list(inspect.signature(CryptographicNoise.uniform).parameters) == ["self", "count"]

    @pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
    def test_source_cannot_be_duplicated(self, noise: NoiseSource, duplicate) -> None:
        with pytest.raises(TypeError, match="would repeat its noise"):
            duplicate(noise)

    @pytest.mark.parametrize("call", [lambda n: n.normal((2,), math.nan, device=CPU), lambda n: n.uniform(-1)])
    def test_refusal_comes_before_any_draw(self, monkeypatch: pytest.MonkeyPatch, noise: NoiseSource, call) -> None:
        drawn: list[int] = []
        monkeypatch.setattr(Keystream, "fill", lambda self, buffer: drawn.append(len(buffer)))

        with pytest.raises(PrivacyError):
            call(noise)

        assert drawn == []

    def test_no_noise_takes_nothing_from_the_stream(self, monkeypatch: pytest.MonkeyPatch, noise: NoiseSource) -> None:
        drawn: list[int] = []
        monkeypatch.setattr(Keystream, "fill", lambda self, buffer: drawn.append(len(buffer)))

        noise.normal((100,), 0.0, device=CPU)

        assert drawn == []

    def test_memory_for_making_many_samples_is_bounded(
        self, monkeypatch: pytest.MonkeyPatch, noise: NoiseSource
    ) -> None:
        asked: list[int] = []
        original = Keystream.fill

        def count(self: Keystream, buffer: memoryview) -> None:
            asked.append(len(buffer))
            original(self, buffer)

        monkeypatch.setattr(Keystream, "fill", count)

        noise.normal((1_000_001,), 1.0, device=CPU)

        assert max(asked) <= 24 * 32768
        assert 24 * 1_000_001 <= sum(asked) <= 1.001 * 24 * 1_000_001

    def test_uniform_numbers_are_the_words_of_the_stream(
        self, monkeypatch: pytest.MonkeyPatch, noise: NoiseSource
    ) -> None:
        words = [0, 1, 2**53 - 1, 2**53, 2**64 - 1, 2**63, 3 << 51]

        def hand_out(self: Keystream, buffer: memoryview) -> None:
            buffer[:] = np.array(words, dtype=np.uint64).tobytes()

        monkeypatch.setattr(Keystream, "fill", hand_out)

        drawn = noise.uniform(len(words)).tolist()

        assert drawn == [(word % 2**53) / 2**53 for word in words]


class TestSimulatedNoise(NoiseSourceContract):
    @pytest.fixture
    def noise(self) -> NoiseSource:
        return SimulatedNoise(7)

    def test_same_seed_repeats_and_another_does_not(self) -> None:
        first, again, other = (SimulatedNoise(seed) for seed in (3, 3, 4))

        drawn = [torch.cat([n.normal((50,), 2.0, device=CPU), n.uniform(9).float()]) for n in (first, again, other)]

        assert torch.equal(drawn[0], drawn[1])
        assert not torch.isin(drawn[0], drawn[2]).any()

    def test_successive_draws_differ(self, noise: NoiseSource) -> None:
        first, second = (noise.normal((50,), 1.0, device=CPU) for _ in range(2))

        assert not torch.isin(first, second).any()

    @pytest.mark.parametrize("seed", [-1, 2**63])
    def test_impossible_seed_is_refused(self, seed: int) -> None:
        with pytest.raises(ConfigurationError, match=f"seed={seed}"):
            SimulatedNoise(seed)

    def test_seed_is_required(self) -> None:
        with pytest.raises(TypeError):
            SimulatedNoise()  # type: ignore[call-arg]
