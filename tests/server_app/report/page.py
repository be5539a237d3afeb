"""A report as its reader sees it: elements, visible text, rows and sections."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """A parsed report: its elements, and the visible text as a reader sees it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.visible: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.visible.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.visible).split())

    def attributes(self) -> Iterator[tuple[str, str]]:
        for _, attributes in self.elements:
            yield from attributes.items()


def texts(svg: str | None) -> list[str]:
    """Return the texts of a drawing."""
    assert svg is not None
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


def rows(html: str, table_class: str = "hospitals") -> list[str]:
    """Return the source of each row of one table, that of hospitals unless told otherwise, without its head."""
    table = re.search(rf'<table class="{table_class}">.*?<tbody>(.*?)</tbody>', html, re.DOTALL)
    assert table is not None
    return re.findall(r"<tr.*?</tr>", table.group(1), re.DOTALL)


def section(html: str, heading: str) -> str:
    """Return the visible text between one heading of the second level and the next."""
    start = html.index(f"<h2>{heading}</h2>")
    end = html.find("<h2>", start + 1)
    return Page(
        re.sub(r"</(?:section|main|body|html|details|summary)>|<(?:section|details|summary)>", "", html[start:end])
    ).text
