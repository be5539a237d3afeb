"""What an epsilon and a delta must be before anything is computed with them."""

from __future__ import annotations

import math

from federation.errors import PrivacyError


def require_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that bounds nothing.

    Raises:
        PrivacyError: `epsilon` is zero, negative, infinite or not a number.
    """
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise PrivacyError(f"Expected a finite epsilon={epsilon} > 0.")


def require_delta(delta: float) -> None:
    """Refuse a delta that is no probability, or that allows everything.

    Raises:
        PrivacyError: `delta` is not strictly between 0 and 1, or not a number.
    """
    if not 0 < delta < 1:
        raise PrivacyError(f"Expected 0 < delta={delta} < 1.")


def require_multiplier(noise_multiplier: float) -> None:
    """Refuse a noise multiplier that adds no noise, or none that can be drawn.

    Raises:
        PrivacyError: `noise_multiplier` is zero, negative, infinite or not a number.
    """
    if not (noise_multiplier > 0 and math.isfinite(noise_multiplier)):
        raise PrivacyError(f"Expected a finite noise_multiplier={noise_multiplier} > 0.")
