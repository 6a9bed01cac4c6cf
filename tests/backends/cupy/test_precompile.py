"""Tests that compile kernels and plans while a graph is lowered."""

import pickle
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import toolkit
from tests.backends.cupy.test_tuning import Frontend, Stream, planned_graphs, signature
from toolkit.backends.cupy import cudnn, planning
from toolkit.backends.cupy.compiling import Compiler
from toolkit.backends.cupy.cuda.launch import Kernel, Launch
from toolkit.backends.cupy.cuda_device import CudaDevice
from toolkit.backends.cupy.steps import Dnn
from toolkit.errors import DeviceError, UnsupportedOnBackend

__all__ = ["planned_graphs"]
MANY = Kernel("many", "of many", ())
KERNELS = Kernel("one", "of one", (), MANY), Kernel("other", "of another", ())
SLOW = SimpleNamespace(nodes=[SimpleNamespace(op="batchnorm")])


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    """Let planners start processes on any machine."""
    monkeypatch.setattr(planning, "available_cores", lambda: 2)


# --- kernels --------------------------------------------------------------------------


def held_compiler():
    """Return a blocking compiler, the event of its start, and the event to continue."""
    started, go_on = threading.Event(), threading.Event()

    def compile_kernel(kernel):
        started.set()
        assert go_on.wait(30)
        return kernel.source.encode()

    return Compiler(compile_kernel), started, go_on


def test_kernels_are_compiled_as_soon_as_they_are_requested():
    compiler, started, go_on = held_compiler()
    compiler.precompile(KERNELS[0])
    assert started.wait(30)  # before a call waits for it
    go_on.set()
    assert compiler.wait_for(KERNELS) == [b"of one", b"of another"]


def test_kernels_are_compiled_once_and_in_groups():
    compiled = []

    def compile_kernel(kernel):
        compiled.append(kernel.name)
        return b""

    compiler = Compiler(compile_kernel)
    for kernel in KERNELS:
        compiler.precompile(kernel)
    compiler.wait_for(KERNELS)
    assert sorted(compiled) == ["one", "other"]
    for _ in range(3):
        compiler.precompile(KERNELS[0])
    compiler.wait_for([KERNELS[0], MANY])
    assert sorted(compiled) == ["many", "one", "one", "other"]


def test_compile_error_is_raised_at_use_and_retried():
    def compile_kernel(kernel):
        raise DeviceError(f"nvrtc: {kernel.name} does not compile")

    compiler = Compiler(compile_kernel)
    compiler.precompile(KERNELS[1])
    for _ in range(2):
        with pytest.raises(DeviceError, match="other does not compile"):
            compiler.wait_for(KERNELS[1:])


def test_cancelled_kernels_are_compiled_at_use():
    compiler, started, go_on = held_compiler()
    compiler.precompile(KERNELS[0])
    assert started.wait(30)
    compiler.cancel()
    go_on.set()
    assert compiler.wait_for(KERNELS) == [b"of one", b"of another"]
    cancelled = Future()
    cancelled.cancel()
    compiler._started[KERNELS[0]] = cancelled
    assert compiler.wait_for(KERNELS[:1]) == [b"of one"]


def test_compilation_works_without_threads(monkeypatch):
    def full(*arguments):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", full)
    compiler = Compiler(lambda kernel: kernel.source.encode())
    compiler.precompile(KERNELS[0])
    assert compiler.wait_for(KERNELS) == [b"of one", b"of another"]
    planner = planning.Planner("what a device says", 90)
    planner.precompile((signature(), None))
    assert planner.wait_for([(signature(), None), (signature(), 1)]) == {}


def test_idle_compiler_threads_end(requested_keys):
    def end_of_threads():
        for thread in threading.enumerate():
            if thread.name.startswith("ThreadPoolExecutor"):
                thread.join(30)
        return threading.active_count()

    before = threading.active_count()
    Compiler(lambda kernel: b"").wait_for(KERNELS)
    assert end_of_threads() <= before
    planner = planning.Planner("what a device says", 90)
    planner.wait_for([(signature(), None), (signature("float16"), None)])
    assert end_of_threads() <= before


# A process that is ended before it has an answer.
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]

# --- plans ----------------------------------------------------------------------------


@pytest.fixture
def requested_keys(monkeypatch):
    """Return the keys that processes received; each process returns its workspace."""
    keys = []

    class Process:
        returncode = 0

        def __init__(self, command, **pipes):
            pass

        def communicate(self, request, timeout):
            key, properties, arch = pickle.loads(request)
            assert (properties, arch) == ("what a device says", 90)
            keys.append(key)
            return b"%d" % (key[1] or 0), None

        def kill(self):
            pass

        wait = kill

    monkeypatch.setattr(planning.subprocess, "Popen", Process)
    return keys


def test_plans_are_created_as_soon_as_they_are_requested(requested_keys):
    planner = planning.Planner("what a device says", 90)
    keys = [(signature(), 64), (signature("float16"), 65)]
    for key in (*keys, keys[0]):
        planner.precompile(key)
    assert planner.wait_for(keys) == {keys[0]: b"64", keys[1]: b"65"}
    assert sorted(key[1] for key in requested_keys) == [64, 65]
    # One alone is made where it is needed, several by processes.
    assert planner.wait_for(keys[:1]) == {}
    assert len(planner.wait_for(keys)) == 2


def test_failing_planner_processes_have_a_fallback(monkeypatch):
    keys = [(signature(), None), (signature("float16"), None)]
    # A device that says nothing: with or without cuDNN nothing is planned for it.
    assert planning.Planner("", 90).wait_for(keys) == {}

    def no_room(*command, **options):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(planning.subprocess, "Popen", no_room)
    assert planning.Planner("", 90).wait_for(keys) == {}


