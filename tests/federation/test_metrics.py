"""Accuracy, AUROC and loss agree with scikit-learn and with closed forms, and measuring leaves the model alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from torch import Tensor, nn

from federation.datasets.image_set import DatasetInfo, ImageSet, Task
from federation.metrics import auroc, criterion, evaluate, macro_auroc, predict, targets

CPU = torch.device("cpu")
# Few different values, so that ties are the rule.
SCORES = st.integers(0, 4).map(lambda tenth: tenth / 10)


def info_of(task: Task, classes: int) -> DatasetInfo:
    names = tuple(f"class {index}" for index in range(classes))
    return DatasetInfo(name="toy", task=task, class_names=names, channels=1, height=2, width=2)


def images_with(labels: Any, seed: int = 0) -> ImageSet:
    labels = np.asarray(labels, dtype=np.int64)
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), 1, 2, 2), dtype=np.uint8)
    return ImageSet(images=images, labels=labels)


class Recorder(nn.Module):
    """Returns constant logits, or those of a linear layer, and remembers the batches that it saw."""

    def __init__(self, classes: int, logits: list[float] | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(4, classes)
        self.dropout = nn.Dropout(0.5)
        self.logits = None if logits is None else torch.tensor(logits)
        self.seen: list[tuple[Tensor, bool]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append((images, self.training))
        if self.logits is not None:
            return self.logits.expand(len(images), -1)
        logits: Tensor = self.dropout(self.linear(images.flatten(1)))
        return logits


@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=2, max_size=40))
def test_auroc_agrees_with_scikit_learn_with_ties(pairs: list[tuple[float, bool]]) -> None:
    scores = np.array([score for score, _ in pairs], dtype=np.float32)
    positives = np.array([positive for _, positive in pairs])
    assume(0 < positives.sum() < len(positives))

    assert auroc(scores, positives) == pytest.approx(roc_auc_score(positives, scores), abs=1e-12)


@pytest.mark.parametrize("positives", [[True, True], [False, False], []])
def test_auroc_is_unknown_without_positives_or_without_negatives(positives: list[bool]) -> None:
    assert auroc(np.zeros(len(positives), np.float32), np.array(positives, dtype=bool)) is None


def test_auroc_is_the_share_of_ordered_pairs_and_half_the_ties() -> None:
    scores = np.array([0.9, 0.5, 0.5, 0.1], dtype=np.float32)

    assert auroc(scores, np.array([True, True, False, False])) == (1 + 1 + 0.5 + 1) / 4


@given(arrays(np.float32, (12, 3), elements=SCORES), arrays(np.int64, 12, elements=st.integers(0, 2)))
def test_macro_auroc_agrees_with_scikit_learn_where_every_class_is_present(scores: Any, labels: Any) -> None:
    positives = np.eye(3, dtype=bool)[labels]
    assume(positives.any(axis=0).all())

    assert macro_auroc(scores, positives) == pytest.approx(roc_auc_score(positives, scores, average="macro"), abs=1e-12)


def test_macro_auroc_leaves_out_classes_without_positives() -> None:
    scores = np.array([[0.8, 0.1, 0.1], [0.3, 0.4, 0.3]], dtype=np.float32)
    positives = np.array([[True, False, False], [False, True, False]])
    scores_of_the_absent = scores.copy()
    scores_of_the_absent[:, 2] = [1, 0]

    assert macro_auroc(scores, positives) == 1.0
    assert macro_auroc(scores_of_the_absent, positives) == 1.0


def test_macro_auroc_is_unknown_where_one_class_is_all_there_is() -> None:
    positives = np.array([[True, False], [True, False]])

    assert macro_auroc(np.zeros((2, 2), np.float32), positives) is None


def test_scores_of_several_classes_agree_with_scikit_learn() -> None:
    images = images_with([0, 1, 2, 2, 1, 0, 0, 1, 2, 1] * 3)
    model = Recorder(3).eval()
    with torch.no_grad():
        probabilities = model(torch.from_numpy(images.images / 255).float()).double().softmax(1).numpy()

    scores = evaluate(model, images, info_of(Task.MULTICLASS, 3), CPU)

    assert scores.accuracy == accuracy_score(images.labels, probabilities.argmax(1))
    assert scores.loss == pytest.approx(log_loss(images.labels, probabilities), rel=1e-5)
    assert scores.auroc == pytest.approx(
        roc_auc_score(images.labels, probabilities, multi_class="ovr", average="macro"), abs=1e-9
    )
    assert scores.examples == 30


def test_scores_of_several_labels_agree_with_scikit_learn() -> None:
    labels = np.random.default_rng(1).integers(0, 2, (25, 4))
    images = images_with(labels)
    model = Recorder(4).eval()
    with torch.no_grad():
        probabilities = model(torch.from_numpy(images.images / 255).float()).double().sigmoid().numpy()

    scores = evaluate(model, images, info_of(Task.MULTILABEL, 4), CPU)

    chosen = probabilities > 0.5
    assert scores.accuracy == pytest.approx(np.mean([accuracy_score(labels[:, k], chosen[:, k]) for k in range(4)]))
    losses = [log_loss(labels[:, k], probabilities[:, k], labels=[0, 1]) for k in range(4)]
    assert scores.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert scores.auroc == pytest.approx(roc_auc_score(labels, probabilities, average="macro"), abs=1e-9)


def test_indifferent_model_has_the_loss_of_a_fair_die_and_the_auroc_of_a_coin() -> None:
    scores = evaluate(Recorder(4, [0.0] * 4), images_with([0, 1, 2, 3]), info_of(Task.MULTICLASS, 4), CPU)

    assert scores.loss == pytest.approx(math.log(4))
    assert scores.accuracy == 0.25
    assert scores.auroc == 0.5


def test_label_is_predicted_above_one_half_only() -> None:
    images = images_with([[1, 1, 0], [1, 1, 0]])

    scores = evaluate(Recorder(3, [0.0, 0.25, -2.0]), images, info_of(Task.MULTILABEL, 3), CPU)

    assert scores.accuracy == pytest.approx(4 / 6)
    assert scores.loss == pytest.approx((math.log(2) + math.log(1 + math.exp(-0.25)) + math.log(1 + math.exp(-2))) / 3)
    assert (scores.auroc, scores.examples) == (None, 2)


@pytest.mark.parametrize("mode", [True, False])
def test_prediction_runs_in_evaluation_mode_and_restores_the_mode_it_found(mode: bool) -> None:
    model = Recorder(2).train(mode)

    predict(model, images_with([0] * 3), CPU)

    assert [training for _, training in model.seen] == [False]
    assert (model.training, model.dropout.training) == (mode, mode)


@pytest.mark.parametrize("count", [1, 499, 500, 501, 1001])
def test_every_image_is_predicted_once_in_order_whatever_the_batches(count: int) -> None:
    images = images_with([0] * count)
    model = Recorder(2).eval()

    logits = predict(model, images, CPU)

    seen = torch.cat([batch for batch, _ in model.seen])
    torch.testing.assert_close(seen, torch.from_numpy(images.images).float() / 255)
    torch.testing.assert_close(logits, model.linear(seen.flatten(1)).detach())
    assert logits.dtype == torch.float32
    assert not logits.requires_grad


def test_images_that_must_not_be_written_can_be_scored() -> None:
    images = images_with([0, 1])
    images.images.flags.writeable = False
    images.labels.flags.writeable = False

    assert evaluate(Recorder(2), images, info_of(Task.MULTICLASS, 2), CPU).examples == 2


@pytest.mark.parametrize(
    ("task", "loss", "dtype"),
    [(Task.MULTICLASS, nn.CrossEntropyLoss, torch.int64), (Task.MULTILABEL, nn.BCEWithLogitsLoss, torch.float32)],
)
def test_task_decides_loss_and_dtype_of_labels(task: Task, loss: type[nn.Module], dtype: torch.dtype) -> None:
    assert isinstance(criterion(task), loss)
    assert targets(torch.tensor([0, 1]), task).dtype == dtype
