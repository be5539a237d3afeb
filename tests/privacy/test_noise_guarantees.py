"""The guarantees of noise, restated: nothing steers it, no fork or restart repeats it, no sample tells its words."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from client_app.noise.box_muller import TERMS, BoxMullerBlock
from client_app.noise.cryptographic import CryptographicNoise

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")

# Draws before and after a fork, in the parent, in two children, and in a child of the first child; one line of JSON.
FORKING = """
import json, os
{before}
from client_app.noise.keystream import Keystream
stream = Keystream()

def take():
    buffer = bytearray(1 << 14)
    stream.fill(memoryview(buffer))
    return buffer.hex()

def fork(then):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            json.dump(then(), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        drawn = json.load(pipe)
    os.waitpid(child, 0)
    return drawn

drawn = [take()]
{at_fork}
drawn += fork(lambda: [take(), *fork(lambda: [take()]), take()])
drawn += fork(lambda: [take()])
drawn += [take()]
print(json.dumps(drawn))
"""
NO_HOOK = "os.register_at_fork = lambda **hooks: None"
NO_PROCESS_NUMBERS = "os.getpid = lambda: 1"
LOCK_HELD = "stream._lock.acquire()"


def run_python(script: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def blocks_of(drawn: list[str]) -> list[str]:
    return [piece[start : start + 32] for piece in drawn for start in range(0, len(piece), 32)]


@pytest.mark.parametrize("before", ["", NO_HOOK, NO_PROCESS_NUMBERS], ids=["both", "process-number", "hook"])
def test_no_block_of_the_keystream_repeats_after_forks(before: str) -> None:
    drawn = json.loads(run_python(FORKING.format(before=before, at_fork="")))

    blocks = blocks_of(drawn)

    assert len(drawn) == 6
    assert len(set(blocks)) == len(blocks) == 6 * 1024


def test_child_draws_although_another_thread_was_drawing_when_it_was_forked() -> None:
    script = FORKING.format(before="", at_fork=LOCK_HELD).replace("drawn += [take()]\n", "")

    drawn = json.loads(run_python(script))

    assert len(set(blocks_of(drawn))) == 5 * 1024


def test_no_block_of_the_keystream_repeats_after_a_restart() -> None:
    script = FORKING.format(before="", at_fork="")

    blocks = blocks_of([piece for _ in range(2) for piece in json.loads(run_python(script))])

    assert len(set(blocks)) == len(blocks) == 12 * 1024


@pytest.mark.slow
def test_no_noise_repeats_after_fork_or_restart() -> None:
    script = """
import os, sys, torch
from client_app.noise.cryptographic import CryptographicNoise
torch.manual_seed(0)
noise = CryptographicNoise()
noise.normal((10,), 1.0, device=torch.device("cpu"))
if os.fork():
    os.wait()
values = noise.normal((2000,), 1.0, device=torch.device("cpu")).double().tolist() + noise.uniform(2000).tolist()
sys.stdout.write(" ".join(map(repr, values)) + "\\n")
sys.stdout.flush()
"""
    streams = [np.array(line.split(), dtype=float) for _ in range(2) for line in run_python(script).splitlines()]

    # Of independent float32 normals a few coincide, anywhere; of a repeated stream all do, in their places.
    assert [len(stream) for stream in streams] == [4000] * 4
    for index, one in enumerate(streams):
        for other in streams[:index]:
            assert np.count_nonzero(one == other) <= 2
            assert np.isin(one, other).sum() < 40
            assert abs(np.corrcoef(one[:2000], other[:2000])[0, 1]) < 6.5 / np.sqrt(2000)


def test_no_seed_or_global_generator_has_an_influence() -> None:
    def draw() -> torch.Tensor:
        torch.manual_seed(1234)
        np.random.seed(1234)  # noqa: NPY002 -- the one that must not matter
        random.seed(1234)
        noise = CryptographicNoise()
        return torch.cat([noise.normal((100_000,), 1.0, device=CPU).double(), noise.uniform(100_000) - 0.5])

    first, second = draw(), draw()
    torch.manual_seed(1234)
    seeded = torch.cat([torch.randn(100_000).double(), torch.rand(100_000, dtype=torch.float64) - 0.5])

    for one, other in ((first, second), (first, seeded), (second, seeded)):
        for half in (slice(0, 100_000), slice(100_000, 200_000)):
            correlation = torch.corrcoef(torch.stack([one[half], other[half]]))[0, 1].item()
            assert abs(correlation) < 6.5 / 100_000**0.5  # 8e-11 for independent draws


def test_each_sample_depends_on_eight_words_and_shares_them_with_one_other() -> None:
    block = BoxMullerBlock(3)
    block.words[:] = os.urandom(len(block.words))
    before = block.combine(1.0).flatten().clone()
    influence = torch.zeros(TERMS * 3 * 2, 6, dtype=torch.bool)

    sizes = [8] * (TERMS * 3) + [4] * (TERMS * 3)
    for word, (start, size) in enumerate(zip(np.cumsum([0, *sizes]), sizes, strict=False)):
        kept = bytes(block.words[start : start + size])
        block.words[start : start + size] = os.urandom(size)
        influence[word] = block.combine(1.0).flatten() != before
        block.words[start : start + size] = kept

    assert influence.sum(dim=0).tolist() == [2 * TERMS] * 6
    assert torch.equal(influence[:, :3], influence[:, 3:])
