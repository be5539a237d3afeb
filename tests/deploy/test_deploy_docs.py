"""The pages on deployment name nothing that is not there: commands, options, files, services, ports, links, numbers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml  # type: ignore[import-untyped]

from client_app.ledger.rows import SCHEMA_VERSION
from deploy.cli import main
from deploy.experiments.deployment_first_update import COMMANDS
from deploy.node.watchdog import LARGEST_LAG_S, LARGEST_LEAD_S
from deploy.settings import load_configuration
from deploy.trust.authority import SERVER_DAYS
from federation.records.fields import PROTOCOL_VERSION

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "deploy"
PAGES = (*sorted(FOLDER.glob("*.md")), ROOT / "docs" / "adr" / "0019-deployment.md")
COMPOSE_FILES = (ROOT / "deploy" / "compose.yaml", ROOT / "deploy" / "hospital" / "compose.yaml")

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(r"(?<![\w./$-])(?:deploy|docs|client_app|server_app|federation|aegis_cache|tests)/[\w./-]*[\w/]")
_OPERATOR = re.compile(r"[();<>|&]+")
_PORT = re.compile(r"\b[89]\d{3}\b")
_LONGEST_PAGE, _MOST_COMMANDS = 80, 6

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(text: str, language: str = "bash") -> list[str]:
    return [content for _, name, content in _FENCE.findall(text) if name == language]


def logical_lines(block: str) -> list[str]:
    lines = (line.strip() for line in block.replace("\\\n", " ").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def segments(line: str) -> Iterator[list[str]]:
    """Yield the simple commands of a line as words, those within a quoted word too."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if _OPERATOR.fullmatch(word):
            yield words
            words = []
        else:
            words.append(word)
            if " aegis " in f" {word} " and " " in word:
                yield from segments(word)
    yield words


def aegis_words(words: list[str]) -> list[str]:
    """Return what follows the word `aegis`, where it is a command; a namespace or a connection is none."""
    for position, word in enumerate(words[:-1]):
        if word == "aegis" and words[max(position - 1, 0)] not in ("-n", "stop") and words[position + 1][0].islower():
            return words[position + 1 :]
    return []


def commands_of(text: str) -> list[list[str]]:
    lines = [line for block in blocks(text) for line in logical_lines(block)]
    return [words for line in lines for segment in segments(line) if (words := aegis_words(segment))]


def inline_code(text: str) -> list[str]:
    return [" ".join(code.split()) for code in _INLINE.findall(_FENCE.sub("", text))]


def mentions_of(text: str) -> list[list[str]]:
    return [words for code in inline_code(text) if (words := aegis_words(code.split()))]


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that the words begin with, and the words behind it."""
    found: click.Command = typer.main.get_command(main)
    left = list(words)
    while isinstance(found, click.Group) and left and not left[0].startswith("-"):
        (name, *_), left = left[0].split("|"), left[1:]
        command = found.get_command(click.Context(found), name)
        assert command, f"aegis {' '.join(words)}: there is no {name}"
        found = command
    return found, left


def composed() -> list[dict[str, Any]]:
    return [yaml.safe_load(path.read_text(encoding="utf-8")) for path in COMPOSE_FILES]


def services_in(words: list[str]) -> list[str]:
    """Return the services that a `docker compose` command names."""
    if words[:2] != ["docker", "compose"]:
        return []
    pairs = pairwise(words[1:])
    verb, *rest = (word for before, word in pairs if not word.startswith("-") and before not in ("-v", "--profile"))
    if verb == "cp":
        return [word.partition(":")[0] for word in rest if ":" in word]
    return rest[:1] if verb in ("run", "exec") else rest


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@each_page
def test_command_in_a_block_exists_with_its_options_and_arguments(page: Path) -> None:
    for words in commands_of(text_of(page)):
        command, left = resolve(words)

        with command.make_context(words[0], list(left)):
            pass


@each_page
def test_command_in_a_sentence_exists_with_its_options(page: Path) -> None:
    for words in mentions_of(text_of(page)):
        command, left = resolve(words)
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}

        assert {word for word in left if word.startswith("--")} <= known, words


def test_both_kinds_of_mention_are_found() -> None:
    text = """
