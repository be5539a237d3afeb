"""The SuperNode beside which every answer is noted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deploy.node import supernode


def test_first_argument_is_the_file_of_notes_and_the_rest_is_flowers(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Path] = []
    seen: list[list[str]] = []
    monkeypatch.setattr(sys, "argv", ["supernode", "/tmp/contact.json", "--superlink", "here:1"])
    monkeypatch.setattr(supernode, "note_contacts", noted.append)
    monkeypatch.setattr(supernode, "flower_supernode", lambda: seen.append(list(sys.argv)))

    supernode.main()

    assert noted == [Path("/tmp/contact.json")]
    assert seen == [["supernode", "--superlink", "here:1"]]
