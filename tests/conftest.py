"""What holds for all tests: how long an example takes says something about the machine, not about the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
