"""The stop switch: it is on for as long as its file lies there."""

from __future__ import annotations

import json
import time
from pathlib import Path

from deploy.node.pause import is_paused, pause, pause_path, resume


def test_hospital_is_paused_until_it_is_resumed(tmp_path: Path) -> None:
    before = is_paused(tmp_path)
    pause(tmp_path, by="the data protection officer")
    during = is_paused(tmp_path)
    resume(tmp_path)

    assert (before, during, is_paused(tmp_path)) == (False, True, False)


def test_file_says_since_when_and_by_whom_to_the_hospital_alone(tmp_path: Path) -> None:
    pause(tmp_path, by="the data protection officer")

    content = json.loads(pause_path(tmp_path).read_text())
    assert content["by"] == "the data protection officer"
    assert abs(content["since"] - time.time()) < 60
    assert pause_path(tmp_path).stat().st_mode & 0o777 == 0o600


def test_file_of_any_content_pauses(tmp_path: Path) -> None:
    pause_path(tmp_path).parent.mkdir()
    pause_path(tmp_path).touch()

    assert is_paused(tmp_path)


def test_hospital_that_is_not_paused_may_be_resumed(tmp_path: Path) -> None:
    resume(tmp_path)

    assert not is_paused(tmp_path)
    assert list(tmp_path.iterdir()) == []
