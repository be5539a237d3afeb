"""The keystream: AES-256 in counter mode, every byte once, other bytes in every process."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB

from client_app.noise import keystream
from client_app.noise.keystream import Keystream

# NIST SP 800-38A, F.5.5: key, initial counter and the four output blocks of CTR-AES256.
NIST_KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
NIST_COUNTER = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
NIST_OUTPUT = bytes.fromhex(
    "0bdf7df1591716335e9a8b15c860c5025a6e699d536119065433863c8f657b94"
    "1bc12c9c01610d5d0d8bd6a3378eca622956e1c8693536b1bee99c73a31576b6"
)


def take(stream: Keystream, size: int) -> bytes:
    buffer = bytearray(size)
    stream.fill(memoryview(buffer))
    return bytes(buffer)


def counter_mode(key: bytes, counter: bytes, size: int) -> bytes:
    """Encrypt the numbers from `counter` on block by block, which is what counter mode means."""
    first, blocks = int.from_bytes(counter, "big"), -(-size // 16)
    numbers = [((first + step) % 2**128).to_bytes(16, "big") for step in range(blocks)]
    return Cipher(AES256(key), ECB()).encryptor().update(b"".join(numbers))[:size]


@pytest.fixture
def system_bytes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the operating system is made to hand out, and in the end what is left of it."""
    supply: list[bytes] = []

    def hand_out(size: int) -> bytes:
        piece = supply.pop(0)
        assert len(piece) == size
        return piece

    monkeypatch.setattr("client_app.noise.keystream.os.urandom", hand_out)
    return supply


def test_bytes_are_those_of_the_published_test_vector(system_bytes: list[bytes]) -> None:
    system_bytes += [NIST_KEY, NIST_COUNTER]

    assert take(Keystream(), 64) == NIST_OUTPUT


@pytest.mark.parametrize("sizes", [(1, 15, 17, 31), (64,), (0, 40, 0, 24)])
def test_draws_of_any_size_continue_one_stream(system_bytes: list[bytes], sizes: tuple[int, ...]) -> None:
    system_bytes += [NIST_KEY, NIST_COUNTER]
    stream = Keystream()

    drawn = b"".join(take(stream, size) for size in sizes)

    assert drawn == NIST_OUTPUT


def test_stream_longer_than_one_piece_has_no_seam(system_bytes: list[bytes]) -> None:
    system_bytes += [NIST_KEY, NIST_COUNTER]
    size = (1 << 21) + 5

    assert take(Keystream(), size) == counter_mode(NIST_KEY, NIST_COUNTER, size)


def test_key_is_replaced_after_its_volume(system_bytes: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keystream, "BYTES_PER_KEY", 48)
    keys = [(bytes([number]) * 32, bytes([number + 100]) * 16) for number in range(3)]
    system_bytes += [part for key in keys for part in key]
    stream = Keystream()

    drawn = take(stream, 40) + take(stream, 80)

    assert drawn == b"".join(counter_mode(key, counter, 48) for key, counter in keys)[:120]
    assert system_bytes == []


def test_volume_of_a_key_keeps_the_stated_advantage() -> None:
    blocks = keystream.BYTES_PER_KEY // 16

    assert blocks**2 / 2**129 <= 2**-85


def test_buffer_keeps_nothing_of_what_it_held(system_bytes: list[bytes]) -> None:
    system_bytes += [NIST_KEY, NIST_COUNTER]
    buffer = bytearray(b"\xff" * 64)

    Keystream().fill(memoryview(buffer))

    assert buffer == NIST_OUTPUT


def test_two_streams_of_one_process_share_no_block() -> None:
    first, second = take(Keystream(), 1 << 16), take(Keystream(), 1 << 16)

    assert blocks_of(first).isdisjoint(blocks_of(second))


def test_threads_that_share_a_stream_share_no_block() -> None:
    stream, drawn = Keystream(), []
    threads = [threading.Thread(target=lambda: drawn.append(take(stream, 1 << 20))) for _ in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set().union(*map(blocks_of, drawn))) == 8 * (1 << 20) // 16


def test_failed_draw_is_never_repeated(system_bytes: list[bytes]) -> None:
    system_bytes += [NIST_KEY, NIST_COUNTER]
    stream = Keystream()
    take(stream, 16)

    with pytest.raises(TypeError):
        stream.fill(memoryview(bytes(16)))  # read-only

    assert take(stream, 16) in NIST_OUTPUT[16:]


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
@pytest.mark.parametrize("used", [False, True])
def test_stream_cannot_be_duplicated(duplicate, used: bool) -> None:
    stream = Keystream()
    if used:
        take(stream, 16)

    with pytest.raises(TypeError, match="would repeat its bytes"):
        duplicate(stream)


def test_stream_takes_no_seed_and_shows_no_key(system_bytes: list[bytes]) -> None:
    system_bytes += [NIST_KEY, NIST_COUNTER]
    stream = Keystream()
    take(stream, 16)

    shown = repr(stream) + str(stream) + repr([getattr(stream, name) for name in Keystream.__slots__])

    assert not inspect.signature(Keystream).parameters
    assert NIST_KEY.hex() not in shown
    assert repr(NIST_KEY) not in shown
    assert not hasattr(stream, "__dict__")


def blocks_of(drawn: bytes) -> set[bytes]:
    return {drawn[start : start + 16] for start in range(0, len(drawn), 16)}
