"""`aegis bundle`: pack what a hospital without a network needs, and check it there before anything of it is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from deploy.bundle.contents import KIT_FOLDER
from deploy.bundle.making import Sources, make_bundle
from deploy.bundle.verification import Verified, verify
from deploy.exits import exit_codes
from deploy.trust.signing import fingerprint, read_public_key, read_signing_key

bundle = typer.Typer(no_args_is_help=True, help="Offline bundles: image, kit and documents in one signed archive.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]


@bundle.callback()
def _group() -> None:
    """Offline bundles: image, kit and documents in one signed archive."""


@bundle.command("make")
def make_command(
    kit: Annotated[Path, typer.Option("--kit", help="The hospital's kit, from aegis enrol.")],
    image: Annotated[Path, typer.Option("--image", help="The image, from docker save.")],
    out: Annotated[Path, typer.Option("--out", help="The archive to write.")],
    docs: Annotated[list[Path] | None, typer.Option("--docs", help="Folder of documents; repeatable.")] = None,
    key: Annotated[Path, typer.Option("--key", help="The coordinator's key.")] = Path("consortium/bundle.key"),
    as_json: AsJson = False,
) -> None:
    """Pack and sign a bundle for one hospital; the same sources make the same archive."""
    with exit_codes(as_json=as_json):
        signing_key = read_signing_key(key)
        contents = make_bundle(Sources(kit=kit, image=image, docs=docs or ()), signing_key, out)
        shown = fingerprint(signing_key.public_key())
        size = out.stat().st_size
    if as_json:
        found = {"file": str(out), "size-bytes": size, "fingerprint": shown}
        typer.echo(json.dumps(found | contents.model_dump(by_alias=True), indent=1))
        return
    _tell(f"{out}: {size} bytes for {contents.hospital_id}.")
    _tell(f"Read this to the hospital on the telephone, it must see the same: {shown}")


@bundle.command("verify")
def verify_command(
    path: Annotated[Path, typer.Argument(help="The archive, or a folder it was unpacked to, or a kit.")],
    public_key: Annotated[Path, typer.Option("--public-key", help="The coordinator's bundle.pub.")],
    extract: Annotated[
        Path | None, typer.Option("--extract", help="Unpack what was checked to this new folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check signature, list and every file. Exit code 1: it is not what was signed; use nothing of it."""
    with exit_codes(as_json=as_json):
        key = read_public_key(public_key)
        found = verify(path, key, extract=extract)
    if as_json:
        typer.echo(json.dumps(_as_dict(found, fingerprint(key), extract), indent=1))
        return
    _tell(f"{path}: {len(found.digests)} files, each of them as it was signed.")
    if found.contents is not None:
        _tell(f"For {found.contents.hospital_id} in {found.contents.consortium}; image: {found.contents.image.file}")
    if extract is not None:
        _tell(f"Unpacked to {extract}" + (f"; the kit is {extract / KIT_FOLDER}" if found.contents else ""))
    _tell(f"Compare this with what the coordinator reads to you on the telephone: {fingerprint(key)}")


def _as_dict(found: Verified, shown: str, extract: Path | None) -> dict[str, object]:
    return {
        "status": "sound",
        "kind": "kit" if found.contents is None else "bundle",
        "fingerprint": shown,
        "files": len(found.digests),
        "extracted": "" if extract is None else str(extract),
        "contents": None if found.contents is None else found.contents.model_dump(by_alias=True),
    }


def _tell(line: str) -> None:
    Console().print(line, markup=False, highlight=False, soft_wrap=True)
