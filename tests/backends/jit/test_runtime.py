"""Programs of generated calls: tasks, groups, threads, forks, and bad indices."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from toolkit.backends.numpy.jit import runtime
from toolkit.backends.numpy.jit.calls import ERROR, Call, Lowered
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.llvm import binding_for_all
from toolkit.backends.numpy.jit.processor import PROCESSORS, Processor
from toolkit.backends.numpy.jit.program import NativeProgram
from toolkit.plans.operands import OperandMemory

# So much that any call is worth sharing.
LARGE = 10**9


def test_a_pause_takes_some_cycles():
    pause_seconds, tick_seconds = runtime._measure_clocks()
    assert 1e-10 < pause_seconds < 1e-5
    assert 1e-11 < tick_seconds < 1e-5


def emit_add(number: int) -> Kernel:
    """y[row] = x[row] + number, a row being one int64."""
    b = Kernel(4)
    x, y = b.address(0, "int64"), b.address(1, "int64")
    with b.loop(b.low, b.high) as row:
        b.put_scalar(b.integer_at(x + row, "int64") + number, y + row)
    return b


def emit_sum() -> Kernel:
    """work[slot] = the sum of the task's rows of x."""
    b = Kernel(4)
    x, work = b.address(0, "int64"), b.address(1, "int64")
    partial_sum = work + b.slot
    with b.when(b.compare("eq", b.low, b.slot * b.entry(2))):
        b.put_scalar(b.int64(0), partial_sum)
    with b.loop(b.low, b.high) as row:
        old = b.integer_at(partial_sum, "int64")
        b.put_scalar(old + b.integer_at(x + row, "int64"), partial_sum)
    return b


def emit_fail() -> Kernel:
    """Write a bad index to the error block."""
    b = Kernel(4)
    b.note_bad_index(b.address(0), b.int64(12), 10)
    return b


def operand_addresses(arrays, which, operand):
    return None, arrays[operand[1]].ctypes.data


def share(which, operand):
    return OperandMemory(operand[1], 8, is_row_local=True)


def bound(calls, *arrays):
    objects = (ctypes.c_int64 * 1)()
    program = NativeProgram([Lowered(calls)], share)
    return program.bind(partial(operand_addresses, arrays), objects)


def add(number, source, target, rows, grain):
    operands = (("in", source), ("out", target))
    return Call(Code(emit_add, number), operands, (), rows, grain, flops=LARGE)


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    toolkit.config.set_num_threads(request.param)
    yield request.param
    toolkit.config.set_num_threads(None)


@pytest.mark.parametrize("rows", [0, 1, 7, 1000])
def test_tasks_cover_all_rows_once(threads, rows):
    x, y, z = np.arange(rows), np.zeros(rows, int), np.zeros(rows, int)
    runner = bound([add(1, 0, 1, rows, 3), add(10, 1, 2, rows, 7)], x, y, z)
    for _ in range(20):
        y[...] = z[...] = 0
        runner.run()
        assert (z == x + 11).all()


def test_sums_have_one_slot_per_task(threads):
    x, slots = np.arange(100), np.full(4, -1)
    code = Code(emit_sum)
    call = Call(code, (("in", 0), ("work", 1)), (30,), 100, 30, flops=LARGE)
    runner = bound([call], x, slots)
    for _ in range(20):
        runner.run()
        expected = [sum(range(i, min(i + 30, 100))) for i in range(0, 100, 30)]
        assert slots.tolist() == expected


def test_a_bad_index_stops_the_program(threads):
    x, y = np.arange(4), np.zeros(4, int)
    fail = Call(
        Code(emit_fail), (ERROR,), problem="gather: {index} is not below {limit}"
    )
    runner = bound([fail, add(1, 0, 1, 4, 4)], x, y)
    with pytest.raises(IndexError, match="gather: 12 is not below 10"):
        runner.run()
    assert not y.any()


def test_arrays_may_have_new_addresses(threads):
    objects = (ctypes.c_int64 * 2)()
    call = add(5, 0, 1, 8, 2)
    program = NativeProgram([Lowered([call])], share)
    runner = program.bind(lambda _, operand: (operand[1], 8), objects)
    for start in range(5):
        x, y = np.arange(start, start + 9), np.zeros(9, int)
        objects[:] = [id(x), id(y)]
        runner.run()
        assert y.tolist() == [0, *(x[1:] + 5)]


