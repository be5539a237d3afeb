"""Frames that open a connection or carry a datagram say to whom; others say nothing."""

from __future__ import annotations

import socket
import struct

import pytest

from deploy.experiments.deployment_packets import read_contact

TCP, UDP, ICMP = 6, 17, 1
SYN, ACK, FIN = 0x02, 0x10, 0x01


def frame(protocol: int, port: int, *, flags: int = SYN, kind: int = 0x0800, options: int = 0) -> bytes:
    """Return an Ethernet frame from 10.0.0.1 to 10.0.0.2."""
    header = bytes([0x45 + options // 4]) + bytes(8) + bytes([protocol]) + bytes(2)
    addresses = socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.0.2") + bytes(options)
    above = struct.pack("!HH", 40000, port) + bytes(9) + bytes([flags]) + bytes(6)
    return bytes(12) + struct.pack("!H", kind) + header + addresses + above


@pytest.mark.parametrize("options", [0, 8])
@pytest.mark.parametrize(("protocol", "port"), [(TCP, 8443), (UDP, 53)])
def test_contact_is_read_from_the_headers(protocol: int, port: int, options: int) -> None:
    assert read_contact(frame(protocol, port, options=options)) == ("10.0.0.1", "10.0.0.2", port)


@pytest.mark.parametrize(
    "other",
    [
        frame(TCP, 8443, flags=SYN | ACK),
        frame(TCP, 8443, flags=ACK),
        frame(TCP, 8443, flags=FIN | ACK),
        frame(ICMP, 0),
        frame(TCP, 8443, kind=0x0806),
        frame(TCP, 8443)[:30],
        b"",
    ],
    ids=["answer", "established", "end", "ICMP", "ARP", "cut off", "nothing"],
)
def test_what_opens_nothing_is_no_contact(other: bytes) -> None:
    assert read_contact(other) is None
