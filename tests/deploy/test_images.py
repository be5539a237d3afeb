"""What the Dockerfiles leave out, refuse and list; `tests/e2e/test_compose.py` builds and starts the images."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.architecture.import_rules import find_imports, find_modules

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
HOSPITAL, SERVER = DEPLOY / "hospital" / "Dockerfile", DEPLOY / "server" / "Dockerfile"
LEFT_OUT = ("attacks", "deploy/attack", "deploy/experiments")

each_image = pytest.mark.parametrize("path", [HOSPITAL, SERVER], ids=lambda path: path.parent.name)


def stages_of(path: Path) -> dict[str, str]:
    """Return what follows each FROM, by the name of the stage, which may be empty."""
    parts = re.split(r"^FROM (\S+)(?: AS (\w+))?\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name or "": text for name, text in zip(parts[2::3], parts[3::3], strict=True)}


def steps_of(path: Path) -> list[str]:
    """Return the instructions that build the installation, in order, a RUN's commands one by one."""
    text = stages_of(path)["build"].replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [" ".join(part.split()) for line in lines for part in line.split("&&") if part.strip()]


def position(steps: list[str], word: str) -> int:
    (found,) = (number for number, step in enumerate(steps) if word in step)
    return found


def is_left_out(module: str) -> bool:
    return any(f"{module}.".startswith(f"{path.replace('/', '.')}.") for path in LEFT_OUT)


def test_hospitals_image_is_made_of_a_source_without_the_attacks() -> None:
    steps = steps_of(HOSPITAL)

    removed = position(steps, "rm -r ")
    assert steps[removed] == f"RUN rm -r {' '.join(LEFT_OUT)}"
    assert position(steps, "COPY . .") < removed < position(steps, "--no-deps .")


def test_nothing_in_the_hospitals_image_needs_what_is_left_out() -> None:
    imports = find_imports(find_modules(ROOT))

    needing = {one.importer for one in imports if is_left_out(one.imported or "") and not is_left_out(one.importer)}

    assert needing == {"deploy.cli"}, "which imports a subcommand when it is called, and says where there is none"


@each_image
def test_libraries_are_listed_when_nothing_changes_them_any_more(path: Path) -> None:
    steps = steps_of(path)

    order = [position(steps, word) for word in ("--no-deps .", "pip uninstall", "slim.sh", "cyclonedx-py environment")]

    assert order == sorted(order)
    assert not [step for step in steps[order[-1] + 1 :] if re.search(r"> ?/opt/aegis/|\brm |\bpip ", step)]


def test_digest_is_of_everything_and_so_the_last_step() -> None:
    steps = steps_of(HOSPITAL)

    assert "find /opt/aegis -type f" in steps[-1]
    assert steps[-1].endswith("> /opt/aegis-image.json")


@each_image
def test_every_image_lists_the_packages_of_its_system(path: Path) -> None:
    images = {name: text for name, text in stages_of(path).items() if name not in ("wheels", "build")}

    assert images
    for text in images.values():
        assert text.count("&& dpkg-query -W > /usr/share/aegis-packages.txt\n") == 1
        assert "apt-get" not in text[text.index("dpkg-query") :]


@each_image
def test_libraries_for_cuda_are_refused_while_pip_can_still_tell(path: Path) -> None:
    steps = steps_of(path)

    refused = position(steps, '{ [ "${VARIANT}" = cuda ] || sh deploy/cpu_only.sh /opt/aegis; }')
    assert position(steps, "-r requirements.txt") < refused < position(steps, "pip uninstall")


@pytest.mark.parametrize(
    ("installed", "code"),
    [
        ("numpy==2.4.6\ntorch==2.13.0+cpu\n", 0),
        ("numpy==2.4.6\nnvidia-cublas==13.1.1.3\nnvidia_nvtx==13\n", 1),
        ("my-nvidia-x==1\n", 0),
    ],
)
def test_build_for_processors_ends_where_libraries_for_cuda_came_along(
    tmp_path: Path, installed: str, code: int
) -> None:
    done = refuse_cuda(tmp_path, f"cat << 'END'\n{installed}END\n")

    assert done.returncode == code
    assert ("found nvidia-cublas==13.1.1.3 nvidia_nvtx==13:" in done.stderr) == (code == 1)
    assert ("PIP_OPTIONS" in done.stderr and "--build-context wheels=FOLDER" in done.stderr) == (code == 1)


def test_build_ends_where_pip_cannot_tell(tmp_path: Path) -> None:
    assert refuse_cuda(tmp_path, "exit 3\n").returncode != 0


def refuse_cuda(root: Path, pip: str) -> subprocess.CompletedProcess[str]:
    """Run the script on an installation whose pip is a program of ours."""
    (root / "bin").mkdir()
    (root / "bin" / "pip").write_text(f"#!/bin/sh\n{pip}")
    (root / "bin" / "pip").chmod(0o755)
    command = ["sh", str(DEPLOY / "cpu_only.sh"), str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_graphics_card_is_an_addition_to_the_hospitals_service_and_nothing_else() -> None:
    usual, added = (
        yaml.safe_load((DEPLOY / "hospital" / name).read_text()) for name in ("compose.yaml", "compose.gpu.yaml")
    )

    assert set(added) == {"services"}
    assert set(added["services"]) == set(usual["services"]) == {"hospital"}
    device = {"driver": "nvidia", "count": "${AEGIS_GPUS:-1}", "capabilities": ["gpu"]}
    assert added["services"]["hospital"] == {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def test_installation_brings_the_files_that_kits_hold() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["deploy"]

    packed = {path.name for pattern in patterns for path in DEPLOY.glob(pattern)}

    assert {"compose.yaml", "compose.gpu.yaml"} <= packed
