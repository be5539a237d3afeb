"""The consortium's authority: what its certificates are good for, and what they are not."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from deploy.trust.authority import Pair, is_host, issue, make_authority
from deploy.trust.certificate_files import write_pair
from federation.errors import ConfigurationError

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> Pair:
    return make_authority("Heart Network", now=NOW - timedelta(days=1))


def verify(pair: Pair, authority: Pair, name: str, *, at: datetime = NOW) -> None:
    """Verify the chain as an independent implementation sees it."""
    builder = PolicyBuilder().store(Store([authority.certificate])).time(at)
    builder.build_server_verifier(x509.DNSName(name)).verify(pair.certificate, [])


def shake_hands(folder: Path, authority: Pair, pair: Pair, name: str) -> str:
    """Return how a client that trusts the authority alone ends a TLS handshake with a server that has the pair."""
    write_pair(folder / "server.crt", pair)
    (folder / "ca.crt").write_bytes(authority.certificate_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(there, server_side=True).close()
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name):
            return "trusted"
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        here.close()
        thread.join()


def test_authority_signs_certificates_and_no_other_authorities(authority: Pair) -> None:
    extensions = authority.certificate.extensions

    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)

    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.crl_sign) == (True, True, True)
    assert not usage.value.digital_signature
    assert isinstance(authority.key.curve, ec.SECP384R1)
    assert authority.certificate.version is x509.Version.v3
    assert "Heart Network" in authority.certificate.subject.rfc4514_string()


def test_authority_lasts_ten_years(authority: Pair) -> None:
    assert authority.certificate.not_valid_after_utc == datetime(2036, 11, 28, 12, 0, tzinfo=UTC)


def test_server_certificate_is_trusted_under_each_of_its_names_and_no_other(authority: Pair) -> None:
    pair = issue(authority, ("fl.example.org", "edge.example.org"), days=90, now=NOW)

    verify(pair, authority, "fl.example.org")
    verify(pair, authority, "edge.example.org")

    with pytest.raises(VerificationError, match="no matching subjectAltName"):
        verify(pair, authority, "example.org")


def test_server_certificate_is_for_servers_only(authority: Pair) -> None:
    extensions = issue(authority, ("a",), days=1, now=NOW).certificate.extensions

    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


@pytest.mark.parametrize("moment", [NOW - timedelta(hours=2), NOW + timedelta(days=90, seconds=1)])
def test_server_certificate_is_refused_outside_its_days(authority: Pair, moment: datetime) -> None:
    pair = issue(authority, ("a.example",), days=90, now=NOW)

    with pytest.raises(VerificationError, match="cert is not valid at validation time"):
        verify(pair, authority, "a.example", at=moment)


@pytest.mark.parametrize("moment", [NOW - timedelta(minutes=59), NOW + timedelta(days=90)])
def test_server_certificate_holds_from_an_hour_before_to_the_end_of_its_days(authority: Pair, moment: datetime) -> None:
    pair = issue(authority, ("a.example",), days=90, now=NOW)

    verify(pair, authority, "a.example", at=moment)


def test_certificate_of_another_authority_of_the_same_name_is_refused(authority: Pair) -> None:
    other = issue(make_authority("Heart Network", now=NOW), ("a.example",), days=90, now=NOW)

    with pytest.raises(VerificationError):
        verify(other, authority, "a.example")


def test_certificate_ends_with_its_authority_at_the_latest(authority: Pair) -> None:
    late = authority.certificate.not_valid_after_utc - timedelta(days=3)

    pair = issue(authority, ("a",), days=90, now=late)

    assert pair.certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_authority_that_has_ended_issues_nothing(authority: Pair) -> None:
    with pytest.raises(ConfigurationError, match="ended on 2036-11-28"):
        issue(authority, ("a",), days=90, now=authority.certificate.not_valid_after_utc)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("localhost", "trusted"),
        ("127.0.0.1", "trusted"),
        ("::1", "trusted"),
        ("example.org", "Hostname mismatch, certificate is not valid for 'example.org'."),
        ("127.0.0.2", "IP address mismatch, certificate is not valid for '127.0.0.2'."),
    ],
)
def test_client_that_trusts_the_authority_alone_shakes_hands_by_name_and_address(
    tmp_path: Path, name: str, outcome: str
) -> None:
    authority = make_authority("Heart Network")
    pair = issue(authority, ("localhost", "127.0.0.1", "::1"), days=1)

    assert shake_hands(tmp_path, authority, pair, name) == outcome


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_accepts_the_chain_under_its_strictest_rules(tmp_path: Path) -> None:
    authority = make_authority("Heart Network")
    write_pair(tmp_path / "ca.crt", authority)
    write_pair(tmp_path / "server.crt", issue(authority, ("fl.example.org",), days=90))

    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", str(tmp_path / "ca.crt")]
    done = subprocess.run([*command, str(tmp_path / "server.crt")], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["fl.example.org", "superlink", "a_b", "10.0.0.1", "::1", "xn--bcher-kva.example"])
def test_names_and_addresses_of_hosts_are_hosts(name: str) -> None:
    assert is_host(name)


@pytest.mark.parametrize(
    "name",
    ["", "a b", "fl.example.org:8443", "https://a", "a..b", "-a", "a-", "bücher.example", "10.0.0", "fe80::1%eth0"],
)
def test_what_a_certificate_cannot_carry_is_no_host(name: str) -> None:
    assert not is_host(name)
