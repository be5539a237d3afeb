"""When the server last answered the SuperNode, as the SuperNode's own requests show.

A SuperNode whose worker loop has died stays alive, and its own health check keeps saying 200. Its HTTP client logs
every answer, though; the handler here notes when the last one came, in a file that the watchdog reads from another
process.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from federation.config.table import Table

_FLEET = "/v1/fleet/"
_HEARTBEAT = f"{_FLEET}send-node-heartbeat"
_GOOD = range(200, 300)


class Contact(Table):
    """What the server last said to the SuperNode.

    Attributes:
        answered: when it last answered a request as asked; 0: never.
        pulled: when it last answered anything but a heartbeat: the question for tasks, or a piece of one; 0: never.
        status: HTTP status of the last answer of any kind; 0: none yet.
    """

    answered: float = 0.0
    pulled: float = 0.0
    status: int = 0


class ContactNotes(logging.Handler):
    """Notes answers of the Fleet API, from the log of HTTPX, in a file."""

    def __init__(self, path: Path) -> None:
        """Write to `path`, which is on a fast volume: nothing here need survive a crash."""
        super().__init__(logging.INFO)
        self._path = path
        self._contact = Contact()

    def emit(self, record: logging.LogRecord) -> None:
        """Note one answer; records of another form than HTTPX's are none."""
        try:
            _, url, _, status, _ = record.args if isinstance(record.args, tuple) else ()
        except ValueError:
            return
        path = urlsplit(str(url)).path
        if not path.startswith(_FLEET) or not isinstance(status, int):
            return
        now = time.time()
        good = status in _GOOD
        changed = (
            {"status": status}
            | ({"answered": now} if good else {})
            | ({"pulled": now} if path != _HEARTBEAT and good else {})
        )
        self._contact = self._contact.model_copy(update=changed)
        part = self._path.with_suffix(".part")
        try:
            part.write_text(self._contact.model_dump_json(), encoding="utf-8")
            part.replace(self._path)
        except OSError:  # A full volume must not fail the request, with which the SuperNode's worker would end.
            self.handleError(record)


def note_contacts(path: Path) -> None:
    """Note, from now on, every answer of the Fleet API to this process in the file at `path`."""
    logger = logging.getLogger("httpx")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(ContactNotes(path))


def read_contact(path: Path) -> Contact:
    """Return what is noted in the file at `path`; nothing where there is none."""
    try:
        return Contact.model_validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValidationError, json.JSONDecodeError):
        return Contact()
