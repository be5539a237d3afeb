"""How much noise there is at each step, and which steps sampling visits."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import DDPMScheduler, DPMSolverMultistepScheduler
from torch import Tensor

STEPS = 1000
_WARP = 1.3
_FINE = (35, 20, 10, 5, 2)
_FEWEST = 2 * len(_FINE)
# A squared-cosine schedule rescaled so that the last step is noise alone (arXiv 2305.08891, section 3.1): brightness
# is decided there, and a schedule that keeps a trace of the image would leave every sample at middle grey.
_SCHEDULE: dict[str, Any] = {
    "num_train_timesteps": STEPS,
    "beta_schedule": "squaredcos_cap_v2",
    "prediction_type": "v_prediction",
    "rescale_betas_zero_snr": True,
}


def signal_rates() -> Tensor:
    """Return the square root of the cumulated signal (alpha-bar) at every step: float32, shape (STEPS,)."""
    return torch.as_tensor(DDPMScheduler(**_SCHEDULE).alphas_cumprod).sqrt()


def make_solver(steps: int) -> DPMSolverMultistepScheduler:
    """Return DPM-Solver++ of second order (arXiv 2211.01095, algorithm 2) set to visit `visited_steps(steps)`."""
    solver = DPMSolverMultistepScheduler(**_SCHEDULE, algorithm_type="dpmsolver++", solver_order=2)
    solver.set_timesteps(timesteps=list(visited_steps(steps)))
    return solver


def visited_steps(steps: int) -> tuple[int, ...]:
    """Return the steps that sampling visits, from pure noise on.

    Most lie where there is much noise. The last ones come down to almost none: whoever jumps from some noise to the
    expected image loses all texture finer than that noise.

    Raises:
        ValueError: there are too few to do both.
    """
    if steps < _FEWEST:
        raise ValueError(f"Expected steps={steps} >= {_FEWEST}.")
    coarse = steps - len(_FINE)
    span = STEPS - 1 - _FINE[0]
    first = [_FINE[0] + round(span * (1 - (number / coarse) ** _WARP)) for number in range(coarse)]
    return (*first, *_FINE)
