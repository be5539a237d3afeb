"""Class fishing: an output layer behind which images of one class alone leave anything in the layers in front of it.

The gradient of an image's loss for the last hidden layer is sum_c (p_c - y_c) W_c, with the predicted probabilities p,
the label y and the rows W of the output layer. Where all rows but that of class a are equal and p_a is about 0, it is 0
for every image of another class, real or synthetic, and -W_a, less what the rows share, for those of class a. Bins in
front of it are then shared by the n_a + M_a images of that class instead of all n + M (`federation.occupancy`), and one
update a class reads each image among its own class alone. Read next: `robbing_the_fed`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from attacks.threat_model import ServerView
from federation.errors import DataError

NEVER = -60.0
"""Logit of a class that is never predicted: p is below 1e-26, which no float32 sum of gradients shows."""


def hear_one_class(output: nn.Linear, heard: int) -> None:
    """Change `output` so that images of class `heard` alone leave a gradient in front of it.

    As Wen et al. do to magnify one class ("class fishing", arXiv 2202.00580): rows of other classes are zero.

    Deviation: the row of `heard` is negative, so that its logit stays low whatever the rectified units before it say;
    and its bias is low, where theirs of the others are high, which a softmax does not tell apart.

    Args:
        output: rows of one value each, as `plant_in_mlp` makes them, behind units that are never negative.
        heard: from 0 to classes - 1.
    """
    with torch.no_grad():
        row = -output.weight[heard].abs()
        output.weight.zero_()
        output.weight[heard] = row
        output.bias.zero_()
        output.bias[heard] = NEVER


def narrow_to_class(view: ServerView, rank: int) -> tuple[int, ServerView]:
    """Return a class, and `view` with the server's own images of that class alone.

    Args:
        view: with auxiliary images and one label for each.
        rank: 0 for the class that the server has the fewest images of, 1 for the next; classes of which it has none do
            not count.

    Raises:
        DataError: there are no images or labels, several labels an image, or fewer classes.
    """
    auxiliary, labels = view.require_auxiliary(), view.auxiliary_labels
    if labels is None or labels.ndim != 1:
        raise DataError("Expected one label for each of the server's own images.")
    classes, counts = np.unique(labels, return_counts=True)
    if rank >= len(classes):
        raise DataError(
            f"Expected at most {len(classes)} rounds, one for each class that the server has images of, found round "
            f"{rank + 1}."
        )
    chosen = int(classes[np.argsort(counts, kind="stable")[rank]])
    alike = labels == chosen
    return chosen, replace(view, auxiliary=auxiliary[alike], auxiliary_labels=labels[alike])
