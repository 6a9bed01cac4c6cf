"""Tests of the threads of native libraries: their number, and changes during runs."""

import ctypes
import os
import subprocess
import sys

import pytest

pytest.importorskip("llvmlite")

from tests.backends.jit.test_native import loaded, model_source, needs_compiler
from toolkit.backends.library import Status
from toolkit.backends.numpy.jit.native import build

BESIDE = """
import sys, threading
from pathlib import Path
import toolkit
import ctypes
from tests.backends.jit.test_native import loaded, model_source, numbers
from toolkit.backends.numpy.jit import runtime

if sys.argv[2] == "condition":
    runtime.waiting = lambda processor: "condition"
source, shape = model_source("mlp", (64,), embed=True, threads=True)
library = loaded(source, Path(sys.argv[1]))
x, done = numbers(64, shape), threading.Event()
wanted = library.run(library.workspace(), 64, x)[1][0].tobytes()
wrong = []

def run():
    memory = library.workspace()
    while not done.is_set():
        status, (y,) = library.run(memory, 64, x)
        if status or y.tobytes() != wanted:
            wrong.append(status)

runs = [threading.Thread(target=run) for _ in range(2)]
for thread in runs:
    thread.start()
for turn in range(60):
    library.function("threads")(ctypes.c_int32(1 + turn % 3), ctypes.c_int32(20))
    if turn % 7 == 0:
        library.function("stop")()
done.set()
for thread in runs:
    thread.join()
assert not wrong
"""


@needs_compiler
@pytest.mark.parametrize("way", ["of the system", "condition"])
def test_number_of_threads_may_change_during_runs(way, tmp_path):
    command = [sys.executable, "-c", BESIDE, str(tmp_path), way]
    subprocess.run(command, check=True, timeout=120)


def threads_here():
    return len(os.listdir("/proc/self/task"))


@needs_compiler
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads")
def test_threads_end_when_the_number_is_lowered(tmp_path):
    source, _ = model_source("mlp", (1,), threads=True)
    library = loaded(source, tmp_path)
    threads, usual = library.function("threads"), ctypes.c_int32(-1)
    before = threads_here()
    for count, status, started in [
        (3, Status.OK, 2),
        (1, Status.OK, 0),
        (3, Status.OK, 2),
        (10**9, Status.NO_THREADS, 0),
        (256, Status.OK, 255),
        (0, Status.BAD_ARGUMENT, 255),
    ]:
        assert threads(ctypes.c_int32(count), usual) == status
        assert threads_here() - before == started
    library.function("stop")()
    assert threads_here() == before


@pytest.mark.parametrize("name, spins", [("x86-64-v2", 6000), ("aarch64", 50_000)])
def test_spin_counts_match_the_runtime(name, spins):
    source, _ = model_source("mlp", (1,), processor=name, threads=True)
    text = build._Library(source)._text(bytes(32))
    assert f"select i1 %usual, i32 {spins}, i32 %spins" in text
