"""The thread pool of generated programs, and the entry point of a program.

`runtime.ll` runs sections and tasks. `threads.ll` divides them among workers, which
spin before they sleep. `waiting/` contains the system calls for sleeping. This module
loads the functions, calibrates their clock, and owns the worker pool. The first
parallel program starts the pool. A fork discards it, and the exit of the interpreter
joins it.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from string import Template
from threading import RLock
from time import perf_counter
from typing import Any

import numpy as np

from toolkit import settings
from toolkit.backends.numpy.jit import engine, llvm
from toolkit.backends.numpy.jit.code import generator_digest
from toolkit.backends.numpy.jit.processor import Processor
from toolkit.definitions.records import record
from toolkit.plans.operands import ALIGNMENT

_POOL_BYTES = 1024
_FUNCTIONS = ("run", "prepare", "worker", "stop", "clock", "pauses", "set_limits")
# How long workers spin before they sleep. It is the time that Python takes between the
# steps of a small network. Waking a thread takes a third of it.
_SPIN_SECONDS = 2e-4
# A yield of the processor takes longer if another program needs it: then that program
# runs for a part of a time slice.
_LONG_YIELD_SECONDS = 5e-5
_PAUSES = 1000  # iterations of each of the three timings


@record
class _Calls:
    """The numbers of Linux system calls."""

    futex: int
    gettid: int
    getcpu: int
    setaffinity: int
    getaffinity: int


@record
class _Machine:
    """The architecture's Linux system calls, pause instruction and clock."""

    calls: _Calls
    pause: str
    clock: str
    spins: int


_STEADY_CLOCK = "call i64 @llvm.readsteadycounter()"
# The generic numbers, which newer architectures use.
_CALLS = _Calls(98, 178, 168, 122, 123)
_ARM64_CLOCK = 'call i64 @llvm.read_volatile_register.i64(metadata !{!"cntvct_el0"})'
# By architecture. A pause takes about 35 to 140 cycles on x86, and almost none on ARM.
_MACHINES = {
    "x86_64": _Machine(
        calls=_Calls(202, 186, 309, 203, 204),
        pause="call void @llvm.x86.sse2.pause()",
        clock="call i64 @llvm.readcyclecounter()",
        spins=6000,
    ),
    "aarch64": _Machine(
        calls=_CALLS,
        pause="call void @llvm.aarch64.hint(i32 1)",
        clock=_ARM64_CLOCK,
        spins=50_000,
    ),
    "armv7": _Machine(
        calls=_Calls(240, 224, 345, 241, 242),
        pause="call void @llvm.arm.hint(i32 1)",
        clock=_STEADY_CLOCK,
        spins=50_000,
    ),
    "riscv64": _Machine(calls=_CALLS, pause="", clock=_STEADY_CLOCK, spins=50_000),
}
_MACHINES["arm64"] = _MACHINES["aarch64"]  # Apple's name
# Functions of the Windows kernel. LLVM receives their addresses.
_WINDOWS_FUNCTIONS = ("WaitOnAddress", "WakeByAddressAll", "SwitchToThread")
_ATTRIBUTES = "attributes #0 = { nounwind }"
_DECLARATION = re.compile(r"^declare .*@([\w.]+)\(.*$\n?", re.MULTILINE)
_DEFINITION = re.compile(r"^define .*@([\w.]+)\(", re.MULTILINE)


def can_use_threads(processor: Processor | None = None) -> bool:
    """Return whether programs can use several threads on a processor or the host."""
    processor = processor or Processor.host()
    return processor.threads and processor.architecture in _MACHINES


def wait_method(processor: Processor) -> str:
    """Return the name of the file that implements waiting on a processor's system."""
    if "windows" in processor.triple:
        return "address"
    return "futex" if "linux" in processor.triple else "condition"


def has_pthreads(processor: Processor) -> bool:
    """Return whether a C library can start POSIX threads on a processor."""
    return can_use_threads(processor) and wait_method(processor) != "address"


