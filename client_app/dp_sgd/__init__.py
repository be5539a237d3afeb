"""DP-SGD at a hospital: the only code that knows Opacus.

Read next: `training`, whose docstring states the guarantee; `units` for whom it protects; `norm_survey` for how a
clip norm is found without looking.
"""

from __future__ import annotations

from client_app.dp_sgd.norm_survey import suggest_clip_norm, survey_gradient_norms
from client_app.dp_sgd.training import dp_sgd_event, train_with_dp_sgd
from client_app.dp_sgd.units import count_units

__all__ = ["count_units", "dp_sgd_event", "suggest_clip_norm", "survey_gradient_norms", "train_with_dp_sgd"]