def callers(count, repeats, begin=lambda number: None):
    """Check the results of programs that several threads run concurrently.

    Args:
        begin: called before each run with the number of the thread, from 1.
    """

    def work(number):
        x, y = np.arange(5000), np.zeros(5000, int)
        runner = bound([add(number, 0, 1, 5000, 100)], x, y)
        for _ in range(repeats):
            y[...] = 0
            begin(number)
            runner.run()
            if not (y == x + number).all():
                return False
        return True

    with ThreadPoolExecutor(count) as pool:
        return all(pool.map(work, range(1, count + 1)))


def test_several_callers_at_once():
    toolkit.config.set_num_threads(2)
    try:
        assert callers(4, 200)
    finally:
        toolkit.config.set_num_threads(None)


def test_several_first_callers_start_the_workers_once(monkeypatch):
    started, start = [], runtime.Workers._start

    def slow_start(self):
        started.append(self)
        time.sleep(0.01)
        start(self)

    monkeypatch.setattr(runtime.Workers, "_start", slow_start)
    monkeypatch.setattr(runtime, "_thread_count", lambda: time.sleep(0.002) or 2)
    runtime.stop_workers()
    try:
        barrier = threading.Barrier(4)
        assert callers(4, 3, lambda number: barrier.wait())
        assert len(started) == 1
    finally:
        runtime.stop_workers()


def test_workers_may_be_stopped_during_calls_of_other_threads(monkeypatch):
    """A thread that runs a program holds their memory, and continues without them."""
    barrier = threading.Barrier(4)

    def stop(number):
        barrier.wait()
        if number == 1:
            runtime.stop_workers()

    monkeypatch.setattr(runtime, "_thread_count", lambda: 2)
    try:
        assert callers(4, 200, stop)
    finally:
        runtime.stop_workers()