def default_spins(processor: Processor) -> int:
    """Return the number of spins before a worker sleeps; 0 without threads."""
    return _MACHINES[processor.architecture].spins if can_use_threads(processor) else 0


def runtime_text(processor: Processor | None = None, is_library: bool = False) -> str:
    """Return the LLVM IR of the runtime.

    Args:
        processor: the target; None: the host.
        is_library: whether the runtime is part of a native library. C then starts its
            threads, and tasks are not timed.
    """
    processor = processor or Processor.host()
    shares = has_pthreads(processor) if is_library else can_use_threads(processor)
    texts = [_text("runtime.ll")]
    clock = "add i64 0, 0"
    if shares:
        machine = _MACHINES[processor.architecture]
        bits = processor.pointer_bits
        words = {"LONG": f"i{bits}", "LONG_BYTES": str(bits // 8)}
        words["SPINS"] = str(machine.spins)
        for name, number in asdict(machine.calls).items():
            words[name.upper()] = str(number)
        for name in ("threads.ll", f"waiting/{wait_method(processor)}.ll"):
            texts.append(substitute(_text(name), words))
        texts.append(_function("void @pause", machine.pause, "ret void"))
        if not is_library:
            texts.append(_text("spins.ll"))
        clock = clock if is_library else machine.clock
    else:
        texts.append(_text("alone.ll"))
    texts.append(_function("i64 @clock", f"%t = {clock}", "ret i64 %t"))
    return join(texts)


def substitute(text: str, words: Mapping[str, str]) -> str:
    """Substitute all `$NAME` placeholders of a module."""
    return Template(text).substitute(words)


def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _function(head: str, body: str, end: str) -> str:
    """Return a function with one instruction, and the declaration of its callee."""
    called = re.search(r"call (\w+) (@llvm[\w.]+)\((\w*)", body)
    declared = "declare {} {}({})\n".format(*called.groups()) if called else ""
    return f"{declared}define {head}() #0 {{\n  {body}\n  {end}\n}}\n"


def join(texts: Sequence[str]) -> str:
    """Join modules and remove declarations of functions that one of them defines."""
    text = "\n".join(texts).replace(_ATTRIBUTES, "")
    declared = set(_DEFINITION.findall(text))

    def first_only(match: re.Match[str]) -> str:
        is_new = match[1] not in declared
        declared.add(match[1])
        return match[0] if is_new else ""

    return _DECLARATION.sub(first_only, text) + "\n" + _ATTRIBUTES + "\n"


class Runtime:
    """The loaded functions of the runtime."""

    def __init__(self) -> None:
        host = Processor.host()
        key = f"{wait_method(host)}{generator_digest()[:16]}{engine.digest(host)[:24]}"
        _register_windows_functions()
        code = engine.machine_code(f"runtime{key}", runtime_text)
        addresses = engine.link([code], _FUNCTIONS)
        pointer, long = ctypes.c_void_p, ctypes.c_int64
        # These release the GIL while they run.
        self.run = ctypes.CFUNCTYPE(long, pointer, pointer)(addresses["run"])
        self.prepare = ctypes.CFUNCTYPE(None, pointer)(addresses["prepare"])
        self.worker = ctypes.CFUNCTYPE(pointer, pointer)(addresses["worker"])
        self.stop = ctypes.CFUNCTYPE(None, pointer)(addresses["stop"])
        self.clock = ctypes.CFUNCTYPE(long)(addresses["clock"])
        self.pauses = ctypes.CFUNCTYPE(None, long)(addresses["pauses"])
        self.set_limits = ctypes.CFUNCTYPE(None, long, long)(addresses["set_limits"])

    @cached_property
    def address_offset(self) -> int:
        """The offset of the data pointer in the object of a NumPy array."""
        probes: list[Any] = [np.zeros(3), np.zeros((2, 2), np.int8)[1:]]
        for offset in range(0, 64, 8):
            words = [ctypes.c_int64.from_address(id(a) + offset).value for a in probes]
            if words == [a.ctypes.data for a in probes]:
                return offset
        raise RuntimeError("cannot find the elements of a NumPy array")


def _register_windows_functions() -> None:
    """Pass LLVM the addresses of functions that it does not find in libraries."""
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernelbase")
        for name in _WINDOWS_FUNCTIONS:
            address = ctypes.cast(getattr(kernel, name), ctypes.c_void_p).value
            llvm.binding().add_symbol(name, address)


class Workers:
    """The worker threads of this process: all threads except the calling thread.

    A program that still uses the pool after `stop` runs on the calling thread only.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._block: Any = None
        self._running: list[_thread.LockType] = []  # each lock is held by its thread
        self._is_stopped = False
        self._lock = RLock()

    @property
    def pool(self) -> int:
        """The address of the shared state; starts the threads; 0 without threads.

        The address is valid as long as this object exists, so the caller of a program
        must keep a reference.
        """
        if self.threads < 2:
            return 0
        if self._block is None:
            with self._lock:
                if self._block is None and not self._is_stopped:
                    self._start()
        return 0 if self._block is None else self._address

    def _start(self) -> None:
        block = np.zeros(_POOL_BYTES + 16 * self.threads + ALIGNMENT, np.uint8)
        self._address = -(-block.ctypes.data // ALIGNMENT) * ALIGNMENT
        runtime().prepare(self._address)
        pause_seconds, tick_seconds = _measure_clocks()
        runtime().set_limits(
            int(_SPIN_SECONDS / pause_seconds), int(_LONG_YIELD_SECONDS / tick_seconds)
        )
        for number in range(1, self.threads):
            argument = self._address + _POOL_BYTES + 16 * number
            (ctypes.c_int64 * 2).from_address(argument)[:] = [self._address, number]
            running = _thread.allocate_lock()
            running.acquire()
            try:
                _thread.start_new_thread(_run_worker, (argument, running, block))
            except RuntimeError:
                break  # the system refuses more threads
            self._running.append(running)
        self._block = block

    def stop(self) -> None:
        """End the threads after their current work."""
        with self._lock:
            self._is_stopped = True
        if self._block is None:
            return
        runtime().stop(self._address)
        while self._running:
            self._running.pop().acquire()


def _measure_clocks() -> tuple[float, float]:
    """Return the seconds of a pause (a few to 140 cycles) and of a clock tick."""
    pause_times, ticks = [], []
    for _ in range(3):
        start, first_tick = perf_counter(), runtime().clock()
        runtime().pauses(_PAUSES)
        pause_times.append(perf_counter() - start)
        ticks.append((runtime().clock() - first_tick) / pause_times[-1])
    return max(1e-9, min(pause_times) / _PAUSES), 1 / max(1.0, *ticks)


def _run_worker(argument: int, running: _thread.LockType, block: Any) -> None:
    """Run a worker thread; the argument keeps the shared block alive."""
    try:
        runtime().worker(argument)
    finally:
        running.release()


_runtime: Runtime | None = None
_workers: Workers | None = None
_creating = RLock()  # reentrant: a signal handler can call the interrupted function


def runtime() -> Runtime:
    """Return the runtime of this process."""
    global _runtime
    if _runtime is None:
        with _creating:
            if _runtime is None:
                _runtime = Runtime()
    return _runtime


def workers() -> Workers:
    """Return the worker pool of this process, with `settings.num_threads()` threads."""
    global _workers
    pool = _workers
    if pool is None or pool.threads != _thread_count():
        with _creating:
            pool = _workers
            if pool is None or pool.threads != _thread_count():
                stop_workers()
                pool = _workers = Workers(_thread_count())
    return pool


def stop_workers() -> None:
    """End the threads after their current work; the next program starts new ones."""
    global _workers
    with _creating:
        pool, _workers = _workers, None
        if pool is not None:
            pool.stop()


def _thread_count() -> int:
    return settings.num_threads() if can_use_threads() else 1


def _after_fork() -> None:
    """Reset the pool: threads do not exist in the child process."""
    global _creating, _workers
    _creating, _workers = RLock(), None


atexit.register(stop_workers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
