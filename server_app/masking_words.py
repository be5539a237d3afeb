"""What masking by synthetic images does in a run and what it does not, in words.

Masking (arXiv 2609.38339) is an empirical defence, never differential privacy: nothing here is a guarantee, and no
epsilon follows from it. Read next: `federation.occupancy` for the count, `server_app.report.masking` for its numbers.
"""

from __future__ import annotations

from federation.config import MaskingConfig, TrainingConfig

_ASKED = (
    "hospitals were asked to add gradients of synthetic images to those of real ones in local training (mode {mode}): "
    "an empirical defence, not differential privacy."
)
_COUNT = (
    "Against a server that plants a layer with k bins ({capacity} assumed) and reads one update, a real image is read "
    "verbatim only if it is alone in its bin: an expected share of (1 - 1/k)^(n + M - 1), with n training images and "
    "{size} synthetic ones, if both weigh the same and look alike."
)
_NO_COUNT = "No share is stated for a server that plants a layer with bins: the synthetic images are not counted."
_EQUAL = "In every step of this mode the loss of a synthetic image weighs as much as that of a real one."
_EQUAL_OVER_EPOCH = (
    "Under SGD without momentum a synthetic image of this mode weighs as much as a real one over an epoch, though in "
    "another step."
)
_SEQUENTIAL = (
    "The step on synthetic images is not weighted, as published: a synthetic image weighs {batch}/{images} of a "
    "real one, and measurement shows that this protects hardly at all."
)
_RESCALED = (
    "The weights of this mode are lost under {optimizer}, whose steps do not depend on the scale of the loss: real and "
    "synthetic images do not weigh the same."
)
_CARRIED = (
    "Momentum {momentum:g} carries steps on real images on, and the step on synthetic ones comes last: real and "
    "synthetic images do not weigh the same."
)
_CLIPPED = (
    "Under dp-sgd that holds before clipping: real images are clipped and synthetic ones are not, so that real ones "
    "weigh at most as much as stated beside them, and the noise is in no count."
)
_UNKNOWN = "How real and synthetic images weigh in this mode is not known."

_GAP_OF_BINS = "a server with more bins than the {capacity} assumed: their number is the server's choice"
_GAP_OF_UNEVEN_BINS = "a server that makes its bins uneven: many narrow ones and a few wide ones that it gives up"
_GAP_OF_CLASSES = (
    "a server whose model lets only images of one class move its bins: only those of that class count then, real and "
    "synthetic, and the images of a rare class are read almost all"
)
_GAP_OF_STEPS = (
    "a server whose bins die after the first optimizer step: only one mini-batch and its share of the synthetic "
    "images, if it has any, count then (under joint all of them)"
)
_GAP_OF_ANY_BINS = "a server that plants a layer with bins, however many"
_GAP_OF_ROUNDS = "several rounds with the same real images: each is another draw of which of them are alone"
_GAPS_OF_REFRESH = {
    "subset": "the difference of two updates, as far as both drew the same synthetic images (refresh subset)",
    "augment": "many updates taken together: synthetic images are changed only a little between them (refresh augment)",
    "rotate": "the difference of two updates with the same synthetic images, which come again once all of the cache "
    "were used (refresh rotate)",
}
_GAP_WITHOUT_REFRESH = (
    "the difference of two updates from the same parameters: images that are in both cancel in it, and those that are "
    "new stand there without synthetic ones (refresh none)"
)
_GAPS_AFTER = (
    "synthetic images that differ visibly from real ones, which a server can tell apart",
    "reconstructions of low resolution, or of an average image",
    "membership inference",
    "counts of labels",
)
_NO_EPSILON = "No epsilon follows from masking, and the ledger counts nothing for it."
_OUTSIDE = (
    "Gradients of synthetic images were added outside the mechanism: an epsilon that is stated comes from the "
    "mechanism alone, and its clipping changes what real images weigh beside synthetic ones."
)
_BESIDE = "An epsilon that is stated comes from the mechanism alone."


def describe_masking(masking: MaskingConfig, training: TrainingConfig, mechanism: str) -> list[str]:
    """Return the sentences of a run with `masking`: what was measured, and what is not protected; none without it.

    Args:
        masking: as the server asked for it.
        training: as the server asked for it; its optimizer decides what an image weighs.
        mechanism: of `privacy`, beside which masking stood.
    """
    if not masking.is_on:
        return []
    gaps = "; ".join(list_gaps(masking, training))
    return [
        f"Measured, not guaranteed (masking): {' '.join(list_effects(masking, training, mechanism))}",
        f"Not protected by masking: {gaps}. {describe_account(mechanism)}",
    ]


def list_effects(masking: MaskingConfig, training: TrainingConfig, mechanism: str) -> list[str]:
    """Return sentences on what masking does beside the `mechanism` of `privacy`, the first without a capital letter."""
    values = {
        "mode": masking.mode,
        "capacity": masking.capacity,
        "size": f"M = {masking.images}" if masking.images else "M",
        "images": masking.images or "M",
        "batch": training.batch_size,
        "optimizer": {"adam": "Adam", "adamw": "AdamW"}.get(training.optimizer, training.optimizer),
        "momentum": training.momentum,
    }
    count = _COUNT if weighs_equally(masking, training) else _NO_COUNT
    clipped = [_CLIPPED] if mechanism == "dp-sgd" else []
    return [text.format(**values) for text in (_ASKED, _weight(masking, training), *clipped, count)]


def list_gaps(masking: MaskingConfig, training: TrainingConfig) -> list[str]:
    """Return what masking does not protect against, as parts of a sentence."""
    bins = [_GAP_OF_ANY_BINS]
    if weighs_equally(masking, training):
        bins = [_GAP_OF_BINS.format(capacity=masking.capacity), _GAP_OF_UNEVEN_BINS, _GAP_OF_CLASSES]
        bins += [_GAP_OF_STEPS] if masking.mode != "joint" else []
    refresh = [text for way, text in _GAPS_OF_REFRESH.items() if way in masking.refreshes]
    return [*bins, _GAP_OF_ROUNDS, *(refresh or [_GAP_WITHOUT_REFRESH]), *_GAPS_AFTER]


def describe_account(mechanism: str) -> str:
    """Return what masking has to do with an epsilon under `mechanism`: nothing."""
    beside = {"none": "", "dp-sgd": f" {_OUTSIDE}"}.get(mechanism, f" {_BESIDE}")
    return _NO_EPSILON + beside


def weighs_equally(masking: MaskingConfig, training: TrainingConfig) -> bool:
    """Return whether real and synthetic images weigh the same in an update, so that both count against a server.

    Not so under `sequential`; under `lambda` only with SGD without momentum, because the two stand in different steps.
    """
    return _weight(masking, training) in (_EQUAL, _EQUAL_OVER_EPOCH)


def _weight(masking: MaskingConfig, training: TrainingConfig) -> str:
    """Return the template of the sentence on what a synthetic image weighs beside a real one."""
    if masking.mode in ("joint", "interleaved"):
        return _EQUAL
    if masking.mode == "sequential":
        return _SEQUENTIAL
    if masking.mode != "lambda":
        return _UNKNOWN
    if training.optimizer != "sgd":
        return _RESCALED
    return _CARRIED if training.momentum else _EQUAL_OVER_EPOCH
