"""Consortia that the shipped code founded, for tests."""

from __future__ import annotations

from pathlib import Path

from deploy.trust.consortium import Consortium
from deploy.trust.consortium_folder import ConsortiumFolder
from deploy.trust.enrolment import found_consortium


def found(path: Path, *, host: str = "fl.example.org", days: int = 90) -> ConsortiumFolder:
    """Found a consortium at `path`."""
    folder = ConsortiumFolder(path=path)
    consortium = Consortium(name="Heart Network", host=host, created="2026-11-30")
    found_consortium(folder, consortium, days=days, internal_days=3652)
    return folder
