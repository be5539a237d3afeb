"""Every seeded fault is found by the check it belongs to and by no other; a healthy hospital is left in peace."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from deploy.doctor.checks import Status
from deploy.doctor.display import as_json, show
from deploy.node.pause import pause
from deploy.node.state import Phase, Restart
from tests.deploy.doctor.made_up_certificates import issue, make_authority
from tests.deploy.doctor.made_up_dicom import IMPLICIT, make_dicom
from tests.deploy.doctor.seeded_faults import FAULTS
from tests.deploy.doctor.site import GIB, Site, failures, healthy_site

NOW = time.time()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with healthy_site(tmp_path) as made:
        yield made


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def warnings(site: Site) -> set[str]:
    return {name for name, result in site.examine().items() if result.status is Status.WARNING}


def test_healthy_hospital_raises_no_alarm_and_nothing_is_changed(site: Site) -> None:
    site.hospital()
    before = contents(site.root)

    results = site.examine()

    alarms = {name: result.found for name, result in results.items() if result.status.value in ("failed", "warning")}
    assert alarms == {}
    skipped = {name for name, result in results.items() if result.status is Status.SKIPPED}
    assert skipped == {"proxy", "phi-dicom", "ports", "image-digest"}
    assert len(results) >= 28
    assert (contents(site.root), site.server.activated) == (before, [])


@pytest.mark.parametrize("name", FAULTS)
def test_seeded_fault_is_found_by_its_check_and_no_other(site: Site, name: str) -> None:
    FAULTS[name].seed(site)

    results = site.examine()

    assert failures(results) == FAULTS[name].expected
    assert all(results[found].mend for found in FAULTS[name].expected)
    assert not any("itself broke" in result.found for result in results.values())


def test_at_least_twenty_five_faults_are_seeded_and_nearly_every_check_finds_one() -> None:
    found = frozenset[str]().union(*(fault.expected for fault in FAULTS.values()))

    assert len(FAULTS) >= 25
    assert len(found) >= 35


def restart(age_s: float) -> Restart:
    return Restart(time=NOW - age_s, reason="The SuperNode ended.")


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (lambda site: site.change_machine(device=lambda path: 1), {"state-apart"}),
        (lambda site: site.change_machine(may_write=lambda path: True), {"data-read-only"}),
        (lambda site: site.change_machine(processors=lambda: 1.5), {"cpu"}),
        (lambda site: site.change_machine(synchronised=lambda: False), {"time-synchronised"}),
        (lambda site: site.change_machine(free_bytes=lambda path: 3 * GIB), {"disk-state", "disk-keys"}),
        (
            lambda site: site.change_machine(environment={**site.machine.environment, "TZ": "Europe/Atlantis"}),
            {"time-zone"},
        ),
        (
            lambda site: site.change_machine(environment={**site.machine.environment, "FLWR_TELEMETRY_ENABLED": "1"}),
            {"offline-flags"},
        ),
        (lambda site: site.server.present(issue(site.authority, "localhost", days=(-60, 20))), {"tls-dates"}),
        (lambda site: setattr(site.server, "clock_offset_s", -4), {"clock"}),
        (lambda site: setattr(site.server, "clock_offset_s", 30), {"clock"}),
        (lambda site: site.policy.update(evaluation={"metrics": "exact"}), {"policy-meaning"}),
        (lambda site: pause(site.state, by="the chief physician"), {"stop-switch"}),
        (lambda site: site.write_node_state(phase=Phase.STARTING), {"watchdog"}),
        (lambda site: site.write_node_state(written=NOW - 300), {"watchdog"}),
        (lambda site: site.write_node_state(restarts=tuple(restart(60.0 * n) for n in range(4))), {"watchdog"}),
        (lambda site: site.write_node_state(restarts=tuple(restart(7200.0) for _ in range(9))), set()),
    ],
)
def test_what_somebody_should_know_is_a_warning(site: Site, seed: Callable[[Site], None], expected: set[str]) -> None:
    seed(site)

    assert warnings(site) == expected
    assert failures(site.examine()) == set()


def test_authority_that_ends_soon_is_a_warning(site: Site) -> None:
    site.authority = make_authority(days=(-300, 20))
    site.write_authority()
    site.server.present(issue(site.authority, "localhost"))

    assert warnings(site) == {"ca-valid"}


def test_without_network_no_connection_is_opened(site: Site) -> None:
    site.kit["host"] = "aegis.example.invalid"

    results = site.examine(network=False)

    assert failures(results) == set()
    skipped = {name for name, result in results.items() if result.found == "not looked at: --no-network"}
    assert skipped == {
        *("dns", "proxy", "route", "tls-private-ca", "tls-dates", "tls-chain"),
        *("health", "fleet-only", "clock", "auth"),
    }


def test_everything_works_through_a_proxy_with_a_password(site: Site) -> None:
    proxy = site.add_proxy()
    site.kit["proxy"] = proxy.url.replace("http://", "http://north:p%40ss@")

    results = site.examine()

    assert failures(results) == set()
    assert results["proxy"].status is results["auth"].status is Status.OK
    assert set(proxy.asked) == {(f"localhost:{site.server.port}", "Basic bm9ydGg6cEBzcw==")}


def test_proxy_of_the_environment_is_none_that_the_node_uses(site: Site) -> None:
    proxy = site.add_proxy()
    del site.kit["proxy"]
    site.change_machine(environment={**site.machine.environment, "HTTPS_PROXY": proxy.url})

    results = site.examine()

    assert results["proxy"].found == "the kit names none, and HTTPS_PROXY is none that the node uses"
    assert (failures(results), proxy.asked) == (set(), [])


def test_proxy_of_the_environment_is_recalled_where_there_is_no_other_way(site: Site) -> None:
    site.change_machine(environment={**site.machine.environment, "https_proxy": "http://127.0.0.1:1"})
    FAULTS["port that a firewall closes"].seed(site)

    assert "the proxy in https_proxy, write it as `proxy` into kit.toml" in site.examine()["route"].mend


def test_proxy_of_another_kind_is_refused(site: Site) -> None:
    site.kit["proxy"] = "socks5://127.0.0.1:1080"

    results = site.examine()

    assert failures(results) == {"proxy"}
    assert "http://host:port" in results["proxy"].mend


def test_interceptor_is_named(site: Site) -> None:
    FAULTS["TLS inspection"].seed(site)

    assert "Inspection of the hospital" in site.examine()["tls-private-ca"].found


def test_new_hospital_without_ledger_cache_and_node_raises_no_alarm(site: Site) -> None:
    for folder in (site.state, site.keys):
        shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
    del site.policy["masking"]

    results = site.examine()

    assert failures(results) == set()
    skipped = ("ledger-integrity", "ledger-anchor", "cache-integrity", "watchdog")
    assert {results[name].status for name in skipped} == {Status.SKIPPED}
    assert results["ports"].status is Status.OK


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("new, empty keys volume", "a ledger, but no anchor north.anchor in keys-dir"),
        ("ledger deleted", "an anchor, but no ledger north.ledger in state-dir"),
        ("old ledger restored", "1 fault, at rows 5"),
    ],
)
def test_what_is_wrong_between_ledger_and_anchor_is_said(site: Site, name: str, missing: str) -> None:
    FAULTS[name].seed(site)

    assert site.examine()["ledger-anchor"].found == missing


def test_cache_of_another_data_set_is_found(site: Site) -> None:
    site.policy["data"]["id"] = "others"

    assert failures(site.examine()) == {"cache-integrity"}


def test_image_that_the_kit_names_is_recognized(site: Site) -> None:
    (site.kit_folder / "image.txt").write_text(f"aegis-hospital@sha256:{'a' * 64}\n")
    site.machine.image_identity.write_text(json.dumps({"digest": f"sha256:{'a' * 64}"}))

    assert site.examine()["image-digest"].status is Status.OK


def test_requirement_that_is_not_installed_is_found(site: Site) -> None:
    site.change_machine(requirements=lambda: ("flwr==1.42.*", "no-such-thing>=2", 'ray; extra == "simulation"'))

    result = site.examine()["versions"]

    assert result.status is Status.FAILED
    assert result.found == "no-such-thing missing, expected >=2"


def test_gpu_that_torch_can_use_is_named(site: Site) -> None:
    (site.root / "devices" / "nvidia0").touch()
    site.change_machine(graphics_card=lambda: "NVIDIA T4")

    assert site.examine()["gpu"].found == "NVIDIA T4"


def test_gpu_that_the_container_was_not_given_is_warned_of(site: Site) -> None:
    site.change_machine(graphics_card=lambda: "")

    result = site.examine()["gpu"]

    assert result.status is Status.WARNING
    assert "COMPOSE_FILE=compose.yaml:compose.gpu.yaml" in result.mend


@pytest.mark.parametrize("devices", [(), ("nvidia0",)])
def test_gpu_is_no_concern_of_a_torch_for_processors(site: Site, devices: tuple[str, ...]) -> None:
    for name in devices:
        (site.root / "devices" / name).touch()

    assert site.examine()["gpu"].status is Status.OK


def test_file_that_cannot_be_read_is_told_by_its_place(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    locked, opened = site.images()[2], Path.open

    def refuse(path: Path, *args: object, **options: object) -> object:
        if path == locked:
            raise PermissionError
        return opened(path, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)

    assert site.examine()["data-readable"].found == "file 3 of 40 in sorted order cannot be read"


def test_kept_dates_of_an_old_de_identification_are_found(site: Site) -> None:
    content = make_dicom(name="P1", patient_id="P1", birth_date="19620314", removed="YES", syntax=IMPLICIT)
    (site.data / "normal" / "0001.dcm").write_bytes(content)

    assert failures(site.examine()) == {"phi-dicom"}


def test_de_identified_dicom_raises_no_alarm(site: Site) -> None:
    (site.data / "normal" / "0001.dcm").write_bytes(make_dicom(name="P1", patient_id="P1", removed="YES"))

    assert site.examine()["phi-dicom"].status is Status.OK


def test_programs_and_cameras_in_image_texts_raise_no_alarm(site: Site) -> None:
    exif = Image.Exif()
    exif[0x0131] = "Viewer 2024-01-02, Company, Inc"
    exif[0x0132] = datetime.now(UTC).strftime("%Y:%m:%d %H:%M:%S")
    Image.new("L", (8, 8)).save(site.data / "normal" / "added.jpg", exif=exif)

    assert site.examine()["phi-image-text"].status is Status.OK


def test_patient_in_exif_is_found(site: Site) -> None:
    exif = Image.Exif()
    exif[0x010E] = "Doe, John"
    Image.new("L", (8, 8)).save(site.data / "normal" / "added.jpg", exif=exif)

    assert failures(site.examine()) == {"phi-image-text"}


@pytest.mark.parametrize(
    "name",
    [
        "image cut off",
        "only one class",
        "DICOM file with a name",
        "file named after a patient",
        "patient's name in a PNG text",
        "fewer images than the policy demands",
    ],
)
def test_no_name_of_an_image_or_class_and_no_text_of_an_image_is_printed(site: Site, name: str) -> None:
    """Class folders may be named after patients, too, when data.root is one level off."""
    (site.data / "normal").rename(site.data / "Lovelace, Ada")
    (site.data / "normal").symlink_to(site.data / "Lovelace, Ada")
    FAULTS[name].seed(site)

    results = list(site.examine().values())

    text = StringIO()
    show(results, Console(file=text, width=100))
    for output in (text.getvalue(), as_json(results)):
        assert "phi-dicom" in output
        for secret in ("Lovelace", "Ada", "Doe", "DOE", "1962", "patient-0", ".png", "pneumonia", "0001.dcm"):
            assert secret not in output, secret
