"""What is being built: an unfinished build goes on under the very same plan only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import Field

from aegis_cache.store.manifest import GeneratorIdentity, Purpose, Scalar
from federation.config.table import Table


class BuildPlan(Table):
    """What the images of a build depend on: a build goes on under the same plan only.

    Attributes:
        purpose: what the images are for.
        generator: which makes them.
        seed: of the build.
        settings: everything else that decides which images are accepted.
    """

    purpose: Purpose
    generator: GeneratorIdentity
    seed: int
    settings: dict[str, Scalar] = Field(default_factory=dict)


def compare_plans(*, expected: BuildPlan, found: BuildPlan) -> list[str]:
    """Return what differs, as `key=expected, found other` each, by dotted key."""
    wanted, given = _flatten(expected), _flatten(found)
    return [
        f"{key}={wanted.get(key, 'nothing')}, found {given.get(key, 'nothing')}"
        for key in {**wanted, **given}
        if wanted.get(key) != given.get(key)
    ]


def _flatten(plan: BuildPlan) -> dict[str, str]:
    """Return the plan by dotted keys, values as JSON."""

    def walk(value: Any, name: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(inner, f"{name}.{key}" if name else key)
        else:
            yield name, json.dumps(value)

    return dict(walk(plan.model_dump(mode="json", by_alias=True), ""))
