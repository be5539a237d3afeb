"""Which file is meant by its place: the printed command must show the same one."""

from __future__ import annotations

import subprocess
from pathlib import Path

from deploy.doctor.image_files import how_to_find, image_files


def test_command_shows_the_file_that_the_place_means(tmp_path: Path) -> None:
    names = ["b/2.png", "b/1.png", "a-b/x.png", "a/b.png", "ä/z.png", "A.png", ".hidden", "a.png"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "a")

    files = image_files(tmp_path)

    for number in (1, 4, len(files)):
        command = how_to_find(tmp_path, number).partition(": ")[2]
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == str(files[number - 1])


def test_single_file_is_its_own_place(tmp_path: Path) -> None:
    path = tmp_path / "scans.npz"
    path.touch()

    assert image_files(path) == [path]
