"""What releasing and scoring promise, restated: nothing leaves unwritten, one image moves a count by one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from client_app.ledger import Ledger
from client_app.policy import SitePolicy
from client_app.releasing import Bill, open_ledger, release
from client_app.scoring import blur
from client_app.site import DeployedHospital, ReleaseKey
from federation.accounting.accounts import account_of
from federation.accounting.events import GaussianRelease, Relation, Unit
from federation.accounting.mechanism import METRICS, Mechanism
from federation.config import DataConfig, ModelConfig
from federation.datasets.image_set import DatasetInfo, ImageSet, Task
from federation.errors import BudgetExhaustedError, LedgerError
from federation.metrics import Scores, evaluate
from federation.models import build_model
from federation.records.declarations import Declaration

_MEMORY = Path("/dev/shm")
FIFTH = GaussianRelease(noise_multiplier=24.22)  # 0.2 by the linear account at delta 1e-5.
BILL = Bill(
    data_set="scans",
    mechanism=Mechanism(name="update-gaussian", relation=Relation.ZERO_OUT, unit=Unit.UPDATE, clip_norm=1.0),
    event=FIFTH,
    delta=1e-5,
    cap=1.0,
    budget=1.0,
    account="linear",
)


class Death(BaseException):
    """Plays the end of the process: what it held is closed, and nothing else is done."""


def hospital_in(folder: Path) -> DeployedHospital:
    policy = {
        "hospital-id": "north",
        "state-dir": str(folder / "state"),
        "keys-dir": str(folder / "keys"),
        "data": {"id": "scans", "name": "npz", "root": str(folder / "own.npz")},
    }
    return DeployedHospital(hospital_id="north", data=DataConfig(), policy=SitePolicy.model_validate(policy))


def die(*_: object) -> None:
    raise Death


def attempt(site: DeployedHospital, message: str, fate: str) -> bool:
    """Ask for one answer that meets `fate`, and return whether it left."""

    def form(declaration: Declaration | None) -> Declaration | None:
        if fate == "fails":
            raise ValueError
        if fate == "dies forming":
            raise Death
        return declaration

    with pytest.MonkeyPatch.context() as patch:
        if fate.startswith("dies"):
            patch.setattr(Ledger, "cancel", lambda *_: None)  # A process that died gives nothing back.
        if fate == "dies before the commit":
            patch.setattr(Ledger, "commit", die)
        try:
            release(site, ReleaseKey(run="run", message=message), BILL, form)
        except (ValueError, Death, BudgetExhaustedError, LedgerError):
            return False
    return True


FATES = ["leaves", "fails", "dies forming", "dies before the commit"]


@settings(max_examples=40, deadline=None)
@given(script=st.lists(st.tuples(st.integers(0, 7), st.sampled_from(FATES)), max_size=15))
def test_whatever_happens_every_answer_that_left_was_committed_and_the_cap_holds(
    script: list[tuple[int, str]],
) -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        site, left, lost = hospital_in(Path(folder)), set(), set()
        for message, fate in script:
            if attempt(site, str(message), fate):
                assert message not in left
                left.add(message)
            elif fate.startswith("dies"):
                lost.add(message)
        with open_ledger(site) as ledger:
            spend = ledger.spend("scans", 1e-5)

    assert spend.committed == len(left)
    assert len(left) <= spend.releases <= len(left | lost)
    assert account_of("linear").epsilon(spend.history, 1e-5) <= 1.0


def test_no_answer_leaves_that_the_cap_has_no_room_for() -> None:
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        site = hospital_in(Path(folder))

        assert [attempt(site, str(number), "leaves") for number in range(7)] == [True] * 5 + [False] * 2


class Recorder:
    """Draws no noise, and remembers how much was asked for."""

    def __init__(self) -> None:
        self.stddevs: list[float] = []

    def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> Tensor:
        self.stddevs.append(stddev)
        return torch.zeros(shape, device=device)

    def uniform(self, count: int) -> Tensor:
        raise AssertionError(count)


def image_set(task: Task, count: int) -> tuple[ImageSet, DatasetInfo]:
    classes = 5
    stream = np.random.default_rng(count)
    several = task is Task.MULTILABEL
    labels = stream.integers(0, 2, (count, classes)) if several else stream.integers(0, classes, count)
    images = stream.integers(0, 256, (count, 1, 8, 8), dtype=np.uint8)
    names = tuple(f"class {index}" for index in range(classes))
    info = DatasetInfo(name="toy", task=task, class_names=names, channels=1, height=8, width=8)
    return ImageSet(images=images, labels=labels), info


@pytest.mark.parametrize("task", list(Task))
def test_one_image_more_moves_the_number_of_correct_answers_by_at_most_the_sensitivity(task: Task) -> None:
    images, info = image_set(task, 40)
    model = build_model(ModelConfig(name="mlp", hidden_units=4), info, seed=0)
    noise, event = Recorder(), GaussianRelease(noise_multiplier=3.0)

    def count(of: ImageSet) -> float:
        blurred = blur(evaluate(model, of, info, torch.device("cpu")), event, noise)
        return blurred.accuracy * blurred.examples

    everybody = count(images)
    changes = [abs(everybody - count(images.take(np.delete(np.arange(40), index)))) for index in range(40)]

    assert max(changes) <= METRICS.sensitivity + 1e-9
    assert max(changes) > 0
    assert set(noise.stddevs) == {3.0 * METRICS.sensitivity}
    assert (METRICS.relation, METRICS.unit) == (Relation.ADD_REMOVE, Unit.RECORD)


@given(
    labels=st.integers(1, 100),
    images=st.integers(2, 5000),
    data=st.data(),
    noise=st.floats(-1e4, 1e4),
)
def test_noised_count_is_a_whole_number_that_one_image_moves_by_at_most_one(
    labels: int, images: int, data: st.DataObject, noise: float
) -> None:
    """Of several labels per image any number may be right: the counts of neighbours are shares of `labels`."""
    right = data.draw(st.integers(0, labels * (images - 1)), label="right labels of the others")
    own = data.draw(st.integers(0, labels), label="right labels of the image")

    class Fixed(Recorder):
        def normal(self, shape: tuple[int, ...] | torch.Size, stddev: float, *, device: torch.device) -> Tensor:
            return torch.full(shape, noise, device=device)

    counts = []
    for correct, count in ((right + own, images), (right, images - 1)):
        # As `evaluate` tells it: the mean over images and labels.
        exact = Scores(accuracy=correct / (labels * count), auroc=None, loss=None, examples=count)
        counts.append(blur(exact, GaussianRelease(noise_multiplier=1.0), Fixed()).accuracy * count)

    whole = [round(count) for count in counts]
    assert counts == pytest.approx(whole, abs=1e-9)
    # Where the count would leave the bounds it is moved to them, and one of them grows with the number of images.
    assert abs(whole[0] - whole[1]) <= 1


@pytest.mark.parametrize(("labels", "right", "images"), [(2, 15, 12), (2, 15, 14), (2, 13, 24), (2, 29, 26)])
def test_half_answers_that_divisions_make_too_small_still_move_the_count_by_at_most_one(
    labels: int, right: int, images: int
) -> None:
    counts = []
    for correct, count in ((right + labels, images), (right, images - 1)):
        exact = Scores(accuracy=correct / (labels * count), auroc=None, loss=None, examples=count)
        counts.append(blur(exact, GaussianRelease(noise_multiplier=1.0), Recorder()).accuracy * count)

    assert counts[0] - counts[1] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("kept", [{"auroc": None}, {"loss": None}])
def test_nothing_but_the_noised_share_is_told_of_the_scores(kept: dict[str, Any]) -> None:
    images, info = image_set(Task.MULTICLASS, 40)
    exact = evaluate(build_model(ModelConfig(), info, seed=0), images, info, torch.device("cpu"))

    blurred = blur(exact, GaussianRelease(noise_multiplier=3.0), Recorder())

    assert {name: getattr(blurred, name) for name in kept} == kept
