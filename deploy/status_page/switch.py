"""The guard before the stop switch: a press counts only if it comes from this page, in this browser, on purpose.

There are no accounts: whoever reaches the port may press. What is kept out is everybody who only reaches the browser:
another site that makes it send a form, a name that points here (`deploy.web.hosts`), and a slip of the finger.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import parse_qs, urlsplit

COOKIE = "aegis-status"
LONGEST_FORM_BYTES = 4096
FORM_TYPE = "application/x-www-form-urlencoded"
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")


class Action(Enum):
    """What the switch can do; the value is the path's name."""

    PAUSE = "pause"
    RESUME = "resume"

    @property
    def title(self) -> str:
        """What the button says."""
        return self.value.capitalize()

    @property
    def consequence(self) -> str:
        """What will happen."""
        if self is Action.PAUSE:
            return (
                "The node is stopped within seconds. A task that it is working on is lost, and what was booked for it "
                "stays spent. Nothing leaves this hospital until somebody resumes it, also after the machine was "
                "started anew. What was released before cannot be called back."
            )
        return "The node connects again within seconds and answers tasks as the site policy allows."


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a browser sent: the guard's token, and what was typed."""

    token: str
    hospital_id: str


class Guard:
    """Knows its own forms again, for as long as this process lives.

    Guarantee: `refusal` is empty only for a token that this process gave out, for this action, to whoever has the
        cookie; another site can neither read the token nor make a browser send the cookie (SameSite=Strict).
    Not guaranteed: who sits before the browser.
    """

    def __init__(self) -> None:
        """Draw this process's key from the operating system."""
        self._key = secrets.token_bytes(32)

    def cookie(self, sent: str | None) -> str:
        """Return the cookie that the browser should have: the one it sent, if it looks like ours, else a new one."""
        return sent if sent is not None and _COOKIE.fullmatch(sent) else secrets.token_urlsafe(32)

    def token(self, action: Action, cookie: str) -> str:
        """Return the hidden field of the form for `action` in the browser with `cookie`."""
        return hmac.new(self._key, f"{action.value} {cookie}".encode(), hashlib.sha256).hexdigest()

    def refusal(self, action: Action, form: Form, headers: Mapping[str, str], cookie: str | None) -> str:
        """Return why this press does not count; empty when it does."""
        if not _is_own_origin(headers.get("origin", ""), headers.get("host", "")):
            return "The form came from another page than this one."
        expected = self.token(action, cookie or "")
        if not cookie or not hmac.compare_digest(form.token.encode(), expected.encode()):
            return "The form is older than this page's program, or its cookie is gone."
        return ""


def parse_form(body: bytes) -> Form:
    """Return the fields of a form; those that are missing, given twice or no UTF-8 are empty."""
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=8, errors="strict")
    except ValueError:
        fields = {}
    values = {name: given[0] if len(given) == 1 else "" for name, given in fields.items()}
    return Form(token=values.get("token", ""), hospital_id=values.get("hospital-id", "").strip())


def _is_own_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return bool(host) and parts.scheme in ("http", "https") and origin == f"{parts.scheme}://{host}"
