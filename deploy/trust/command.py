"""`aegis enrol`: found a consortium, hand out kits, take keys back, renew certificates, tell the SuperLink."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console

from deploy.exits import exit_codes
from deploy.trust.authority import AUTHORITY_DAYS, SERVER_DAYS
from deploy.trust.consortium import INTERNAL_SANS, Consortium
from deploy.trust.consortium_folder import ConsortiumFolder, told
from deploy.trust.enrolment import (
    Enrolled,
    enrol_hospital,
    found_consortium,
    rekey_hospital,
    renew_certificate,
    retire_key,
    revoke_hospital,
    today,
)
from deploy.trust.hospital_key import fingerprint, read_public_file
from deploy.trust.kits import read_compose
from deploy.trust.manifest import sign_folder
from deploy.trust.overview import look_at, tables
from deploy.trust.registration import register_hospitals
from deploy.trust.signing import read_signing_key
from deploy.trust.superlink import SuperLink
from federation.errors import ConfigurationError

enrol = typer.Typer(no_args_is_help=True, help="Who belongs to a consortium: its authority, and a key per hospital.")

_PORT = 8000

Folder = Annotated[Path, typer.Option("--folder", help="The coordinator's folder; keep it to yourself.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
HospitalId = Annotated[str, typer.Argument(help="The hospital's id.")]
PublicKey = Annotated[
    Path | None, typer.Option("--public-key", help="The hospital's own node.key.pub; default: make a key for it.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder of the kit; default: below the coordinator's folder.")]
Days = Annotated[int, typer.Option("--days", min=1, max=AUTHORITY_DAYS, help="Days the server's certificate lasts.")]

_FOLDER = Path("consortium")


@enrol.callback()
def _group() -> None:
    """Who belongs to a consortium: its authority, and a key per hospital."""


@enrol.command("init")
def init_command(  # noqa: PLR0913 - one parameter per option
    name: Annotated[str, typer.Argument(help="The consortium's name.")],
    host: Annotated[str, typer.Option("--host", help="Name or address of the server, as hospitals reach it.")],
    port: Annotated[int, typer.Option("--port", help="The one port that hospitals connect to.")] = 8443,
    san: Annotated[list[str] | None, typer.Option("--san", help="A further name or address; repeatable.")] = None,
    internal_san: Annotated[
        list[str] | None, typer.Option("--internal-san", help="Name of the SuperLink behind the proxy; repeatable.")
    ] = None,
    days: Days = SERVER_DAYS,
    days_internal: Annotated[
        int, typer.Option(min=1, max=AUTHORITY_DAYS, help="Days the SuperLink's certificate lasts.")
    ] = AUTHORITY_DAYS,
    folder: Folder = _FOLDER,
    as_json: AsJson = False,
) -> None:
    """Found a consortium in a new folder: authority, certificates, secrets."""
    with exit_codes(as_json=as_json):
        try:
            consortium = Consortium(
                name=name,
                host=host,
                port=port,
                sans=tuple(san or ()),
                internal_sans=tuple(internal_san or INTERNAL_SANS),
                created=today(),
            )
        except ValidationError as error:
            raise ConfigurationError("\n".join(told(error))) from None
        place = ConsortiumFolder(path=folder)
        found_consortium(place, consortium, days=days, internal_days=days_internal)
        seen = look_at(place)
    _tell(
        seen.as_dict() | {"folder": str(folder)},
        [
            f"{name} is founded in {folder}. Keep the folder to yourself, and a copy of it in a safe.",
            f"Hospitals compare this key on the telephone: {seen.signing_key}",
        ],
        as_json=as_json,
    )


@enrol.command("hospital")
def hospital_command(
    hospital_id: HospitalId,
    public_key: PublicKey = None,
    out: Out = None,
    folder: Folder = _FOLDER,
    as_json: AsJson = False,
) -> None:
    """Enrol a hospital and write its kit."""
    with exit_codes(as_json=as_json):
        line, compose = _line(public_key), read_compose()
        place = ConsortiumFolder(path=folder)
        found = enrol_hospital(place, hospital_id, public_key=line, out=out, compose=compose)
    _tell_kit(found, has_compose=bool(compose), as_json=as_json)


@enrol.command("rekey")
def rekey_command(
    hospital_id: HospitalId,
    public_key: PublicKey = None,
    out: Out = None,
    readmit: Annotated[bool, typer.Option("--readmit", help="Take a revoked hospital in again.")] = False,
    folder: Folder = _FOLDER,
    as_json: AsJson = False,
) -> None:
    """Give a hospital a new key and kit; the old key is accepted until it is retired."""
    with exit_codes(as_json=as_json):
        line, compose = _line(public_key), read_compose()
        place = ConsortiumFolder(path=folder)
        found = rekey_hospital(place, hospital_id, public_key=line, out=out, readmit=readmit, compose=compose)
    _tell_kit(found, has_compose=bool(compose), as_json=as_json)


@enrol.command("retire")
def retire_command(hospital_id: HospitalId, folder: Folder = _FOLDER, as_json: AsJson = False) -> None:
    """End the older of a hospital's two keys."""
    with exit_codes(as_json=as_json):
        hospital = retire_key(ConsortiumFolder(path=folder), hospital_id)
    content = {"id": hospital.id, "fingerprint": fingerprint(hospital.public_key)}
    _tell(content, [f"The older key of {hospital.id} ends with the next aegis enrol register."], as_json=as_json)


