"""How DP-SGD samples: what a training plan and the number of protected units mean for an event.

Hospital and server must agree on it: the hospital trains by it, and the server checks what is declared against it.
"""

from __future__ import annotations

from federation.errors import PrivacyError


def plan_sampling(units: int, *, batch_size: int, local_epochs: int) -> tuple[float, int]:
    """Return the sampling probability and the number of steps of one update.

    A unit enters a step with probability min(1, batch size / units), and there are as many steps as non-private
    training would take: epochs times units over batch size, rounded, at least one an epoch.

    Args:
        units: images or patients that are protected.
        batch_size: units that a step expects.
        local_epochs: passes over the data.

    Raises:
        PrivacyError: an argument is below 1.
    """
    if min(units, batch_size, local_epochs) < 1:
        raise PrivacyError(f"Expected units={units}, batch_size={batch_size} and local_epochs={local_epochs} >= 1.")
    return min(1.0, batch_size / units), local_epochs * max(1, round(units / batch_size))
