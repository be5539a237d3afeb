"""The table `record` of the configuration: what a run keeps beside its result."""

from __future__ import annotations

from pydantic import Field

from federation.config.table import Table


class RecordConfig(Table):
    """What the server keeps for the attack harness; nothing unless it is asked for."""

    updates: bool = Field(
        False,
        description="Keep every update that arrives, and once per version the model it started from, in `updates/` of "
        "the run's folder, as safetensors with JSON beside it. Costs the size of one model on the server's disk per "
        "update and per version. Whoever can read the folder can try to reconstruct images from it.",
    )
