"""Faults that a hospital can have, each with the checks that must find it, and no others may."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from client_app.ledger import Ledger
from deploy.node.state import Phase
from tests.client_app.ledger.place import Place
from tests.deploy.doctor.made_up_certificates import issue, make_authority, openssh_public
from tests.deploy.doctor.made_up_dicom import make_dicom
from tests.deploy.doctor.site import GIB, Site, free_port


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        seed: spoils a healthy site.
        expected: ids of the checks that must fail.
    """

    seed: Callable[[Site], None]
    expected: frozenset[str]


def _fault(seed: Callable[[Site], None], *expected: str) -> Fault:
    return Fault(seed, frozenset(expected))


def _lose_kit(site: Site) -> None:
    site.kit.clear()


def _misspell_kit(site: Site) -> None:
    site.kit["prot"] = site.kit.pop("port")


def _mix_up_keys(site: Site) -> None:
    site.write_key(ec.generate_private_key(ec.SECP384R1()))


def _weaken_key(site: Site) -> None:
    weak = ec.generate_private_key(ec.SECP256R1())
    site.write_key(weak)
    site.kit["public-key"] = openssh_public(weak)


def _show_key(site: Site) -> None:
    (site.kit_folder / "node.key").chmod(0o644)


def _let_authority_end(site: Site) -> None:
    site.authority = make_authority(days=(-400, -1))
    site.write_authority()
    site.server.present(issue(site.authority, "localhost"))


def _hand_over_wrong_authority(site: Site) -> None:
    site.authority = make_authority(ca=False)
    site.write_authority()


def _misspell_host(site: Site) -> None:
    site.kit["host"] = "aegis.example.invalid"


def _block_port(site: Site) -> None:
    site.kit["port"] = free_port()


def _demand_password(site: Site) -> None:
    site.add_proxy(status=407)


def _forbid_tunnel(site: Site) -> None:
    site.add_proxy(status=403)


def _lose_proxy(site: Site) -> None:
    site.kit["proxy"] = f"http://127.0.0.1:{free_port()}"


def _read_tls(site: Site) -> None:
    site.server.present(issue(make_authority("Inspection of the hospital"), "localhost"))


def _let_certificate_end(site: Site) -> None:
    site.server.present(issue(site.authority, "localhost", days=(-90, -1)))


def _name_another_host(site: Site) -> None:
    site.server.present(issue(site.authority, "aegis.example"))


def _fall_ill(site: Site) -> None:
    site.server.health = 503


def _expose_control(site: Site) -> None:
    site.server.open_paths["/v1/control/list-nodes"] = 200


def _expose_runtime(site: Site) -> None:
    site.server.open_paths["/v1/runtime/acquire-task"] = 401


def _run_behind(site: Site) -> None:
    site.server.clock_offset_s = 120


def _run_ahead(site: Site) -> None:
    site.server.clock_offset_s = -10


def _revoke(site: Site) -> None:
    site.server.known_keys.clear()


def _misspell_policy(site: Site) -> None:
    site.policy["privacy"]["max-epsilom"] = 8.0


def _allow_nothing(site: Site) -> None:
    site.policy["privacy"] = {}


def _demand_masking_without_images(site: Site) -> None:
    site.policy["masking"] = {"required": True}


def _swap_kits(site: Site) -> None:
    site.kit["hospital-id"] = "south"


def _unmount_images(site: Site) -> None:
    shutil.rmtree(site.data)


def _empty_images(site: Site) -> None:
    shutil.rmtree(site.data)
    site.data.mkdir()


def _mount_one_class(site: Site) -> None:
    shutil.rmtree(site.data / "pneumonia")


def _cut_image(site: Site) -> None:
    path = site.images()[3]
    path.write_bytes(path.read_bytes()[:60])


def _demand_more_images(site: Site) -> None:
    site.policy["training"]["min-examples"] = 1000


def _add_dicom(site: Site) -> None:
    (site.data / "normal" / "0001.dcm").write_bytes(make_dicom(name="DOE^JOHN"))


