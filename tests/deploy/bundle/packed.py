"""A small bundle that the shipped code made, and means to make others like it by hand."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from deploy.bundle.archive import ending, header, padding
from deploy.bundle.making import Sources, make_bundle
from deploy.trust.hospital_key import make_key, public_line
from deploy.trust.kit import Kit
from deploy.trust.kits import KitContents, write_kit

KEY = Ed25519PrivateKey.generate()
PUBLIC: Ed25519PublicKey = KEY.public_key()


@dataclass(frozen=True, kw_only=True, slots=True)
class Packed:
    """A bundle and what it was made of."""

    sources: Sources
    archive: Path

    @property
    def content(self) -> bytes:
        """The archive, byte for byte."""
        return self.archive.read_bytes()

    @property
    def members(self) -> list[tuple[str, bytes]]:
        """Names and contents, in the order of the archive."""
        with tarfile.open(self.archive) as archive:
            return [(member.name, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]


def pack(folder: Path) -> Packed:
    """Make a kit, an image and documents below `folder`, and a bundle of them."""
    node = make_key()
    line = public_line(node.public_key())
    kit = Kit(consortium="Heart Network", hospital_id="north", host="fl.example.org", port=8443, public_key=line)
    write_kit(folder / "kit", KitContents(kit=kit, authority=b"CA\n", private_key=node, compose="services: {}\n"), KEY)
    with tarfile.open(folder / "aegis-hospital.tar", "w") as image:
        entry = tarfile.TarInfo("layer")
        entry.size = 3000
        image.addfile(entry, io.BytesIO(bytes(range(250)) * 12))
    (folder / "manual" / "pages").mkdir(parents=True)
    (folder / "manual" / "index.md").write_text("# Manual\n")
    (folder / "manual" / "pages" / "a b.md").write_text("Ä\n")
    sources = Sources(kit=folder / "kit", image=folder / "aegis-hospital.tar", docs=(folder / "manual",))
    make_bundle(sources, KEY, folder / "bundle.tar")
    return Packed(sources=sources, archive=folder / "bundle.tar")


def archive_of(members: list[tuple[str, bytes]]) -> bytes:
    """Return an archive of the form of a bundle with these files, whatever the list in it says."""
    content = b"".join(header(name, len(data)) + data + padding(len(data)) for name, data in members)
    return content + ending(len(content))