```bash
run aegis enrol show \\
  --json && sh -c "aegis status show; flwr stop 1 aegis"
kubectl -n aegis apply
```
Say `aegis
doctor` and `kubectl -n aegis get`.
"""

    assert commands_of(text) == [["enrol", "show", "--json"], ["status", "show"]]
    assert mentions_of(text) == [["doctor"]]


@each_page
def test_file_and_folder_of_the_repository_exists(page: Path) -> None:
    missing = [path for path in _PATH.findall(text_of(page)) if not (ROOT / path).exists()]

    assert not missing


@each_page
def test_module_that_is_run_exists(page: Path) -> None:
    names = re.findall(r"python -m ((?:deploy|tests)[\w.]+)", text_of(page))

    assert not [name for name in names if find_spec(name) is None]


@each_page
def test_link_leads_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    for target in _LINK.findall(text_of(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", text_of(path), re.MULTILINE)
            assert anchor in map(slug, headings), target


def test_index_links_every_page() -> None:
    linked = set(_LINK.findall(text_of(FOLDER / "README.md")))

    assert {page.name for page in FOLDER.glob("*.md")} - {"README.md"} <= linked


@each_page
def test_service_exists_in_a_compose_file(page: Path) -> None:
    known = {name for file in composed() for name in file["services"]}
    lines = [line for block in blocks(text_of(page)) for line in logical_lines(block)]
    lines += [code for code in inline_code(text_of(page)) if code.startswith("docker compose ")]

    named = {name for line in lines for segment in segments(line) for name in services_in(segment)}

    assert named <= known


@each_page
def test_volume_has_the_name_that_compose_gives_it(page: Path) -> None:
    known = {f"{file['name']}_{volume}" for file in composed() for volume in file["volumes"]}

    assert set(re.findall(r"-v (aegis[\w-]*_\w+):", text_of(page))) <= known


@each_page
def test_variable_is_read_somewhere(page: Path) -> None:
    files = [path for path in (ROOT / "deploy").rglob("*") if path.is_file() and path.suffix in ("", ".yaml", ".py")]
    read = {name for path in files for name in re.findall(r"AEGIS_[A-Z_]+", path.read_text(encoding="utf-8"))}

    assert set(re.findall(r"\bAEGIS_[A-Z_]+\b", text_of(page))) <= read


def test_ports_on_the_firewall_page_are_those_of_the_compose_files() -> None:
    configured = {port for path in COMPOSE_FILES for port in _PORT.findall(path.read_text(encoding="utf-8"))}
    within_the_node = set(_PORT.findall((ROOT / "deploy" / "node" / "command.py").read_text(encoding="utf-8")))

    assert set(_PORT.findall(text_of(FOLDER / "firewall.md"))) == configured | within_the_node


def test_ports_that_are_published_without_a_setting_are_on_this_machine_alone() -> None:
    published = [
        port for file in composed() for service in file["services"].values() for port in service.get("ports", [])
    ]

    assert len(published) == 3
    assert all(re.fullmatch(r"\$\{AEGIS_\w+:-127\.0\.0\.1:\d+\}:\d+", port) for port in published)


def hospital_steps() -> list[str]:
    _, _, begin = text_of(FOLDER / "hospital-it.md").partition("## Six commands")
    steps, _, _ = begin.partition("\n## ")
    return [line for block in blocks(steps) for line in logical_lines(block)]


def test_hospitals_page_fits_a_page_and_asks_for_six_commands_at_most() -> None:
    assert len(text_of(FOLDER / "hospital-it.md").splitlines()) <= _LONGEST_PAGE
    assert 0 < len(hospital_steps()) <= _MOST_COMMANDS


def test_hospitals_page_asks_for_the_commands_that_are_measured() -> None:
    kinds = ("pkeyutl -verify", "docker load -i", "chown -R 10001 kit", "doctor hospital", "cache build", "up -d")

    typed = [next(kind for kind in kinds if kind in line) for line in hospital_steps()]
    measured = [next(kind for kind in kinds if kind in line) for line in COMMANDS]

    assert typed == [kinds[0], *measured]


def test_run_that_is_offered_as_an_example_can_be_configured(tmp_path: Path) -> None:
    (example,) = blocks(text_of(FOLDER / "coordinator.md"), "toml")
    (tmp_path / "run.toml").write_text(example, encoding="utf-8")

    configuration = load_configuration(ROOT, tmp_path / "run.toml", [])

    assert configuration.run.root == "/runs"
    assert configuration.privacy.mechanism == "dp-sgd"


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("upgrade.md", f"| protocol of the messages | {PROTOCOL_VERSION} |"),
        ("upgrade.md", f"| schema of the ledger | {SCHEMA_VERSION} |"),
        ("upgrade.md", f"| Flower | {'.'.join(version('flwr').split('.')[:2])} |"),
        ("upgrade.md", f"now `{version('aegis-fl')}`"),
        ("hospital-it.md", f"From {LARGEST_LEAD_S:g} s ahead, or {LARGEST_LAG_S:g} s behind"),
        ("incidents.md", f"clock more than {LARGEST_LEAD_S:g} s ahead or {LARGEST_LAG_S:g} s behind"),
        ("threat-model.md", f"it is good for {LARGEST_LAG_S:g} s"),
        ("threat-model.md", f"it ends: {SERVER_DAYS} days at most"),
        ("coordinator.md", f"ends after {SERVER_DAYS} days"),
    ],
)
def test_number_is_the_one_in_the_code(page: str, sentence: str) -> None:
    assert sentence in " ".join(text_of(FOLDER / page).split())
