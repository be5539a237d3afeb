"""Faults that a coordinator's server can have, each with the checks that must find it, and no others may."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec

from tests.deploy.doctor.made_up_certificates import issue, make_authority, pem_public
from tests.deploy.doctor.server_site import ServerSite
from tests.deploy.doctor.site import GIB


@dataclass(frozen=True)
class ServerFault:
    """One fault.

    Attributes:
        seed: spoils a healthy server.
        expected: ids of the checks that must fail.
    """

    seed: Callable[[ServerSite], None]
    expected: frozenset[str]


def _fault(seed: Callable[[ServerSite], None], *expected: str) -> ServerFault:
    return ServerFault(seed, frozenset(expected))


def _lose_consortium(site: ServerSite) -> None:
    site.consortium.clear()


def _forget_host(site: ServerSite) -> None:
    del site.consortium["host"]


def _let_authority_end(site: ServerSite) -> None:
    make_authority(days=(-400, -1)).write(site.folder / "ca.crt")


def _lose_key(site: ServerSite) -> None:
    site.certificate.with_suffix(".key").unlink()


def _mix_up_keys(site: ServerSite) -> None:
    kept = site.certificate.read_bytes()
    site.install(issue(site.authority, "localhost", "aegis.example"))
    site.certificate.write_bytes(kept)


def _sign_by_another(site: ServerSite) -> None:
    site.install(issue(make_authority(), "localhost", "aegis.example"))


def _forget_a_name(site: ServerSite) -> None:
    site.install(issue(site.authority, "localhost"))


def _let_certificate_end(site: ServerSite) -> None:
    site.install(issue(site.authority, "localhost", "aegis.example", days=(-90, -1)))


def _let_internal_certificate_end(site: ServerSite) -> None:
    issue(site.authority, "superlink", "127.0.0.1", days=(-90, -1)).write(site.folder / "superlink.crt")


def _name_another_superlink(site: ServerSite) -> None:
    issue(site.authority, "127.0.0.1").write(site.folder / "superlink.crt")


def _show_secret(site: ServerSite) -> None:
    (site.folder / "superexec.secret").chmod(0o640)


def _lose_database(site: ServerSite) -> None:
    site.database.unlink()


def _keep_database_in_memory(site: ServerSite) -> None:
    site.change_machine(file_system=lambda path: "tmpfs" if path == site.database.parent else "ext4")


def _damage_database(site: ServerSite) -> None:
    content = bytearray(site.database.read_bytes())
    content[8192:9000] = bytes(808)
    site.database.write_bytes(content)


def _forget_a_hospital(site: ServerSite) -> None:
    site.consortium["hospitals"][2].pop("revoked")


def _let_a_stranger_in(site: ServerSite) -> None:
    site.register(pem_public(ec.generate_private_key(ec.SECP384R1())))


def _keep_a_revoked_hospital(site: ServerSite) -> None:
    site.consortium["hospitals"][1]["revoked"] = "2026-11-03"


def _unmount_runs(site: ServerSite) -> None:
    shutil.rmtree(site.runs)


def _fill_disk(site: ServerSite) -> None:
    site.change_machine(free_bytes=lambda path: GIB // 2 if path == site.runs else 50 * GIB)


def _take_port(site: ServerSite) -> None:
    site.listen_as_superlink(issue(make_authority(), "localhost"))


def _show_another_certificate(site: ServerSite) -> None:
    site.edge.present(issue(make_authority(), "localhost"))


def _stop_superlink(site: ServerSite) -> None:
    site.edge.health = 502


def _open_edge(site: ServerSite) -> None:
    site.edge.open_paths["/v1/control/start-run"] = 415


def _be_root(site: ServerSite) -> None:
    site.change_machine(user_id=0)


def _use_up_memory(site: ServerSite) -> None:
    site.change_machine(memory_bytes=lambda: GIB)


SERVER_FAULTS: dict[str, ServerFault] = {
    "folder of something else": _fault(_lose_consortium, "consortium-readable"),
    "consortium without a host": _fault(_forget_host, "consortium-readable"),
    "authority that has ended": _fault(_let_authority_end, "ca-valid"),
    "server key lost": _fault(_lose_key, "server-certificate"),
    "key of another certificate": _fault(_mix_up_keys, "server-certificate"),
    "certificate of another authority": _fault(_sign_by_another, "server-chain"),
    "certificate without one of the names": _fault(_forget_a_name, "server-names"),
    "certificate that has ended": _fault(_let_certificate_end, "server-dates"),
    "internal certificate that has ended": _fault(_let_internal_certificate_end, "internal-certificate"),
    "internal certificate for another name": _fault(_name_another_superlink, "internal-certificate"),
    "secret that the group can read": _fault(_show_secret, "secrets-permissions"),
    "database lost": _fault(_lose_database, "database-durable"),
    "database in memory": _fault(_keep_database_in_memory, "database-durable"),
    "damaged database": _fault(_damage_database, "database-integrity"),
    "hospital that nobody registered": _fault(_forget_a_hospital, "hospitals-registered"),
    "key that nobody enrolled": _fault(_let_a_stranger_in, "hospitals-registered"),
    "revoked hospital still let in": _fault(_keep_a_revoked_hospital, "hospitals-registered"),
    "runs not mounted": _fault(_unmount_runs, "runs-durable"),
    "disk full": _fault(_fill_disk, "disk"),
    "somebody else at the SuperLink's port": _fault(_take_port, "ports"),
    "edge with another certificate": _fault(_show_another_certificate, "edge-tls", "ports"),
    "SuperLink behind the edge stopped": _fault(_stop_superlink, "edge-health"),
    "edge that lets Control through": _fault(_open_edge, "edge-blocks"),
    "server that runs as root": _fault(_be_root, "user"),
    "too little memory": _fault(_use_up_memory, "memory"),
}
