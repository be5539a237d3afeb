"""Whom the containers of a network talk to, as the packets on its bridge tell."""

from __future__ import annotations

import json
import socket
import struct
import threading
from types import TracebackType
from typing import Self

from deploy.experiments.deployment_stage import docker

_EVERY_PROTOCOL = 0x0003
_IPV4, _TCP, _UDP = 0x0800, 6, 17
_ETHERNET = 14
_PACKET_LEVEL, _ADD_MEMBERSHIP, _PROMISCUOUS = 263, 1, 1
_SYN, _ACK = 0x02, 0x10


class Listener:
    """Notes every address and port that a network's containers open a connection to, or send a datagram to.

    It sees attempts that nobody answers, too, as long as they leave the container; root's business.
    """

    def __init__(self, network: str, *, besides: frozenset[str]) -> None:
        """Listen on the bridge of `network`; what the addresses in `besides` send is not noted."""
        bridge = f"br-{json.loads(docker('network', 'inspect', network))[0]['Id'][:12]}"
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL))
        self._socket.bind((bridge, 0))
        # Without this a bridge hands up only what is meant for itself, and not what it passes on.
        whole = struct.pack("iHH8s", socket.if_nametoindex(bridge), _PROMISCUOUS, 0, b"")
        self._socket.setsockopt(_PACKET_LEVEL, _ADD_MEMBERSHIP, whole)
        self._socket.settimeout(0.5)
        self._besides, self._ended = besides, threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self.contacted: set[tuple[str, int]] = set()

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._ended.set()
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                frame = self._socket.recv(256)
            except TimeoutError:
                continue
            found = read_contact(frame)
            if found is not None and found[0] not in self._besides:
                self.contacted.add((found[1], found[2]))


def read_contact(frame: bytes) -> tuple[str, str, int] | None:
    """Return sender, receiver and port of a frame that opens a TCP connection or is a UDP datagram; else None."""
    if len(frame) < _ETHERNET + 20 or struct.unpack_from("!H", frame, 12)[0] != _IPV4:
        return None
    length = (frame[_ETHERNET] & 0x0F) * 4
    protocol = frame[_ETHERNET + 9]
    sender, receiver = (socket.inet_ntoa(frame[_ETHERNET + at : _ETHERNET + at + 4]) for at in (12, 16))
    above = _ETHERNET + length
    if protocol not in (_TCP, _UDP) or len(frame) < above + 14:
        return None
    if protocol == _TCP and frame[above + 13] & (_SYN | _ACK) != _SYN:
        return None
    return sender, receiver, int(struct.unpack_from("!H", frame, above + 2)[0])