def _name_patients(site: Site) -> None:
    site.images()[0].rename(site.data / "normal" / "Doe, John 1962-03-14.png")


def _write_into_image(site: Site) -> None:
    info = PngInfo()
    info.add_text("Patient Name", "DOE^JOHN")
    Image.new("L", (8, 8)).save(site.images()[0], pnginfo=info)


def _unmount_state(site: Site) -> None:
    shutil.rmtree(site.state)


def _keep_state_in_memory(site: Site) -> None:
    site.change_machine(file_system=lambda path: "tmpfs" if path == site.state else "ext4")


def _fill_state(site: Site) -> None:
    site.change_machine(free_bytes=lambda path: GIB // 2 if path == site.state else 50 * GIB)


def _fill_keys(site: Site) -> None:
    site.change_machine(free_bytes=lambda path: GIB // 2 if path == site.keys else 50 * GIB)


def _open_keys(site: Site) -> None:
    site.keys.chmod(0o755)


def _mount_as_another_user(site: Site) -> None:
    site.change_machine(owner=lambda path: 0)


def _alter_ledger(site: Site) -> None:
    place = Place(site.root)
    assert place.hospital_id == site.policy["hospital-id"]
    renamed = site.state.rename(site.root / "volume")
    place.tamper("UPDATE rows SET body = replace(body, 'm1', 'm9') WHERE seq = 2")
    renamed.rename(site.state)


def _restore_old_ledger(site: Site) -> None:
    shutil.copyfile(site.ledger, site.root / "backup")
    site.release("m3")
    for path in site.state.glob("*.ledger-*"):
        path.unlink()
    shutil.copyfile(site.root / "backup", site.ledger)


def _lose_anchor(site: Site) -> None:
    for path in site.keys.iterdir():
        path.unlink()


def _lose_ledger(site: Site) -> None:
    site.ledger.unlink()


def _damage_cache(site: Site) -> None:
    largest = max(site.cache.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)


def _mount_volume_of_another(site: Site) -> None:
    Ledger.open(site.state, hospital_id="south", key_folder=site.root / "elsewhere").close()


def _start_second_node(site: Site) -> None:
    starts = iter(range(1, 1000))
    site.change_machine(pause=lambda seconds: site.write_node_state(started=float(next(starts) % 2)))


def _be_refused(site: Site) -> None:
    site.write_node_state(phase=Phase.REFUSED, detail="The server does not accept this hospital's key.")


def _damage_node_state(site: Site) -> None:
    (site.state / "node" / "state.json").write_text("{")


def _take_port(site: Site) -> None:
    site.stop_node()
    site.listen(site.page_port)


def _use_up_memory(site: Site) -> None:
    site.change_machine(memory_bytes=lambda: GIB)


def _starve_random(site: Site) -> None:
    site.change_machine(random_is_ready=lambda: False)


def _break_driver(site: Site) -> None:
    (site.root / "devices" / "nvidia0").touch()
    site.change_machine(graphics_card=lambda: "")


def _install_old_flower(site: Site) -> None:
    installed = site.machine.version
    site.change_machine(version=lambda name: "1.30.0" if name == "flwr" else installed(name))


def _be_root(site: Site) -> None:
    site.change_machine(user_id=0, owner=lambda path: 0)


def _lock_home(site: Site) -> None:
    home = Path(site.machine.environment["HOME"])
    site.change_machine(may_write=lambda path: not path.is_relative_to(site.data) and path != home)


def _run_another_image(site: Site) -> None:
    (site.kit_folder / "image.txt").write_text(f"aegis-hospital@sha256:{'a' * 64}\n")
    site.change_machine(environment={**site.machine.environment, "AEGIS_IMAGE_DIGEST": f"sha256:{'b' * 64}"})


FAULTS: dict[str, Fault] = {
    "kit not mounted": _fault(_lose_kit, "kit-readable"),
    "kit with a misspelt key": _fault(_misspell_kit, "kit-readable"),
    "another hospital's private key": _fault(_mix_up_keys, "kit-key-matches"),
    "key on a weaker curve": _fault(_weaken_key, "kit-key-matches"),
    "private key open to everybody": _fault(_show_key, "kit-permissions"),
    "authority that has ended": _fault(_let_authority_end, "ca-valid"),
    "certificate that is no authority": _fault(_hand_over_wrong_authority, "ca-valid"),
    "host that does not exist": _fault(_misspell_host, "dns"),
    "port that a firewall closes": _fault(_block_port, "route"),
    "proxy that wants a password": _fault(_demand_password, "proxy"),
    "proxy that forbids the port": _fault(_forbid_tunnel, "proxy"),
    "proxy that is switched off": _fault(_lose_proxy, "proxy"),
    "TLS inspection": _fault(_read_tls, "tls-private-ca"),
    "server certificate that has ended": _fault(_let_certificate_end, "tls-dates"),
    "server certificate for another name": _fault(_name_another_host, "tls-chain"),
    "server that is unwell": _fault(_fall_ill, "health"),
    "Control API within reach": _fault(_expose_control, "fleet-only"),
    "Runtime API within reach": _fault(_expose_runtime, "fleet-only"),
    "clock two minutes behind": _fault(_run_behind, "clock"),
    "clock ten seconds ahead": _fault(_run_ahead, "clock"),
    "hospital that is not registered": _fault(_revoke, "auth"),
    "policy with a misspelt key": _fault(_misspell_policy, "policy-syntax"),
    "policy that allows no mechanism": _fault(_allow_nothing, "policy-meaning"),
    "masking demanded without images": _fault(_demand_masking_without_images, "policy-meaning"),
    "kit of another hospital": _fault(_swap_kits, "policy-hospital-id"),
    "images not mounted": _fault(_unmount_images, "data-readable"),
    "empty folder of images": _fault(_empty_images, "data-readable"),
    "only one class": _fault(_mount_one_class, "data-labelled"),
    "image cut off": _fault(_cut_image, "data-labelled"),
    "fewer images than the policy demands": _fault(_demand_more_images, "data-labelled"),
    "DICOM file with a name": _fault(_add_dicom, "phi-dicom"),
    "file named after a patient": _fault(_name_patients, "phi-file-names"),
    "patient's name in a PNG text": _fault(_write_into_image, "phi-image-text"),
    "state volume not mounted": _fault(_unmount_state, "volumes-present"),
    "state volume in memory": _fault(_keep_state_in_memory, "state-durable"),
    "state volume full": _fault(_fill_state, "disk-state"),
    "keys volume full": _fault(_fill_keys, "disk-keys"),
    "keys volume open to everybody": _fault(_open_keys, "permissions"),
    "volumes of another user": _fault(_mount_as_another_user, "permissions"),
    "altered row in the ledger": _fault(_alter_ledger, "ledger-integrity"),
    "old ledger restored": _fault(_restore_old_ledger, "ledger-anchor"),
    "new, empty keys volume": _fault(_lose_anchor, "ledger-anchor"),
    "ledger deleted": _fault(_lose_ledger, "ledger-anchor"),
    "flipped bit in the cache": _fault(_damage_cache, "cache-integrity"),
    "another hospital's ledger": _fault(_mount_volume_of_another, "duplicate-hospital-id"),
    "second node on the same volume": _fault(_start_second_node, "duplicate-hospital-id"),
    "node that the server refuses": _fault(_be_refused, "watchdog"),
    "damaged state of the node": _fault(_damage_node_state, "watchdog"),
    "port of the page taken": _fault(_take_port, "ports"),
    "too little memory": _fault(_use_up_memory, "memory"),
    "no random numbers yet": _fault(_starve_random, "entropy"),
    "graphics card that torch cannot use": _fault(_break_driver, "gpu"),
    "Flower of another version": _fault(_install_old_flower, "versions"),
    "container that runs as root": _fault(_be_root, "user"),
    "home that cannot be written to": _fault(_lock_home, "home-writable"),
    "another image than the kit's": _fault(_run_another_image, "image-digest"),
}
