"""The Gaussian mechanism on a whole update: clip it, add noise, release it once.

Read next: `schedule` for how much noise, `federation.accounting` for what it is worth.
"""

from __future__ import annotations

import math

import torch

from client_app.noise.source import NoiseSource
from client_app.perturbation.clipping import clip_jointly
from client_app.perturbation.layer_groups import divide_layers
from federation.accounting.events import Relation
from federation.config import PrivacyConfig
from federation.config.layer_shares import parse_layer_shares
from federation.errors import ModelError, PrivacyError, SiteError, SiteErrorCode
from federation.parameters import Parameters, is_finite

_NAMED = 5


def perturb_update(
    update: Parameters, *, privacy: PrivacyConfig, noise_multiplier: float, noise: NoiseSource
) -> Parameters:
    """Return `update` clipped and noised; the one that was given stays as it is.

    The update is divided into the G groups of `privacy.layer_shares` (one group, if none are named). Group g, with
    share w_g, is clipped to C_g = C / sqrt(G), so that the whole never exceeds C, and gets noise of the standard
    deviation z_g * S(C_g), where z_g = noise_multiplier / sqrt(w_g) and S(c) is c (zero-out) or 2c (replace-one).
    Equal shares therefore cause the noise of an undivided update, and a larger share less of it.

    Guarantee:
        What is released is one release of the Gaussian mechanism with `noise_multiplier`
        (`GaussianRelease(noise_multiplier)`), however it is divided. Bounded quantity: the whole update, L2 norm at
        most C. Neighbouring relation: `privacy.relation`. Unit of privacy: everything the hospital put into this one
        update. Proof: divide group g by its standard deviation z_g * S(C_g); nothing is lost, as that is a constant.
        The noise is now standard normal in every coordinate, and neighbours differ by at most
        sqrt(sum_g (S(C_g) / (z_g * S(C_g)))^2) = sqrt(sum_g w_g) / noise_multiplier = 1 / noise_multiplier,
        because the shares sum to 1. The C_g cancel: any other rule for them would have the same guarantee.

    Not guaranteed:
        Protection of one image or patient at the epsilon of a smaller unit: under `zero-out` the released vector hides
        whether the hospital's update took part at all, so it hides each image as well, but never better than that.
        Protection over several updates without the accountant. Anything, if the noise is not Gaussian and secret.

    Args:
        update: float32, finite.
        privacy: clip norm, relation and layer shares; noise is not planned here.
        noise_multiplier: standard deviation of the noise over the sensitivity, above 0.
        noise: where it is drawn, one draw per tensor.

    Raises:
        SiteError: a value is NaN or infinite (NON_FINITE_UPDATE), which is checked before anything else.
        ModelError: there is no tensor, or one is not float32.
        ConfigurationError: the layer shares do not fit the update.
        PrivacyError: the noise multiplier is not a finite number above 0.
    """
    _require_clippable(update)
    if not (noise_multiplier > 0 and math.isfinite(noise_multiplier)):
        raise PrivacyError(f"Expected a finite noise_multiplier={noise_multiplier} > 0.")
    groups = divide_layers(update, parse_layer_shares(privacy.layer_shares))
    clip_norm = privacy.clip_norm / math.sqrt(len(groups))
    sensitivity = Relation(privacy.relation).sensitivity(clip_norm)
    released: Parameters = {}
    for group in groups:
        stddev = noise_multiplier / math.sqrt(group.share) * sensitivity
        for name, value in clip_jointly({name: update[name] for name in group.names}, clip_norm).items():
            released[name] = value.add_(noise.normal(value.shape, stddev, device=value.device))
    return {name: released[name] for name in update}


def _require_clippable(update: Parameters) -> None:
    if not is_finite(update):
        raise SiteError(SiteErrorCode.NON_FINITE_UPDATE, "Expected a finite update before clipping, found NaN or inf.")
    wrong = [f"{name} of {value.dtype}" for name, value in update.items() if value.dtype != torch.float32]
    if wrong or not update:
        raise ModelError(
            f"Expected one or more float32 parameters to clip and noise, found {wrong[:_NAMED] or 'none'}: use a model "
            "without buffers such as batch statistics or counters, for example with GroupNorm."
        )
