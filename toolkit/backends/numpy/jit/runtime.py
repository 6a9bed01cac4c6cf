"""The threads that run generated programs, and how a program is entered.

`runtime.ll` is the machine code's side: sections, tasks, and workers that spin for some
100 microseconds before they sleep. Here are its functions' addresses, the pool of
workers - started by the first program that needs them, forgotten after a fork, joined
when the interpreter ends - and the clock of its events.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from toolkit import settings
from toolkit.backends.base import ALIGNMENT
from toolkit.backends.numpy.jit import engine
from toolkit.backends.numpy.jit.code import generator_digest
from toolkit.backends.numpy.jit.processor import Processor

_POOL_BYTES = 1024
_FUNCTIONS = ("run", "worker", "stop", "clock")


class _Machine:
    """What differs between processors: system calls, the pause, the clock."""

    def __init__(
        self, futex: int, sched_yield: int, pause: str, clock: str, spins: int
    ) -> None:
        self.futex = futex
        self.sched_yield = sched_yield
        self.pause = pause
        self.clock = clock
        self.spins = spins


# A pause takes about 35 to 140 cycles on x86, next to nothing on ARM.
_MACHINES = {
    "x86_64": _Machine(
        futex=202,
        sched_yield=24,
        pause='call void asm sideeffect "pause", "~{memory}"()',
        clock="%t = call i64 @llvm.readcyclecounter()",
        spins=6000,
    ),
    "aarch64": _Machine(
        futex=98,
        sched_yield=124,
        pause='call void asm sideeffect "yield", "~{memory}"()',
        clock='%t = call i64 asm sideeffect "mrs $0, cntvct_el0", "=r"()',
        spins=50_000,
    ),
}
# Elsewhere programs run on the calling thread only, and no times are taken.
_ELSEWHERE = _Machine(0, 0, "", "%t = add i64 0, 0", 1)


def can_share() -> bool:
    """Whether programs can run on several threads on this system."""
    return sys.platform == "linux" and platform.machine() in _MACHINES


def runtime_text() -> str:
    """The LLVM IR of the runtime for this processor."""
    machine = _MACHINES[platform.machine()] if can_share() else _ELSEWHERE
    text = Path(__file__).with_name("runtime.ll").read_text(encoding="utf-8")
    if not can_share():
        text = text.replace("declare i64 @syscall(i64, ...)", _NO_SYSTEM_CALL)
    for name in ("futex", "sched_yield", "spins"):
        text = text.replace(name.upper(), str(getattr(machine, name)))
    return "\n".join(
        [
            text,
            f"define i64 @clock() #0 {{\n  {machine.clock}\n  ret i64 %t\n}}",
            f"define void @pause() #0 {{\n  {machine.pause}\n  ret void\n}}",
        ]
    )


_NO_SYSTEM_CALL = "define i64 @syscall(i64 %number, ...) {\n  ret i64 0\n}"


class Runtime:
    """The runtime's functions, loaded."""

    worker: int
    stop_address: int

    def __init__(self) -> None:
        key = f"runtime{generator_digest()[:16]}{engine.digest(Processor.host())[:24]}"
        code = engine.machine_code(key, runtime_text)
        found = engine.link([code], _FUNCTIONS)
        self.worker, self.stop_address = found["worker"], found["stop"]
        pointer, long = ctypes.c_void_p, ctypes.c_int64
        # These release the interpreter's lock while they run.
        self.run = ctypes.CFUNCTYPE(long, pointer, pointer)(found["run"])
        self.stop = ctypes.CFUNCTYPE(None, pointer)(found["stop"])
        self.clock = ctypes.CFUNCTYPE(long)(found["clock"])

    @cached_property
    def address_offset(self) -> int:
        """Where in a NumPy array's object the address of its elements stands."""
        probes: list[Any] = [np.zeros(3), np.zeros((2, 2), np.int8)[1:]]
        for offset in range(0, 64, 8):
            words = [ctypes.c_int64.from_address(id(a) + offset).value for a in probes]
            if words == [a.ctypes.data for a in probes]:
                return offset
        raise RuntimeError("cannot find the elements of a NumPy array")


class Workers:
    """The worker threads of this process: all threads but the one that calls."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._block: Any = None
        self._handles: list[ctypes.c_ulong] = []
        self._lock = Lock()

    @property
    def pool(self) -> int:
        """The address of what the threads share, started now if need be; 0: none."""
        if self.threads < 2:
            return 0
        if self._block is None:
            with self._lock:
                if self._block is None:
                    self._start()
        return self._address

    def _start(self) -> None:
        block = np.zeros(_POOL_BYTES + 16 * self.threads + ALIGNMENT, np.uint8)
        self._address = -(-block.ctypes.data // ALIGNMENT) * ALIGNMENT
        create = ctypes.CDLL(None).pthread_create
        create.argtypes = [ctypes.c_void_p] * 4
        for number in range(1, self.threads):
            argument = self._address + _POOL_BYTES + 16 * number
            (ctypes.c_int64 * 2).from_address(argument)[:] = [self._address, number]
            handle = ctypes.c_ulong()
            if create(ctypes.addressof(handle), None, runtime().worker, argument):
                break  # as many as the system gives
            self._handles.append(handle)
        self._block = block

    def stop(self) -> None:
        """End the threads, after what they are doing."""
        if self._block is None:
            return
        runtime().stop(self._address)
        join = ctypes.CDLL(None).pthread_join
        join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
        for handle in self._handles:
            join(handle, None)
        self.forget()

    def forget(self) -> None:
        """Begin anew: after a fork the threads are not in the child."""
        self._block, self._handles, self._lock = None, [], Lock()


_runtime: Runtime | None = None
_workers: Workers | None = None
_creating = Lock()


def runtime() -> Runtime:
    """The runtime of this process."""
    global _runtime
    if _runtime is None:
        _runtime = Runtime()
    return _runtime


def workers() -> Workers:
    """The workers of this process, as many as `settings.num_threads()` says."""
    global _workers
    if _workers is None or _workers.threads != _wanted():
        with _creating:
            if _workers is not None:
                _workers.stop()
            _workers = Workers(_wanted())
    return _workers


def _wanted() -> int:
    return settings.num_threads() if can_share() else 1


def _after_fork() -> None:
    global _creating
    _creating = Lock()
    if _workers is not None:
        _workers.forget()


def _at_exit() -> None:
    if _workers is not None:
        _workers.stop()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