def test_stopped_workers_are_not_started():
    threads = runtime.Workers(2)
    threads.stop()
    assert threads.pool == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_forked_child_starts_separate_workers():
    toolkit.config.set_num_threads(2)
    try:
        x, y = np.arange(5000), np.zeros(5000, int)
        runner = bound([add(3, 0, 1, 5000, 100)], x, y)
        runner.run()
        child = os.fork()
        if child == 0:
            y[...] = 0
            runner.run()
            os._exit(0 if (y == x + 3).all() else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        runner.run()
    finally:
        toolkit.config.set_num_threads(None)


APART = """
import os, time
import numpy as np
import toolkit
from tests.backends.jit.test_runtime import add, bound

toolkit.config.set_num_threads(3)
x, y = np.arange(5000), np.zeros(5000, int)
runner = bound([add(3, 0, 1, 5000, 100)], x, y)
before = set(os.listdir("/proc/self/task"))
runner.run()
workers = [int(thread) for thread in set(os.listdir("/proc/self/task")) - before]
allowed = os.sched_getaffinity(0)
for processor in sorted(allowed) * 2:
    os.sched_setaffinity(0, {processor})  # to be there, and then to be free again
    os.sched_setaffinity(0, allowed)
    time.sleep(0.05)  # the workers sleep
    y[...] = 0
    runner.run()
    assert (y == x + 3).all()
    for worker in workers:
        assert len(allowed - os.sched_getaffinity(worker)) == 1
os.sched_setaffinity(0, {processor})
time.sleep(0.05)
runner.run()  # where no other processor is allowed, they stay where they may be
assert all(os.sched_getaffinity(worker) for worker in workers)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="Linux tells on which processors threads may run, here on two at least",
)
def test_workers_run_on_other_processors_than_the_caller():
    subprocess.run([sys.executable, "-c", APART], check=True, timeout=60)


def test_events_have_the_times_of_tasks(threads):
    x, y = np.arange(100), np.zeros(100, int)
    events = bound([add(1, 0, 1, 100, 10)], x, y).timed()
    assert len(events) == 10
    if runtime.can_use_threads():
        assert all(start <= end for _, start, end, _ in events)
        assert {thread for *_, thread in events} <= set(range(threads))


def test_independent_calls_run_in_parallel(threads):
    x, y, z = np.arange(9), np.zeros(9, int), np.zeros(9, int)
    w = np.zeros(9, int)
    calls = [add(1, 0, 1, 9, 9), add(2, 0, 2, 9, 9), add(3, 1, 3, 9, 9)]
    runner = bound(calls, x, y, z, w)
    assert [section.tasks for section in runner.program.sections] == [2, 1]
    for _ in range(20):
        y[...] = z[...] = w[...] = 0
        runner.run()
        assert (y == x + 1).all()
        assert (z == x + 2).all()
        assert (w == x + 4).all()


# The symbols with which workers sleep on each system.
CONDITION = {
    *("pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock"),
    *("pthread_cond_init", "pthread_cond_wait", "pthread_cond_broadcast"),
    "sched_yield",
}
FUTEX = {"syscall", "sched_yield"}
ADDRESS = {"WaitOnAddress", "WakeByAddressAll", "SwitchToThread"}
# The instructions that read the clock. LLVM returns zero on other processors.
CLOCKS = {"x86_64": "rdtsc", "aarch64": "CNTVCT_EL0", "arm64": "CNTVCT_EL0"}
SYSTEMS = {
    "x86_64-unknown-linux-gnu": (FUTEX, FUTEX),
    "aarch64-unknown-linux-musl": (FUTEX, FUTEX),
    "x86_64-apple-darwin23.1.0": (CONDITION, CONDITION),
    "arm64-apple-darwin24": (CONDITION, CONDITION),
    "x86_64-unknown-freebsd14": (CONDITION, CONDITION),
    "x86_64-pc-windows-msvc": (ADDRESS, set()),
    "aarch64-pc-windows-msvc": (ADDRESS, set()),
    "wasm32-unknown-unknown": (set(), set()),
}


@pytest.mark.parametrize("is_library", [False, True])
@pytest.mark.parametrize("triple", SYSTEMS)
def test_workers_sleep_by_the_primitive_of_the_system(triple, is_library):
    base = PROCESSORS["wasm32" if "wasm" in triple else "x86-64-v2"]
    processor = Processor(triple, "generic", threads=base.threads)
    llvm = binding_for_all()
    module = llvm.parse_assembly(runtime.runtime_text(processor, is_library))
    module.verify()
    declared = {f.name for f in module.functions if f.is_declaration}
    expected = SYSTEMS[triple][is_library]
    assert {name for name in declared if not name.startswith("llvm.")} == expected
    module.triple = triple
    machine = llvm.Target.from_triple(triple).create_target_machine()
    assert machine.emit_object(module)
    clock = CLOCKS.get(processor.architecture)
    assert is_library or clock is None or clock in machine.emit_assembly(module)


@pytest.fixture(params=["of the system", "condition"])
def way(request, monkeypatch):
    """How workers sleep: as always here, and as where there is no futex."""
    if request.param == "condition":
        if sys.platform == "win32":
            pytest.skip("there are no conditions")
        runtime.stop_workers()
        for name in ("_runtime", "_workers"):
            monkeypatch.setattr(runtime, name, None)
        monkeypatch.setattr(runtime, "wait_method", lambda processor: request.param)
        assert "@pthread_cond_wait" in runtime.runtime_text()
    yield
    runtime.stop_workers()


def wait_until_asleep(workers):
    """Wait until `workers` workers sleep, which they do after a time without work.

    A woken worker counts as asleep until the system runs it. The number can thus fall
    later; the function does not wait for that.
    """
    sleepers = ctypes.c_int32.from_address(runtime.workers().pool + 192)
    deadline = time.monotonic() + 60
    while sleepers.value < workers:
        assert time.monotonic() < deadline, f"{sleepers.value} of {workers} sleep"
        time.sleep(0.001)


def test_workers_wake_up_and_end(way):
    toolkit.config.set_num_threads(3)
    try:
        x, y = np.arange(60), np.zeros(60, int)
        runner = bound([add(1, 0, 1, 60, 1)], x, y)
        for iteration in range(200):
            y[...] = 0
            runner.run()
            assert (y == x + 1).all()
            if iteration % 10 == 0:
                wait_until_asleep(2)
        runtime.stop_workers()
        runner.run()  # on other workers
    finally:
        toolkit.config.set_num_threads(None)


def test_only_marked_names_of_a_module_are_replaced():
    text = "define $LONG @SIZES($LONG %LONG) { ret $LONG ${SIZES} } ; SIZES"
    assert runtime.substitute(text, {"LONG": "i64", "SIZES": "3"}) == (
        "define i64 @SIZES(i64 %LONG) { ret i64 3 } ; SIZES"
    )


@pytest.mark.parametrize("text", ["ret i32 $UNKNOWN", "ret i32 $1"])
def test_unknown_marked_name_is_an_error(text):
    with pytest.raises((KeyError, ValueError)):
        runtime.substitute(text, {"LONG": "i64"})
