"""Writing a hospital's kit: everything it needs to reach the consortium, signed, in one folder."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from deploy.trust.certificate_files import PRIVATE, PUBLIC
from deploy.trust.hospital_key import private_file
from deploy.trust.kit import Kit
from deploy.trust.kit_texts import BROUGHT_KEY, OWN_KEY, README, SETTINGS, SITE_POLICY
from deploy.trust.manifest import sign_folder
from federation.durable import sync_folder, write_durably
from federation.errors import ConfigurationError

COMPOSE = Path(__file__).parents[1] / "hospital" / "compose.yaml"
GRAPHICS = COMPOSE.with_name("compose.gpu.yaml")
"""What compose reads besides, where the hospital has a graphics card."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KitContents:
    """What goes into a kit.

    Attributes:
        kit: `kit.toml`.
        authority: the file `ca.crt`.
        private_key: of the hospital; None where the hospital keeps it to itself.
        compose: the file `compose.yaml`, which this installation's `compose.gpu.yaml` goes with; empty for neither.
    """

    kit: Kit
    authority: bytes
    private_key: ec.EllipticCurvePrivateKey | None
    compose: str

    def files(self) -> dict[str, bytes]:
        """Return the public files but for `kit.toml`, by name."""
        words = {
            "hospital": self.kit.hospital_id,
            "consortium": self.kit.consortium,
            "server": self.kit.server,
            "version": version("aegis-fl"),
            "key": BROUGHT_KEY if self.private_key is None else OWN_KEY,
        }
        files = {
            self.kit.ca: self.authority,
            f"{self.kit.key}.pub": f"{self.kit.public_key}\n".encode(),
            "site.toml": SITE_POLICY.substitute(words).encode(),
            "README.md": README.substitute(words).encode(),
            ".env": SETTINGS.substitute(words).encode(),
        }
        if self.compose:
            files |= {"compose.yaml": self.compose.encode(), GRAPHICS.name: GRAPHICS.read_bytes()}
        return files


def read_compose(path: Path = COMPOSE) -> str:
    """Return the text of the hospital's compose file; empty where this installation comes without it."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def write_kit(target: Path, contents: KitContents, key: Ed25519PrivateKey) -> None:
    """Write the kit as the new folder `target`, signed with `key`; it appears there whole or not at all.

    Raises:
        ConfigurationError: something is there already.
        OSError: the disk refused.
    """
    if target.exists() or target.is_symlink():
        raise ConfigurationError(f"Expected nothing at {target}, found something: move it away, or name another --out.")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = target.parent / f".kit-{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    try:
        contents.kit.write(folder)
        for name, content in contents.files().items():
            write_durably(folder / name, content, mode=PUBLIC)
        if contents.private_key is not None:
            write_durably(folder / contents.kit.key, private_file(contents.private_key), mode=PRIVATE)
        sign_folder(folder, key)
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sync_folder(target.parent)


def next_place(kits: Path, hospital_id: str) -> Path:
    """Return where the next kit of that hospital goes: `ID`, then `ID~2` and so on, since old ones are kept."""
    place, number = kits / hospital_id, 1
    while place.exists():
        number += 1
        place = kits / f"{hospital_id}~{number}"
    return place
