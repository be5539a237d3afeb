"""A hospital computes where its plan says, and leaves the process as it found it."""

from __future__ import annotations

import pytest
import torch

from client_app.device import cpu_threads, pick_device
from federation.errors import SiteError, SiteErrorCode


def pretend(monkeypatch: pytest.MonkeyPatch, *, cuda: bool, mps: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_takes_cuda_then_mps_then_the_cpu(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str
) -> None:
    pretend(monkeypatch, cuda=cuda, mps=mps)

    assert pick_device("auto") == torch.device(expected)


@pytest.mark.parametrize("name", ["cpu", "cuda", "mps"])
def test_named_device_is_taken_where_it_is_present(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pretend(monkeypatch, cuda=True, mps=True)

    assert pick_device(name) == torch.device(name)


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_absent_device_is_refused_and_not_replaced(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pretend(monkeypatch, cuda=False, mps=False)

    with pytest.raises(SiteError, match=f"training.device='{name}'") as caught:
        pick_device(name)

    assert caught.value.code is SiteErrorCode.CONFIGURATION


def test_threads_are_set_for_the_block_and_restored_after_it() -> None:
    before = torch.get_num_threads()

    with cpu_threads(before + 1):
        inside = torch.get_num_threads()

    assert (inside, torch.get_num_threads()) == (before + 1, before)


def test_threads_are_restored_when_the_block_fails() -> None:
    before = torch.get_num_threads()

    with pytest.raises(ValueError, match="x"), cpu_threads(before + 1):
        raise ValueError("x")

    assert torch.get_num_threads() == before


def test_zero_threads_leaves_the_number_alone() -> None:
    before = torch.get_num_threads()

    with cpu_threads(0):
        assert torch.get_num_threads() == before
