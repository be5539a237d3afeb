"""What all tables of a configuration have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Table(BaseModel):
    """A frozen table with kebab-case keys; unknown keys, loose types, infinities and NaN are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, alias_generator=_kebab, populate_by_name=True
    )
