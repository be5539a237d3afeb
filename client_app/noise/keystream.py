"""Random bytes for noise: AES-256 in counter mode under keys from the operating system, fast and never repeated."""

from __future__ import annotations

import os
import threading
import weakref
from typing import NoReturn, SupportsIndex, final

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

# 2^22 cipher blocks: an observer tells them from random bytes with an advantage of at most 2^(2 * 22 - 129) = 2^-85.
BYTES_PER_KEY = 1 << 26
_KEY_BYTES = 32
_COUNTER_BYTES = 16
_ZEROS = memoryview(bytes(1 << 20))


@final
class Keystream:
    """An endless stream of random bytes, each handed out once. Threads may share it.

    Guarantee:
        Bounded quantity: an observer's advantage in telling the bytes from uniform ones, and in predicting any from
        all the others, is that of breaking AES-256 in counter mode (key and initial counter of 48 bytes from
        `os.urandom`), plus 2^-85 for each key. Between processes: a restarted process and every forked child draw
        keys of their own, so no two streams share bytes, except with probability below 2^-200. No argument, seed or
        global generator has any influence. A stream can be neither pickled nor copied.

    Not guaranteed:
        Anything, if the operating system's generator is broken or not yet seeded. Bytes differ after a snapshot of
        the whole machine, or of the process by other means than fork, is resumed twice: such copies share the key
        until it expires. Keys and used bytes are not wiped from memory, and encryption time is only as independent of
        the key as OpenSSL's (with AES instructions, constant).
    """

    __slots__ = ("__weakref__", "_encryptor", "_left", "_lock", "_process")

    _encryptor: CipherContext | None
    _left: int
    _process: int

    def __init__(self) -> None:
        """Prepare a stream; its first key is drawn with its first bytes."""
        self._forget()
        _streams.add(self)

    def fill(self, buffer: memoryview) -> None:
        """Overwrite `buffer` (contiguous bytes, writable) with random bytes."""
        with self._lock:
            done = 0
            while done < len(buffer):
                encryptor = self._current_encryptor()
                size = min(len(buffer) - done, len(_ZEROS), self._left)
                self._left -= size
                encryptor.update_into(_ZEROS[:size], buffer[done : done + size])
                done += size

    def _current_encryptor(self) -> CipherContext:
        # The process number catches a child made without Python's hooks, such as one that C code forked.
        if self._encryptor is None or self._left == 0 or self._process != os.getpid():
            self._encryptor = Cipher(AES256(os.urandom(_KEY_BYTES)), CTR(os.urandom(_COUNTER_BYTES))).encryptor()
            self._left = BYTES_PER_KEY
            self._process = os.getpid()
        return self._encryptor

    def _forget(self) -> None:
        """Drop the key; a lock that another thread held during a fork would never open again, so it is new too."""
        self._encryptor = None
        self._left = 0
        self._process = os.getpid()
        self._lock = threading.Lock()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "Cannot copy or pickle a keystream: the copy would repeat its bytes. Build one where it is used."
        )


_streams: weakref.WeakSet[Keystream] = weakref.WeakSet()


def _forget_all() -> None:
    for stream in list(_streams):
        stream._forget()  # noqa: SLF001 -- the hook of this very class


os.register_at_fork(after_in_child=_forget_all)
