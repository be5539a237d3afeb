"""The status page in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from deploy.status_page.view import View

_STYLES = {"good": "green", "idle": "cyan", "warn": "yellow", "bad": "red"}
_FEWER = 5


def show(view: View, console: Console) -> None:
    """Print `view`, of every list the newest few; no text from a file reaches the terminal as a control sequence."""
    _line(console, f"{view.hospital_id or 'Unknown hospital'}, {view.time}", "bold")
    _line(console, view.connection.headline, _STYLES[view.connection.mood.value])
    for sentence in view.connection.details:
        _line(console, sentence)
    _section(console, "Connection", (f"{fact.label}: {fact.value}" for fact in view.facts))
    _section(console, "Restarts in the last day", (f"{item.ago}: {item.words}" for item in view.restarts[:_FEWER]))
    _section(console, "Tasks", [*(f"{item.ago}: {item.words}" for item in view.tasks[:_FEWER]), *view.task_notes])
    _section(console, "Privacy budget", [*_accounts(view), *view.account_notes])
    _section(
        console, "Refusals", (f"{item.name}, {item.count} times: {item.sentence}" for item in view.refusals[:_FEWER])
    )
    _section(console, "Site policy", view.allows)
    for sentence in view.doubts:
        _line(console, f"! {sentence}", "yellow")
    _section(
        console,
        "Certificates and versions",
        [
            *(f"{item.name}: {item.until}{f' ({item.warning})' if item.warning else ''}" for item in view.certificates),
            *(f"{fact.label} {fact.value}" for fact in view.versions),
        ],
    )


def _accounts(view: View) -> Iterable[str]:
    for account in view.accounts:
        yield f"{account.data_set} ({account.counted}): spent {account.spent} of {account.cap}, left {account.left}"
        yield f"releases: {account.releases}"
        yield from (text for text in (account.warning, account.forecast) if text)


def _section(console: Console, title: str, lines: Iterable[str]) -> None:
    found = list(lines)
    if found:
        console.print()
        _line(console, title, "bold")
    for line in found:
        _line(console, f"- {line}")


def _line(console: Console, text: str, style: str = "") -> None:
    shown = "".join(character if character.isprintable() else "?" for character in text)
    console.print(shown, style=style, markup=False, highlight=False)