def test_planner_processes_of_a_failed_program_end(monkeypatch):
    monkeypatch.setattr(planning, "python_command", lambda function: SLEEP)
    planner = planning.Planner("", 90)
    planner.precompile((signature(), None))
    (started,) = planner._started.values()
    while not planner._running:
        assert not started.done()
    (process,) = planner._running
    planner.cancel()
    assert started.result(30) == b""
    assert process.wait(30) != 0
    assert not planner._running


def test_interrupt_ends_planner_processes(monkeypatch):
    monkeypatch.setattr(planning, "python_command", lambda function: SLEEP)

    planner = planning.Planner("", 90)
    planner.precompile((signature(), None))
    (process,) = planner._started.values()
    result = process.result

    def interrupted():
        while not planner._running:
            assert not process.done()
        raise KeyboardInterrupt

    process.result = interrupted
    with pytest.raises(KeyboardInterrupt):
        planner.wait_for([(signature(), None)])
    assert result(30) == b""


def test_planner_process_starts_only_if_it_saves_time(requested_keys, monkeypatch):
    keys = [(signature(), None), (signature("float16"), None)]
    with monkeypatch.context() as patch:
        patch.setattr(planning, "available_cores", lambda: 1)
        assert planning.Planner("", 90).wait_for(keys) == {}
    monkeypatch.setattr(planning.sys, "frozen", True, raising=False)
    assert planning.Planner("", 90).wait_for(keys) == {}
    assert not requested_keys


def test_planner_process_returns_the_requested_plan(planned_graphs, monkeypatch):
    monkeypatch.setattr(Frontend, "create_device_properties", str, raising=False)
    request = pickle.dumps(((signature(), 64), "what a device says", 90))
    assert planning.build_plan(request) == bytes([0])
    assert len(planned_graphs) == 1


def test_plans_are_searched_in_order_of_expected_gain(monkeypatch):
    searched = []

    def planned(signature, where, workspace, modes):
        searched.append(modes)
        if modes == ["A"] and signature == "rare":
            raise UnsupportedOnBackend("conv", "float32", "", "")
        return "a graph"

    modes = SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK")
    monkeypatch.setattr(cudnn, "frontend", lambda: SimpleNamespace(heur_mode=modes))
    monkeypatch.setattr(cudnn, "_plan_graph", planned)
    every = ["A", "B", "FALLBACK"]
    assert cudnn.plan("usual", {}) == cudnn.plan("rare", {}) == "a graph"
    assert searched == [["A"], ["A"], every]
    cudnn.plan("usual", {}, names_all=True)
    assert searched[3:] == [every]


# --- a device -------------------------------------------------------------------------


@pytest.fixture
def device():
    """A CUDA device as far as it foresees."""
    cuda_device = object.__new__(CudaDevice)
    cuda_device.device = Stream()
    started = SimpleNamespace(kernels=[], plans=[])
    compiler = SimpleNamespace(precompile=started.kernels.append)
    planner = SimpleNamespace(precompile=started.plans.append)
    graphs = SimpleNamespace(has=lambda key: False)
    vars(cuda_device).update(
        _functions={},
        _compiler=compiler,
        _planner=planner,
        _graphs=graphs,
        begun=started,
    )
    vars(cuda_device).update(stream=Stream(), _entry_lock=Stream(), _is_entered=False)
    return cuda_device


def launch(kernel):
    return Launch(kernel, (1, 1, 1), (1, 1, 1), ())


def test_device_precompiles_slow_kernels(device):
    fast = Dnn(signature(), ())
    steps = [launch(KERNELS[0]), fast, Dnn(SLOW, ()), launch(KERNELS[1])]
    device._functions[KERNELS[1]] = print  # it is loaded
    device.precompile(steps)
    assert device.begun.kernels == [KERNELS[0]]
    assert device.begun.plans == [(SLOW, None)]


def test_cached_and_timed_plans_are_not_precompiled(device):
    device._graphs.has = lambda key: True
    device.precompile([Dnn(SLOW, ())])
    device._graphs.has = lambda key: False
    toolkit.config.set_autotune(True)
    try:
        device.precompile([Dnn(SLOW, ())])
    finally:
        toolkit.config.set_autotune(False)
    assert not device.begun.plans


# --- a graph --------------------------------------------------------------------------


class Stopped(Exception):
    """Error that ends a lowering."""


def test_kernels_of_a_graph_are_precompiled_during_lowering(on_host, monkeypatch):
    device, started, forgotten = on_host.device, [], []
    monkeypatch.setattr(device, "precompile", started.append)
    monkeypatch.setattr(device, "cancel_precompile", lambda: forgotten.append(True))

    def program(function):
        x = np.ones((4, 3), "float32")
        with toolkit.device("gpu:0"):
            return toolkit.function(function).get_concrete_function(x).program

    compiled = program(lambda x: toolkit.ops.softmax(x) @ toolkit.ops.transpose(x))
    assert started == [
        lowered.steps for lowered in compiled.lowered if lowered is not None
    ]
    assert not forgotten
    lower = type(on_host.generator).lower

    def stop(generator, node, *arguments):
        if len(started) > len(compiled.lowered):
            raise Stopped
        return lower(generator, node, *arguments)

    monkeypatch.setattr(type(on_host.generator), "lower", stop)
    with pytest.raises(Stopped):
        program(
            lambda x: (
                toolkit.ops.cumsum(toolkit.ops.sort(x), 0) + toolkit.ops.roll(x, 1)
            )
        )
    assert forgotten
