"""The `guard` table of the run configuration: what simulated hospitals check before they train."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from federation.config.table import Table


class GuardConfig(Table):
    """Refusal of models that look crafted to read images: a heuristic, never differential privacy."""

    model: Literal["on", "off"] = Field(
        "on",
        description="Whether simulated hospitals refuse a model that looks crafted; `off` is for research on attacks, "
        "and a simulated hospital with a site policy refuses all the same unless the policy says otherwise. A deployed "
        "hospital goes by its site policy alone.",
    )