@enrol.command("revoke")
def revoke_command(hospital_id: HospitalId, folder: Folder = _FOLDER, as_json: AsJson = False) -> None:
    """End all keys of a hospital."""
    with exit_codes(as_json=as_json):
        hospital = revoke_hospital(ConsortiumFolder(path=folder), hospital_id)
    content = {"id": hospital.id, "revoked": hospital.revoked}
    _tell(content, [f"{hospital.id} is let in until the next aegis enrol register: run it now."], as_json=as_json)


@enrol.command("renew")
def renew_command(days: Days = SERVER_DAYS, folder: Folder = _FOLDER, as_json: AsJson = False) -> None:
    """Give the server a new key and certificate from the same authority; no hospital notices."""
    with exit_codes(as_json=as_json):
        place = ConsortiumFolder(path=folder)
        renew_certificate(place, days=days)
        (server,) = (found for found in look_at(place).certificates if found.which == "server")
    content = {"fingerprint": server.fingerprint, "expires": server.expires, "days-left": server.days_left}
    _tell(content, [f"Valid until {server.expires}. The proxy takes it up when it reloads."], as_json=as_json)


@enrol.command("show")
def show_command(folder: Folder = _FOLDER, as_json: AsJson = False) -> None:
    """Show who is enrolled, and what ends when. Exit code 1: something needs a hand soon."""
    with exit_codes(as_json=as_json):
        seen = look_at(ConsortiumFolder(path=folder))
    if as_json:
        typer.echo(json.dumps(seen.as_dict(), indent=1))
    else:
        console = Console()
        for table in tables(seen):
            console.print(table)
        console.print(
            f"Key that signs kits and bundles: {seen.signing_key}", markup=False, highlight=False, soft_wrap=True
        )
        _warn(seen.warnings)
    raise typer.Exit(1 if seen.warnings else 0)


@enrol.command("register")
def register_command(
    superlink: Annotated[str, typer.Option("--superlink", help="Name or host:port of the SuperLink.")] = "superlink",
    flower_home: Annotated[
        Path,
        typer.Option("--flower-home", envvar="FLWR_HOME", help="Flower's home; its connection `aegis` is written."),
    ] = Path(".flwr"),
    folder: Folder = _FOLDER,
    as_json: AsJson = False,
) -> None:
    """Tell the SuperLink whom to let in; repeat it whenever you like. Exit code 1: something needs a hand."""
    with exit_codes(as_json=as_json):
        place = ConsortiumFolder(path=folder)
        place.read()
        address = superlink if ":" in superlink else f"{superlink}:{_PORT}"
        link = SuperLink(address, authority=place.authority, home=flower_home)
        link.write_connection()
        done = register_hospitals(place, link)
    lines = [
        f"Let in from now on: {', '.join(done.registered) or 'nobody new'}.",
        f"Let in no more: {', '.join(done.unregistered) or 'nobody'}.",
    ]
    _tell(done.as_dict() | {"warnings": done.warnings}, lines, as_json=as_json)
    if not as_json:
        _warn(done.warnings)
    raise typer.Exit(1 if done.warnings else 0)


@enrol.command("sign")
def sign_command(
    kit: Annotated[Path, typer.Argument(help="A kit that you changed on purpose.")],
    folder: Folder = _FOLDER,
    as_json: AsJson = False,
) -> None:
    """Sign a kit again, as it is now."""
    with exit_codes(as_json=as_json):
        if not kit.is_dir():
            raise ConfigurationError(f"Expected the folder of a kit, found {kit}, which is none.")
        count = len(sign_folder(kit, read_signing_key(ConsortiumFolder(path=folder).signing_key)).splitlines())
    _tell({"kit": str(kit), "files": count}, [f"{kit} is signed: {count} files."], as_json=as_json)


def _line(public_key: Path | None) -> str:
    return "" if public_key is None else read_public_file(public_key)


def _tell_kit(found: Enrolled, *, has_compose: bool, as_json: bool) -> None:
    hospital = found.hospital
    lines = [f"{hospital.id} has the key {fingerprint(hospital.public_key)}; its kit: {found.kit}"]
    if found.has_private_key:
        lines.append("The kit holds its private key: hand it over in confidence, then delete node.key here.")
    if not has_compose:
        lines.append("The kit has no compose.yaml: this installation comes without it.")
    content = {
        "id": hospital.id,
        "fingerprint": fingerprint(hospital.public_key),
        "kit": str(found.kit),
        "has-private-key": found.has_private_key,
        "has-compose": has_compose,
    }
    _tell(content, lines, as_json=as_json)


def _tell(content: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(content, indent=1))
        return
    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _warn(sentences: Iterable[str]) -> None:
    console = Console(stderr=True)
    for sentence in sentences:
        console.print(f"! {sentence}", style="yellow", markup=False, highlight=False, soft_wrap=True)
