"""Update perturbation: the whole update clipped and noised once. Read `gaussian` first, then `schedule`."""

from client_app.perturbation.gaussian import perturb_update

__all__ = ["perturb_update"]
